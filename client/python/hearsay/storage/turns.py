"""A lock that no exception leaves locked, whatever a signal handler raises."""

import threading
from collections.abc import Callable
from typing import TypeVar

from hearsay.interrupts import is_from_handler
from hearsay.trouble import Reason, Trouble

R = TypeVar("R")


class Turn:
    """A lock that a thread holds once, and that no exception leaves locked."""

    def __init__(self, what: str = "the ledger") -> None:
        """`what` is what the holder uses, in errors."""
        self._what = what
        self.lock = threading.RLock()  # knows who holds it, so nobody else can release it
        self._holder = 0

    def take(self, work: Callable[[], R], wait: float = -1) -> R:
        """Run `work` while no other thread runs any.

        Raises `Trouble` where this thread does so already, and where others do for more than
        `wait` seconds (-1: however long that is).
        """
        me = threading.get_ident()
        if self._holder == me:
            raise Trouble(
                Reason.LOCKED,
                f"this thread uses {self._what} already: a signal handler interrupted it",
            )
        try:
            if not self.lock.acquire(timeout=wait):
                raise Trouble(Reason.LOCKED, f"other threads use {self._what} for too long")
            self._holder = me
            return work()
        finally:
            if self._holder == me:
                self._holder = 0
            try:
                self.lock.release()
            except RuntimeError as error:  # the wait for the lock was interrupted
                if is_from_handler(error):
                    raise
