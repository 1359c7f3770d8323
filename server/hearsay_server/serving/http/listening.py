"""Connections of the HTTP door: uvicorn's, with limits on their number, heads and silence."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from hearsay_server.config import Process
from hearsay_server.serving.tls import HANDSHAKE
from ldp.errors import InvalidInput, ServerFailed

_HEAD = 16 << 10
"""Bytes of a request's line and headers, trailers included."""

_HEADER = 32
"""Bytes that each header counts for beyond its own: what it takes in memory."""

_SILENT = logging.Logger("uvicorn", logging.CRITICAL + 1)
"""uvicorn would log each broken request, and at one level addresses; `App` logs faults itself."""


class Door:
    """A listening socket, and the connections that came through it."""

    def __init__(self, app: Callable[..., Awaitable[None]], config: Process) -> None:
        self.max_connections = config.max_connections
        self.idle = config.max_connection_idle_seconds
        self.state = ServerState()
        self.config = uvicorn.Config(
            app,
            interface="asgi3",
            http=HttpToolsProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
        )
        self.config.load()
        self.config.timeout_keep_alive = self.idle  # type: ignore[assignment]  # typed int
        self._server: asyncio.Server | None = None

    async def open(self, listen: str, context: ssl.SSLContext | None, share_port: bool) -> int:
        """Listen on "HOST:PORT"; return the port. Raises `ServerFailed` where that fails."""
        host, _, port = listen.rpartition(":")
        if not host or not port.isdecimal():
            raise InvalidInput(f"http must be HOST:PORT, got {listen!r}")
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: _Connection(self),
                host.strip("[]"),
                int(port),
                backlog=2048,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE if context else None,
                reuse_port=share_port or None,
            )
        except (OSError, OverflowError) as error:
            raise ServerFailed(f"cannot serve HTTP at {listen!r}: {error}") from None
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def close(self, grace: float) -> None:
        """Take no new request, wait `grace` seconds for those under way, and hang up."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.state.connections):
            connection.shutdown()
        if self.state.tasks:
            _, late = await asyncio.wait(set(self.state.tasks), timeout=grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        for connection in list(self.state.connections):
            connection.transport.abort()


class _Connection(HttpToolsProtocol):
    """A connection that is closed where the head of a request is late or too large."""

    def __init__(self, door: Door) -> None:
        super().__init__(door.config, door.state, {"on_lost": self._call_when_lost})
        self.logger = _SILENT
        self.access_log = False
        self._door = door
        self._when_lost: Callable[[], None] | None = None
        self._late: asyncio.TimerHandle | None = None
        self._in_head = True
        self._head = 0  # bytes of the head that came in whole parts
        self._apart = 0  # bytes since the parser last told of a whole part

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self._door.max_connections:
            transport.abort()
            return
        _end_when_dead(transport.get_extra_info("socket"), self._door.idle)
        self._late = self.loop.call_later(HANDSHAKE, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._when_lost is not None:
            self._when_lost()
        self._unset_keepalive_if_required()
        self._in_time()

    def _call_when_lost(self, when_lost: Callable[[], None] | None) -> None:
        self._when_lost = when_lost

    def data_received(self, data: bytes) -> None:
        if self._late is None and (self.cycle is None or self.cycle.response_complete):
            self._late = self.loop.call_later(HANDSHAKE, self.transport.abort)
        if len(data) <= _HEAD:
            self._take(data)
        else:
            whole = memoryview(data)
            for begin in range(0, len(data), _HEAD):
                self._take(bytes(whole[begin : begin + _HEAD]))

    def _take(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._apart += len(data)
        super().data_received(data)
        if self._apart > _HEAD and not self.transport.is_closing():
            self.send_400_response("A part of the request is too large.")

    def on_message_begin(self) -> None:
        self._head = self._apart = 0
        self._in_head = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._apart = 0
        self._count(len(name) + len(value) + _HEADER)
        if self._in_head:  # a trailer decides nothing
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._apart = 0
        self._in_head = False
        self._in_time()
        if self.cycle is not None and not self.cycle.response_complete:
            # Each would wait in memory, and the bytes of the next ones are read while they do.
            self.transport.abort()
            raise InvalidInput("a request comes once the one before it is answered")
        if self.parser.should_upgrade():  # the parser would take the body for the next request
            raise InvalidInput("a connection cannot be upgraded here")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._apart = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._apart = 0
        super().on_message_complete()

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > _HEAD:  # the parser passes the error on, which is answered with 400
            raise InvalidInput(f"the head of a request holds at most {_HEAD} bytes")

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _end_when_dead(connection: socket.socket, seconds: float) -> None:
    """Let the kernel end a connection whose other end is gone, or takes nothing for so long."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        milliseconds = min(int(1000 * seconds), (1 << 31) - 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
