"""Channels that the transports of a process share: one for each server and its credentials.

Opening a channel costs more than a call, so a channel stays open between the calls of one client
and the next. A channel is closed once no call has used it for a minute and another one is opened.
The channel that was used last is never closed: gRPC would shut down, and a process that forks
meanwhile gets children whose calls hang.
"""

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from typing import Protocol

import grpc

from ldp import InvalidInput

_UNUSED = 60.0
"""Seconds without a call after which a channel is closed as another one is opened."""

_FORK_WAIT = 2.0
"""Seconds that a fork waits for a channel to be opened or closed."""

abandoned: list[object] = []
"""The parent's gRPC objects in a forked child. Closing or freeing them touches locks that threads
of the parent may have held, so they are kept here."""


class Route(Protocol):
    """A server and how to speak to it. Routes that are equal share a channel."""

    def __hash__(self) -> int: ...

    def open(self) -> grpc.Channel:
        """Open a channel, which connects with its first call, or raise `InvalidInput`."""


@dataclass(eq=False)
class Shared:
    """A channel of a route, the number of calls on it, and when the last one ended."""

    route: Route
    channel: grpc.Channel
    calls: int = 0
    used: float = 0.0


class Channels:
    """The open channels of a process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._current: dict[Route, Shared] = {}
        self._held = False

    def borrow(self, route: Route) -> Shared:
        """Return the channel of a route for one call, opened if need be.

        Raises `InvalidInput` where it cannot be opened. `give_back` must follow.
        """
        with self._lock:
            shared = self._current.get(route) or self._open(route)
            shared.calls += 1
            return shared

    def give_back(self, shared: Shared, *, failed: bool) -> None:
        """Note that a call has ended. Where its connection `failed`, another channel takes its
        place: gRPC waits longer and longer before it connects again, and a connection that died
        unnoticed fails every call."""
        with self._lock:
            shared.calls -= 1
            shared.used = time.monotonic()
            if failed and self._current.get(shared.route) is shared:
                with contextlib.suppress(InvalidInput):  # then this channel stays
                    self._open(shared.route)
            if not shared.calls and self._current.get(shared.route) is not shared:
                shared.channel.close()

    def before_fork(self) -> None:
        """Keep channels from being opened or closed while the process forks."""
        self._held = self._lock.acquire(timeout=_FORK_WAIT)

    def after_fork(self, *, child: bool) -> None:
        """Unlock the channels in the parent; forget the parent's channels in the child."""
        if child:
            abandoned.extend(self._current.values())
            self._lock = threading.RLock()
            self._current = {}
        elif self._held:
            self._lock.release()

    def _open(self, route: Route) -> Shared:
        shared = Shared(route, route.open())
        self._current[route] = shared
        stale = time.monotonic() - _UNUSED
        for other in list(self._current.values()):
            if other is not shared and not other.calls and other.used < stale:
                del self._current[other.route]
                other.channel.close()
        return shared


channels = Channels()
"""The open channels of this process."""

if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(
        before=channels.before_fork,
        after_in_parent=lambda: channels.after_fork(child=False),
        after_in_child=lambda: channels.after_fork(child=True),
    )
