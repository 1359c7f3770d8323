"""Clients at a fork and at the end of the process: pause, resume, close."""

import atexit
import logging
import os
import sys
import threading
import time
import weakref
from typing import Protocol

from hearsay.sending.sender import leaving

_log = logging.getLogger("hearsay")

_FORK_WAIT = 2.0
"""Seconds that a fork waits for a call and a transaction under way to end."""


class Living(Protocol):
    """An object that must be told of forks and of the end of the process: `hearsay.Client`."""

    def before_fork(self, deadline: float) -> None:
        """Pause before a fork, at the latest at `deadline` of the monotonic clock."""

    def after_fork(self, *, child: bool) -> None:
        """Resume after a fork, in the parent or in the child."""

    def end(self, spent: float) -> None:
        """Close as the process ends; `spent` seconds of the exit timeout are used up."""


_living: "weakref.WeakSet[Living]" = weakref.WeakSet()

_births = threading.RLock()
"""Guards `_living`; held while the process forks, so that no client appears in the middle."""


_GRPC = "hearsay.sending.channels"
"""The module whose import brings gRPC's own hooks at a fork, and those of its channels."""

_hooked: set[bool] = set()
"""Whether gRPC was there, for each time that the hooks at a fork were registered."""

_depth = threading.local()
"""How many of the hooks of the thread's fork have begun: there may be two registrations."""


def watch(client: Living) -> None:
    """Register a client, weakly, to be paused at forks and closed as the process ends."""
    with _births:
        _living.add(client)
        _hook()


def _hook() -> None:
    """Register the hooks at a fork, and again once gRPC is imported.

    Before a fork Python runs first what was registered last, and the calls of clients must have
    ended when gRPC's turn comes.
    """
    has_grpc = _GRPC in sys.modules
    if hasattr(os, "register_at_fork") and has_grpc not in _hooked:  # Windows has no fork
        _hooked.add(has_grpc)
        os.register_at_fork(
            before=_before_fork,
            after_in_parent=lambda: _after_fork(child=False),
            after_in_child=lambda: _after_fork(child=True),
        )


def _before_fork() -> None:
    """Pause all clients, in the first of the hooks that are called for one fork."""
    _depth.hooks = getattr(_depth, "hooks", 0) + 1
    if _depth.hooks > 1:
        return
    _births.acquire()
    deadline = time.monotonic() + _FORK_WAIT
    for sender in list(leaving):
        sender.join(deadline - time.monotonic())
    for client in list(_living):
        try:
            client.before_fork(deadline)
        except Exception as error:  # the host's fork must go on
            _log.error("a client was not ready for a fork: %s", type(error).__name__)


def _after_fork(*, child: bool) -> None:
    """Resume all clients, in the last of the hooks that are called for one fork."""
    global _births
    begun = getattr(_depth, "hooks", 0)
    _depth.hooks = max(0, begun - 1)
    if begun != 1:  # others follow, or this one was registered in the middle of the fork
        return
    for client in list(_living):
        try:
            client.after_fork(child=child)
        except Exception as error:
            _log.error("a client did not take a fork well: %s", type(error).__name__)
    if child:
        _births = threading.RLock()
        leaving.clear()
    else:
        _births.release()


@atexit.register
def _close_at_exit() -> None:
    """Close all clients, which send for a bounded time; unsent reports stay in the file."""
    begin = time.monotonic()
    for client in list(_living):
        try:
            client.end(time.monotonic() - begin)
        except Exception as error:
            _log.error("a client could not be closed: %s", type(error).__name__)
