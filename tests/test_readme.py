"""The code of the README, the tutorial and a training runs as it stands, from top to bottom."""

import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pages
from hearsay_server.demo import sources
from support import Server

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that a page starts, beside the empty folder that its code runs in."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    for module in ("redbook", "commute"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    server = Server(folder / "hearsay-data")
    yield server
    if server.is_running():
        server.stop(signal.SIGKILL)


@pytest.mark.slow
def test_the_code_of_the_readme_runs(
    stopped: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the first 800 respondents of the demo, whose 6,366 take half a minute."""
    for package in ("pandas", "sklearn", "statsmodels", "torch"):
        pytest.importorskip(package)
    whole = sources.redbook()
    fewer = sources.Source(whole.title, whole.survey, whole.respondents[:800])
    monkeypatch.setattr(sources, "redbook", lambda: fewer)
    told = pages.run(ROOT / "README.md", stopped, capsys)
    assert "('affair', 'rating', 'age') {}" in told  # nothing that the app records is dropped
    assert "effective_sample_size" in told
    assert "PrivateClassifier of affair by rate_marriage, yrs_married: 800 rows" in told
    assert told.count("contraction  smallest") == 2  # printed, and read again from the file
    assert float(told.split()[-1]) > 0.7
    assert stopped.show("redbook").status.records == 800
    first = Server(stopped.folder.parent / "hearsay-data")
    first.start()
    assert first.show("redbook").status.records == 2001
    first.stop()


@pytest.mark.slow
def test_the_code_of_the_readme_runs_without_torch(
    stopped: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """All sections but the one for a model builder."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    before, _, after = readme.partition("## For a model builder\n")
    part = stopped.folder.parent / "part.md"
    part.write_text(before + after[after.index("\n## ") :], encoding="utf-8")
    told = pages.run(part, stopped, capsys)
    assert "('affair', 'rating', 'age') {}" in told
    assert "effective_sample_size" in told
    assert stopped.show("redbook").status.records == 2001


@pytest.mark.slow
def test_the_code_of_the_tutorial_runs(stopped: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """And the answers of the last block are near the truth that the devices were given."""
    told = pages.run(ROOT / "docs" / "tutorial.md", stopped, capsys)
    assert stopped.show("commute").status.records == 5000
    found = re.findall(r"^(\w+) true ([\d.]+) estimated (-?[\d.]+) \+- ([\d.]+)$", told, re.M)
    assert [name for name, *_ in found] == ["foot", "bike", "bus", "car"]
    for _, true, estimated, error in found:
        assert abs(float(true) - float(estimated)) < 5 * float(error)
        assert 0 < float(error) < 0.03


@pytest.mark.slow
def test_the_training_of_five_minutes_runs_and_prints_what_the_page_shows(
    stopped: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("sklearn", "torch"):
        pytest.importorskip(package)
    page = (ROOT / "docs" / "federated.md").read_text(encoding="utf-8")
    part = page.split("## A training in five minutes\n")[1].split("\n## ")[0]
    file = stopped.folder.parent / "part.md"
    file.write_text(part, encoding="utf-8")
    told = pages.run(file, stopped, capsys)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", part, re.S | re.M)
    # Noise makes other models each time.
    printed, *shown = (
        re.sub(r"\b[0-9a-f]{8,}\b", "...", text)
        for text in (told, *(text for language, text in blocks if not language))
    )
    assert len(shown) == 2
    for each in shown:
        assert each in printed
    assert "\ntrainings\n" in printed  # of the device
    assert float(told.split()[-1]) > 0.7
