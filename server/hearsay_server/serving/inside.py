"""What a server gives to the pages that are shown at its HTTP door."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.descriptor import ServiceDescriptor

from hearsay_server.clock import Clock
from hearsay_server.config import Config
from hearsay_server.serving.analyses import Analyses
from hearsay_server.serving.auth import Policy, Proof
from hearsay_server.serving.guard import Guard
from hearsay_server.serving.health import Readiness
from hearsay_server.serving.metrics import Metrics
from hearsay_server.serving.minutes import Minutes
from hearsay_server.serving.tls import Certificates
from hearsay_server.storage.database import Database


@dataclass(frozen=True)
class Inside:
    """A running server as its pages see it: its calls, and what it knows of itself."""

    config: Config
    clock: Clock
    services: Mapping[ServiceDescriptor, object]
    guard: Guard
    policy: Policy
    metrics: Metrics
    minutes: Minutes
    readiness: Readiness
    database: Database
    certificates: Certificates | None
    analyses: Analyses
    """The processes that answer analysts' questions, with their limits."""
    loop: asyncio.AbstractEventLoop

    async def call(self, method: str, request: Any, proof: Proof) -> Any:
        """Call a method, such as "Admin/ListSurveys", as a caller with this proof would.

        The guard counts the call and lets it in or not. Raises `Ended`.
        """
        async with self.guard.call(f"hearsay.v1.{method}", proof) as call:
            call.read()
            return await self._handler(method)(request, None)

    async def stream(
        self, method: str, request: Any, proof: Proof, take: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Call a method that streams; `take` is given each answer. Raises `Ended`."""
        async with self.guard.call(f"hearsay.v1.{method}", proof) as call:
            call.read()
            answers: AsyncIterator[Any] = self._handler(method)(request, None)
            await call.stream(answers, take)

    async def own(self, method: str, request: Any) -> Any:
        """Return the answer of a method, called in the server's own name.

        For what an operator has declared to be everybody's, and for nothing else: nobody is asked
        for a token. Raises `Ended`.
        """
        return await self._handler(method)(request, None)

    def _handler(self, method: str) -> Callable[[Any, object], Any]:
        service, _, name = method.partition("/")
        for descriptor, servicer in self.services.items():
            if descriptor.name == service:
                handler: Callable[[Any, object], Any] = getattr(servicer, name)
                return handler
        raise KeyError(method)


class Site(Protocol):
    """The pages of a server: an ASGI application for paths that are neither calls nor probes."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...


MakeSite = Callable[[Inside], Site]
