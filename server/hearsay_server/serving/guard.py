"""The guard of all services: who is let in, how many at once, and for how long.

Each door, gRPC and HTTP, hands a call to the guard before it reads any of the call's message. So
a message that does not come can be given up, and internal errors are kept from the caller.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, NoReturn, TypeVar

import grpc

from hearsay_server.limits import TooMany
from hearsay_server.serving import auth
from hearsay_server.serving.auth import EVERYBODY, Denied, Policy, Proof
from hearsay_server.serving.metrics import Metrics
from hearsay_server.serving.status import MENDED, Ended
from hearsay_server.serving.tracing import Spans
from hearsay_server.storage.database import is_away
from hearsay_server.storage.tokens import Token

_T = TypeVar("_T")

_log = logging.getLogger("hearsay.server")

FOR_EVERYBODY = 64
"""Calls at once to services that need no token: a newer one takes the place of the oldest."""

_LOOKED_UP = 1.0
"""Seconds between two looks whether the token of a call that streams works still."""


class Guard:
    """Let calls in by `policy`, at most `max_open_calls` at once; services open to all count apart.

    A call is open from its first byte to its end; its message must come in `max_upload` seconds.
    """

    def __init__(
        self,
        policy: Policy,
        metrics: Metrics,
        spans: Spans | None,
        max_open_calls: int,
        max_upload: float,
    ) -> None:
        self._policy = policy
        self._metrics = metrics
        self._spans = spans
        self._max = max_open_calls
        self._max_upload = max_upload
        self._open = 0
        self._for_everybody: dict[asyncio.Timeout, None] = {}  # oldest first
        metrics.open_calls.set_function(lambda: self._open)

    @contextlib.asynccontextmanager
    async def call(self, method: str, token: Proof) -> AsyncIterator["Call"]:
        """Let a call of a method ("service/name") in, or raise `Ended`, and count and time it.

        Every error inside leaves as `Ended`: the caller's own in detail, internal ones without.
        """
        with self._spans.call(method) if self._spans else contextlib.nullcontext():
            await self.admit(method, token)
            begin = time.perf_counter()
            limit = asyncio.timeout(self._max_upload)
            try:
                async with limit:
                    with self._place(method.partition("/")[0], limit):
                        yield Call(self._policy, method, token, limit)
            except Exception as error:
                raise self._ended(_overdue(limit, error)) from error
            finally:
                self._metrics.call_seconds.labels(method).observe(time.perf_counter() - begin)

    async def admit(self, method: str, token: Proof) -> None:
        """Let a caller of a method in, or raise `Ended`."""
        auth.called_by(await self._looked_up(self._policy.admit(method, token)))

    async def working(self, proof: str | bytes) -> Token:
        """Return the record of a token that works, or raise `Ended`."""
        return await self._looked_up(self._policy.working(proof))

    async def _looked_up(self, look: Coroutine[Any, Any, _T]) -> _T:
        try:
            return await look
        except Denied as error:
            raise self._ended(error) from None
        except Exception as error:
            _log.exception("a caller's token could not be looked up")
            detail = "tokens cannot be looked up now"
            raise Ended(grpc.StatusCode.UNAVAILABLE, detail, MENDED) from error

    @contextlib.contextmanager
    def _place(self, service: str, call: asyncio.Timeout) -> Iterator[None]:
        """Count a call while it lasts; raise `TooMany` where the limit is reached."""
        if service in EVERYBODY:
            if len(self._for_everybody) >= FOR_EVERYBODY:
                oldest = next(iter(self._for_everybody))
                del self._for_everybody[oldest]
                if not oldest.expired():
                    oldest.reschedule(0)
            self._for_everybody[call] = None
            try:
                yield
            finally:
                self._for_everybody.pop(call, None)
            return
        if self._open >= self._max:
            raise TooMany(f"{self._max} calls are under way already", "calls", retry_after=1.0)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    def _ended(self, error: Exception) -> Ended:
        """Count an error, and return the status that its caller is told."""
        if isinstance(error, TooMany):
            self._metrics.limited.labels(error.limit).inc()
            return Ended(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error), error.retry_after)
        if isinstance(error, Denied):
            self._metrics.denied.labels(error.reason).inc()
        if isinstance(error, Ended):
            return error
        _log.error("a call failed", exc_info=error)
        if is_away(error):
            detail = "the database does not answer"
            return Ended(grpc.StatusCode.UNAVAILABLE, detail, MENDED)
        return Ended(grpc.StatusCode.INTERNAL, "the server failed to answer")


class Call:
    """A call that was let in."""

    def __init__(self, policy: Policy, method: str, token: Proof, limit: asyncio.Timeout) -> None:
        self._policy = policy
        self._method = method
        self._token = token
        self._limit = limit

    def read(self) -> None:
        """Note that the message has come: from now on the call may last."""
        self._limit.reschedule(None)

    async def stream(
        self, answers: AsyncIterator[Any], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Send answers until they end, or raise `Denied` once the caller's token works no more."""
        tasks = [asyncio.create_task(self._send(answers, send))]
        if self._method.partition("/")[0] not in EVERYBODY:
            tasks.append(asyncio.create_task(self._watch_token()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _send(self, answers: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        async with contextlib.aclosing(answers):
            async for answer in answers:
                await self._policy.admit(self._method, self._token)
                await send(answer)

    async def _watch_token(self) -> NoReturn:
        """Raise `Denied` once the caller's token works no more."""
        while True:
            await asyncio.sleep(_LOOKED_UP)
            await self._policy.admit(self._method, self._token)


def _overdue(limit: asyncio.Timeout, error: Exception) -> Exception:
    """Return `TooMany` where our time limit ended a call; another error as it is."""
    if not isinstance(error, TimeoutError) or not limit.expired():
        return error
    if limit.when() == 0:
        return TooMany("newer calls took its place", "calls", retry_after=1.0)
    return TooMany("the message took too long to come", "upload", retry_after=1.0)
