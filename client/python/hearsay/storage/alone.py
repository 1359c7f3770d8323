"""Work on a device's files that one process does at a time."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hearsay.interrupts import is_from_handler
from hearsay.trouble import Reason, Trouble

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

R = TypeVar("R")

_POLL = 0.005
"""Seconds between two tries to take a lock."""


def alone(descriptor: int, wait: float, work: Callable[[], R]) -> R:
    """Run `work` while no other process runs something alone with the same file or folder.

    The lock ends with its process. Raises `Trouble`, where others are at it for longer than `wait`
    seconds. Where there are no such locks, or not on this file system, `work` is just run.
    """
    if fcntl is None:
        return work()
    try:
        _lock(descriptor, time.monotonic() + wait)
        return work()
    finally:
        # Nothing before this call, not even a function of our own: the entry of one is where
        # Python lets a signal's handler raise.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        except OSError as error:
            if is_from_handler(error):
                raise


def alone_in(folder: Path, wait: float, work: Callable[[], R]) -> R:
    """Run `work` while no other process runs something alone in the same folder; see `alone`."""
    if fcntl is None:
        return work()
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return alone(descriptor, wait, work)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Trouble(
                    Reason.LOCKED, "another process opens or checkpoints the ledger for too long"
                ) from None
            time.sleep(_POLL)
        except OSError as error:
            if is_from_handler(error):
                raise
            return  # a file system without locks
        else:
            return
