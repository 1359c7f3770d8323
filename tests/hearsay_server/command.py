"""The `hearsay` command."""

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory
from unittest.mock import patch

from hearsay_server.__main__ import main
from preloaded import Preloaded


def hearsay(*arguments: object, **environ: str) -> CompletedProcess[str]:
    """Run the command in this process: to start one takes longer than most commands do.

    Return its exit code and what it printed, to no terminal.
    """
    argv = ["hearsay", *map(str, arguments)]
    printed, told = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)
    )
    with (
        patch.object(sys, "argv", argv),
        patch.dict(os.environ, {"COLUMNS": "80", **environ}),
        redirect_stdout(printed),
        redirect_stderr(told),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            # As the interpreter does when it ends.
            if isinstance(end.code, str):
                sys.stderr.write(end.code + "\n")
            code = 1 if isinstance(end.code, str) else end.code or 0
    out, err = (stream.buffer.getvalue().decode() for stream in (printed, told))
    return CompletedProcess(argv, code, out, err)


def hearsay_serve(*arguments: object, **environ: str) -> CompletedProcess[str]:
    """Run the server, which sets up its process, in one of its own, until it ends."""
    with TemporaryDirectory() as folder, patch.dict(os.environ, environ):
        told = Path(folder, "log")
        process = Preloaded(["serve", *map(str, arguments)], told)
        printed = process.stdout.read()
        process.communicate(timeout=60)
        return CompletedProcess(arguments, process.returncode or 0, printed, told.read_text())
