"""Liveness and readiness: whether the process answers, and whether it can store reports.

The service "live" is SERVING as long as the process answers. Every other name, "" among them, is
SERVING only while the database can be written: a probe writes to it every few seconds, and a
commit that fails is believed at once.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Collection
from functools import partial
from itertools import count

import grpc
import sqlalchemy as sa
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hearsay_server.serving.metrics import Metrics
from hearsay_server.serving.status import LIVE, Ended
from hearsay_server.storage.database import Database
from hearsay_server.storage.schema import probes
from hearsay_server.storage.writer import Writer

_log = logging.getLogger("hearsay.server")

_Status = health_pb2.HealthCheckResponse

_PROBE_BYTES = 1 << 16
"""Bytes of a thorough probe: enough that a full disk shows, too many for every probe."""

_THOROUGH = 12
"""One probe in so many is thorough; so is every probe while the server is not ready."""

_LEFT_BEHIND = 86_400.0
"""Seconds after which the row of a server that is gone is removed."""


Probe = Callable[[bool], None]
"""Writes to the database durably, thoroughly or not, or raises."""


def prober(database: Database) -> Probe:
    """Return a probe of a database."""
    server = os.urandom(8).hex()

    def probe(thorough: bool) -> None:
        now = time.time()
        filler = os.urandom(_PROBE_BYTES if thorough else 16)
        row = {"server": server, "at": now, "filler": filler}
        old = sa.or_(probes.c.server == server, probes.c.at < now - _LEFT_BEHIND)
        with database.beside() as connection:
            connection.execute(sa.delete(probes).where(old))
            connection.execute(sa.insert(probes), row)

    return probe


class Health(health_pb2_grpc.HealthServicer):
    """The health service: answer this server's status, and tell watchers of every change.

    grpcio-health-checking has one too; there, a watcher that leaves takes the others' news along.
    """

    def __init__(self, services: Collection[str]) -> None:
        """Answer for `services`, for "" and for "live"."""
        self._services = {"", *services}
        self._is_ready = True
        self._stopping = False
        self._changed = asyncio.Condition()

    async def ready(self, is_ready: bool) -> None:
        """Set whether reports can be stored, and tell watchers."""
        async with self._changed:
            self._is_ready = is_ready
            self._changed.notify_all()

    def is_ready(self) -> bool:
        """Tell whether reports can be stored, and the server does not stop."""
        return self._status("") == _Status.SERVING

    async def stop(self) -> None:
        """Answer NOT_SERVING from now on, and end watches: they would outlast any grace."""
        async with self._changed:
            self._stopping = True
            self._changed.notify_all()

    async def Check(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: object
    ) -> health_pb2.HealthCheckResponse:
        status = self._status(request.service)
        if status == _Status.SERVICE_UNKNOWN:
            raise Ended(grpc.StatusCode.NOT_FOUND, "there is no such service here")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: object
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        told = None
        while not (self._stopping and told == self._status(request.service)):
            async with self._changed:
                while self._status(request.service) == told:
                    await self._changed.wait()
                told = self._status(request.service)
            yield health_pb2.HealthCheckResponse(status=told)

    def _status(self, service: str) -> int:
        if service != LIVE and service not in self._services:
            return _Status.SERVICE_UNKNOWN
        serves = not self._stopping and (self._is_ready or service == LIVE)
        return _Status.SERVING if serves else _Status.NOT_SERVING


class Readiness:
    """Keep a `Health` up to date with commits to, and probes of, the database."""

    def __init__(self, health_: Health, metrics: Metrics) -> None:
        self._health = health_
        self._metrics = metrics
        self._failed = asyncio.Event()
        self._ready = True
        self.trouble = ""
        """Why reports cannot be stored; empty while they can."""
        metrics.ready.set(1)

    def committed(self, seconds: float, error: Exception | None) -> None:
        """Note a commit; a failure of the database ends readiness until a probe succeeds.

        A commit that failed because of its own data says nothing of other commits.
        """
        if error is None:
            self._metrics.commit.observe(seconds)
            return
        self._metrics.commit_failures.inc()
        of_data = isinstance(error, sa.exc.DataError | sa.exc.IntegrityError)
        if isinstance(error, sa.exc.SQLAlchemyError) and not of_data:
            self._failed.set()

    @contextlib.asynccontextmanager
    async def watched(self, writer: Writer, probe: Probe, every: float) -> AsyncIterator[None]:
        """Probe every so many seconds, on the thread that writes, while the context lasts."""
        task = asyncio.create_task(self._watch(writer, probe, every))
        try:
            yield
        finally:
            task.cancel()

    async def _watch(self, writer: Writer, probe: Probe, every: float) -> None:
        for number in count():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._failed.wait(), every)
            if self._failed.is_set():
                self._failed.clear()
                await self._tell("a commit failed")
                continue  # and wait, before a probe may say otherwise
            try:
                # A disk that hangs is no better than one that fails.
                thorough = not self._ready or number % _THOROUGH == 0
                await asyncio.wait_for(writer.run(partial(probe, thorough)), max(every, 10.0))
            except Exception as error:
                await self._tell(f"a probe failed: {error or type(error).__name__}")
            else:
                await self._tell("")

    async def _tell(self, trouble: str) -> None:
        if self._ready == (not trouble):
            return
        self._ready = not trouble
        self.trouble = trouble
        self._metrics.ready.set(self._ready)
        await self._health.ready(self._ready)
        if trouble:
            _log.error("not ready: %s", trouble)
        else:
            _log.info("ready again: the database can be written")
