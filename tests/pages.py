"""The code of a page of the documentation, run as it stands in an empty folder."""

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import hearsay

from support import Server

_ADDRESS = "127.0.0.1:50051"
"""Where a server listens, and where a command looks for it, by default."""

_CALLS_A_SERVER = (
    *("survey create", "survey show", "query", "ask", "export"),
    *("training create", "training show", "training export"),
)

_NEEDS_MORE = ("make", "mkdir", "cd", "python3", ".", "pip")
"""Commands that are not run: they need the repository, or prepare the folder."""


def run(page: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the blocks of a page from top to bottom in the current folder; return what they print.

    `server` is started where the page does. A block of TOML is written to a file, named as the
    survey or the training; a block without a language is only shown.
    """
    printed = []
    for language, block in re.findall(
        r"^```(\w+)\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M
    ):
        _RUNS[language](block, server)
        printed.append(capsys.readouterr().out)
    return "".join(printed)


def blocks(text: str, language: str) -> list[str]:
    """The blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.S | re.M)


def _toml(block: str, server: Server) -> None:
    name = re.findall(r'^name = "(\w+)"$', block, re.M)[0]
    Path(f"{name}.toml").write_text(block, encoding="utf-8")


def _sh(block: str, server: Server) -> None:
    for line in block.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        command = " ".join(arguments)
        if program in _NEEDS_MORE:
            continue
        assert program == "hearsay"
        if arguments[0] == "serve":
            assert arguments[:2] == ["serve", "--data"]
            if server.is_running():
                server.stop()
            server.folder = server.folder.parent / arguments[2]
            server.start()
            continue
        if arguments[0] == "train":
            arguments += ["--server", server.address]
        elif command.startswith(_CALLS_A_SERVER):
            arguments += ["--target", server.address]
        done = hearsay(*arguments)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        sys.stdout.write(done.stdout)


def _python(block: str, server: Server) -> None:
    code = block.replace(_ADDRESS, server.address)
    exec(compile(code, "a page", "exec"), {"__name__": "__main__"})


_RUNS: dict[str, Callable[[str, Server], None]] = {"toml": _toml, "sh": _sh, "python": _python}
