"""Work in a forked child."""

import contextlib
import gc
import os
import signal
from collections.abc import Callable


def start_child(work: Callable[[], int]) -> int:
    """Fork this process, and return the child's id: it ends with the number that `work` returns, 1
    where that raises, and by a signal after a minute.

    It collects no garbage: what other tests have left may wait for threads that it does not have.
    """
    if child := os.fork():
        return child
    gc.disable()
    signal.alarm(60)
    with contextlib.suppress(BaseException):
        os._exit(work())
    os._exit(1)  # whatever happened: only the parent goes on with the tests


def exit_code_of_a_child(work: Callable[[], int]) -> int:
    """Return what a forked child ends with, minus a signal's number where one ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(start_child(work), 0)[1])


def bytes_of_a_forked_child(work: Callable[[], bytes]) -> bytes:
    """Return what `work` returns in a fork of this process, nothing where it raises."""
    read, write = os.pipe()

    def tell() -> int:
        os.write(write, work())
        return 0

    child = start_child(tell)
    os.close(write)
    with open(read, "rb") as pipe:  # noqa: PTH123 - a descriptor, not a path
        told = pipe.read()
    os.waitpid(child, 0)
    return told
