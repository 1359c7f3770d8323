"""The gRPC door, which opens again at once where a caller has broken it.

grpc.aio takes all calls in one task, and decodes their paths there: one request for a path that is
no UTF-8 ends the task, and the server listens no more. Only a proxy can keep such a request away.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

import grpc

from hearsay_server.serving import tls
from ldp.errors import ServerFailed

_log = logging.getLogger("hearsay.server")

_LOOK = 0.2
"""Seconds after which a broken door is noticed, and a port that is taken is first tried again."""

_LONGEST_WAIT = 5.0
"""Seconds between two tries of a port that stays taken."""

_GRACE = 10.0
"""Seconds that calls under way may take to end once their server is broken."""


class GrpcDoor:
    """An address at which calls are answered over gRPC, by one server after another."""

    def __init__(
        self,
        interceptors: Sequence[grpc.aio.ServerInterceptor],
        options: Sequence[tuple[str, int]],
        most_calls: int,
        add: Callable[[grpc.aio.Server], None],
    ) -> None:
        """`add` adds the services to a server that was just made."""
        self._interceptors, self._options = interceptors, options
        self._most_calls, self._add = most_calls, add
        self._listen = ""
        self._certificates: tls.Certificates | None = None
        self._server: grpc.aio.Server | None = None
        self._watching: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def open(self, listen: str, certificates: tls.Certificates | None) -> int:
        """Listen on an address; return the port. Raises `ServerFailed` where that fails."""
        self._certificates = certificates
        port = await self._serve(listen)
        host = listen.rpartition(":")[0]
        self._listen = listen if listen.startswith("unix:") else f"{host}:{port}"
        self._watching = asyncio.create_task(self._watch())
        return port

    async def close(self, grace: float) -> None:
        """Take no more calls; those under way have so many seconds to end."""
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        if self._server is not None:
            await self._server.stop(grace)
        await asyncio.gather(*self._ending)

    async def _serve(self, listen: str) -> int:
        server = grpc.aio.server(
            interceptors=self._interceptors,
            options=self._options,
            # The guard counts calls that it let in; this limit also counts calls before it,
            # and refuses them without saying when to come again.
            maximum_concurrent_rpcs=self._most_calls,
        )
        self._add(server)
        try:
            if self._certificates is None:
                port = server.add_insecure_port(listen)
            else:
                port = server.add_secure_port(listen, self._certificates.credentials())
        except RuntimeError:
            raise ServerFailed(f"cannot listen on {listen}: is the port in use?") from None
        await server.start()
        self._server = server
        return port

    async def _watch(self) -> None:
        """Serve anew whenever the server has ended by itself."""
        while True:
            assert self._server is not None
            try:
                await self._server.wait_for_termination(_LOOK)
            except Exception as error:
                _log.warning(
                    "a request that is none has broken the gRPC door, which opens again: %s; keep "
                    "such requests away by a proxy, as deploy/nginx/hearsay.conf does",
                    type(error).__name__,
                )
                ending = asyncio.create_task(self._server.stop(_GRACE))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
                await self._serve_again()

    async def _serve_again(self) -> None:
        wait = _LOOK
        while True:
            try:
                await self._serve(self._listen)
            except ServerFailed as error:
                _log.error("%s", error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT)
            else:
                return
