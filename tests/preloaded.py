"""Processes that run `hearsay`, forked from one that has loaded it: to load it takes a second."""

import atexit
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from hearsay_server.__main__ import main


class Preloaded:
    """One such process, with what is used of `subprocess.Popen`.

    Variables that are read as modules are loaded do not reach it.
    """

    def __init__(self, arguments: Sequence[str], log: Path, run: Callable[[], None] = main) -> None:
        """Run `hearsay ARGUMENTS` with this environment; what it says on stderr goes to `log`.

        Another function than `hearsay` can be run; it finds its arguments in `sys.argv`, too.
        """
        receiving, sending = context().Pipe(duplex=False)
        given = list(arguments), dict(os.environ), Path.cwd(), sending, log, run
        self._process = context().Process(target=_run, args=given, daemon=False)
        self._process.start()
        # Before multiprocessing asks it to end, and waits for that however long it takes.
        atexit.register(self._process.kill)
        sending.close()
        self.stdout = os.fdopen(os.dup(receiving.fileno()))
        receiving.close()

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, once it is gone; negative for a signal."""
        return self._process.exitcode

    def send_signal(self, how: signal.Signals) -> None:
        """Send it a signal, unless it is gone."""
        if self._process.is_alive():
            os.kill(self.pid, how)

    def communicate(self, timeout: float) -> None:
        """Wait until it is gone."""
        self._process.join(timeout)
        ended = self.returncode is not None
        if not ended:
            self._process.kill()
            self._process.join()
        self.stdout.close()
        assert ended, f"{self.pid} did not end in {timeout} s"


@cache
def context() -> ForkServerContext:
    """Return what forks processes; it loads all that a server needs at the first.

    Python has one such process, from which a server forks those for questions, too: whoever asks
    for it first decides what it loads.
    """
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload(["loaded"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        multiprocessing.forkserver.ensure_running()
    return forking


def _run(
    arguments: list[str],
    environ: dict[str, str],
    folder: Path,
    out: Connection,
    log: Path,
    run: Callable[[], None],
) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["hearsay", *arguments]
    os.dup2(out.fileno(), sys.stdout.fileno())
    with log.open("ab") as told:
        os.dup2(told.fileno(), sys.stderr.fileno())
    out.close()
    run()
