"""Work in a forked child."""

import os
import signal
from collections.abc import Callable


def bytes_of_a_forked_child(work: Callable[[], bytes]) -> bytes:
    """Return what `work` returns in a fork of this process, which ends in a minute at most."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(60)  # it may not wait for a thread that it does not have
        try:
            os.write(write, work())
        finally:
            os._exit(0)  # whatever happened: only the parent goes on with the tests
    os.close(write)
    with open(read, "rb") as pipe:  # noqa: PTH123 - a descriptor, not a path
        told = pipe.read()
    os.waitpid(child, 0)
    return told
