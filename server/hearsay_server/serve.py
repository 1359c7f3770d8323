"""The server process: services, health, reflection, and a stop that drains."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from hearsay.transport import is_loopback
from hearsay.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    analyst_pb2,
    analyst_pb2_grpc,
    collector_pb2,
    collector_pb2_grpc,
)
from hearsay_server.services.admin import Admin
from hearsay_server.services.analyst import Analyst
from hearsay_server.services.collector import Collector
from hearsay_server.services.plans import Plans, decoder
from hearsay_server.store import Store
from hearsay_server.writer import Writer
from ldp import InvalidInput

_log = logging.getLogger("hearsay.server")

_SERVICES = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in (
        (collector_pb2, "Collector"),
        (analyst_pb2, "Analyst"),
        (admin_pb2, "Admin"),
    )
)

_GRACE = 10.0
"""Seconds that calls under way may take to end once the server stops."""


@contextlib.asynccontextmanager
async def running(folder: Path, listen: str, *, insecure: bool = False) -> AsyncIterator[int]:
    """Serve from `folder` at "host:port" while the context lasts; yield the port.

    Port 0 takes a free one. On leaving, health says NOT_SERVING, no new call is taken, calls
    under way end, what waits is written, and the store is closed.
    Raises `InvalidInput` for an address that is not loopback unless `insecure`: there is no TLS
    and no token yet, so whoever reaches the port may ask and register anything. Also where the
    address cannot be bound.
    """
    if not insecure and not is_loopback(listen):
        raise InvalidInput(
            f"{listen} is not loopback, and this version speaks neither TLS nor tokens: listen "
            "on 127.0.0.1 behind a proxy that does, or pass --insecure on a network you trust"
        )
    async with contextlib.AsyncExitStack() as stack:  # unwinds in reverse, whatever fails
        store = Store(folder)
        stack.callback(store.close)
        plans = Plans(store)
        writer = Writer(store, decoder(plans))
        stack.push_async_callback(writer.close)
        # Else a second server on the port would take half of the calls, unnoticed.
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        collector_pb2_grpc.add_CollectorServicer_to_server(Collector(plans, writer), server)
        analyst_pb2_grpc.add_AnalystServicer_to_server(Analyst(plans, store), server)
        admin_pb2_grpc.add_AdminServicer_to_server(Admin(plans, store, writer), server)
        healthy = _Health()
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        for name in ("", *_SERVICES):
            await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
        reflection.enable_server_reflection(
            (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        try:
            port = server.add_insecure_port(listen)
        except RuntimeError:
            raise InvalidInput(f"cannot listen on {listen}: is the port in use?") from None
        await server.start()
        stack.push_async_callback(server.stop, _GRACE)
        stack.push_async_callback(healthy.enter_graceful_shutdown)
        yield port


class _Health(health.aio.HealthServicer):
    """Health whose watchers are let go when the server stops: they would outlast any grace."""

    def __init__(self) -> None:
        super().__init__()
        self._stopping = asyncio.Event()

    async def Watch(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> None:
        watch = asyncio.ensure_future(super().Watch(request, context))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((watch, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            stopping.cancel()

    async def enter_graceful_shutdown(self) -> None:
        await super().enter_graceful_shutdown()
        self._stopping.set()


async def serve(
    folder: Path, listen: str, *, insecure: bool, on_start: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT; call `on_start` with the address once it answers."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    async with running(folder, listen, insecure=insecure) as port:
        on_start(f"{listen.rpartition(':')[0]}:{port}")
        await stop.wait()
        _log.info("stopping: no new calls, writing what waits")
