"""The files that put a server into a container or under systemd."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hearsay_server.config import load

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def test_the_image_sets_only_what_the_server_knows_and_is_not_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    environ = dict(re.findall(r"^(?:ENV|   ) (HEARSAY_\w+)=(\S+)", text, flags=re.MULTILINE))
    own = {"HEARSAY_DATA", "HEARSAY_LISTEN", "HEARSAY_LOG_FORMAT"}
    assert set(environ) == {"HEARSAY_REVISION", *own}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    config = load()
    assert not config.insecure
    assert str(config.data) in re.findall(r"^VOLUME (.*)$", text, flags=re.MULTILINE)
    assert re.findall(r"^USER (.*)$", text, flags=re.MULTILINE) == ["10001"]


def test_systemd_finds_no_fault_with_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze here")
    unit = (DEPLOY / "hearsay.service").read_text(encoding="utf-8")
    file = tmp_path / "hearsay.service"
    file.write_text(unit.replace("/opt/hearsay/bin/hearsay", "/bin/true"))
    verified = subprocess.run([analyze, "verify", file], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")
