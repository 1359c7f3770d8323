"""The README's code runs as it stands, from top to bottom, in an empty folder."""

import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import hearsay

from support import Server

README = Path(__file__).resolve().parent.parent / "README.md"
ADDRESS = "127.0.0.1:50051"
"""Where a server listens, and where a command looks for it, by default."""

CALLS_A_SERVER = ("survey create", "survey show", "query", "export")


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that the README starts, beside the empty folder that its code runs in."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "redbook", raising=False)
    server = Server(folder / "hearsay-data")
    yield server
    if server.is_running():
        server.stop(signal.SIGKILL)


@pytest.mark.slow
def test_the_code_runs_from_top_to_bottom(
    stopped: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("pandas", "pyarrow", "torch"):
        pytest.importorskip(package)
    printed = []
    for language, block in re.findall(
        r"^```(\w+)\n(.*?)^```", README.read_text(encoding="utf-8"), re.S | re.M
    ):
        _RUNS[language](block, stopped)
        printed.append(capsys.readouterr().out)
    told = "".join(printed)
    assert "('affair', 'rating', 'age') {}" in told  # nothing that the app records is dropped
    assert "effective_sample_size" in told
    assert "central" in told
    assert stopped.show("redbook").status.records == 2001


def _toml(block: str, server: Server) -> None:
    (name,) = re.findall(r'^name = "(\w+)"$', block.partition("[")[0], re.M)
    Path(f"{name}.toml").write_text(block, encoding="utf-8")


def _sh(block: str, server: Server) -> None:
    for line in block.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        command = " ".join(arguments)
        if program == "make":  # needs the repository
            continue
        assert program == "hearsay"
        if arguments[0] == "serve":
            assert arguments == ["serve", "--data", "./hearsay-data"]
            server.start()
            continue
        if command.startswith(CALLS_A_SERVER):
            arguments += ["--target", server.address]
        done = hearsay(*arguments)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def _python(block: str, server: Server) -> None:
    code = block.replace(ADDRESS, server.address)
    exec(compile(code, str(README), "exec"), {"__name__": "__main__"})


_RUNS: dict[str, Callable[[str, Server], None]] = {"toml": _toml, "sh": _sh, "python": _python}
