"""The guide's code runs as it stands."""

import re
from pathlib import Path

import pytest

from hearsay import Reason
from hearsay_server import survey as surveys
from support import Server

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "sdk.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^## ([^\n]*)\n(?:(?!^## ).)*?^```python\n(.*?)^```", GUIDE, re.S | re.M)


def test_every_kind_of_user_has_code() -> None:
    assert [title for title, _ in BLOCKS] == [
        "A desktop app",
        "A web backend",
        "A script",
        "asyncio",
        "Your own tests",
    ]


@pytest.mark.parametrize(("title", "code"), BLOCKS, ids=[title for title, _ in BLOCKS])
def test_the_code_runs(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    title: str,
    code: str,
) -> None:
    (survey,) = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.S | re.M)
    server.create(survey)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "daily.plan").write_bytes(surveys.resolve(surveys.from_toml(survey, "daily.toml")))
    exec(compile(code.replace("127.0.0.1:50051", server.address), title, "exec"), {})
    expected = {"A desktop app": 1, "A web backend": 2, "A script": 1, "asyncio": 1}
    assert server.show("daily").status.records == expected.get(title, 0)
    if title == "A desktop app":
        assert "mood spent 0.5 left 364" in capsys.readouterr().out


def test_every_reason_is_explained() -> None:
    for reason in Reason:
        assert f"| `{reason}` |" in GUIDE
