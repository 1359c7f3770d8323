"""The shuffler's process: its doors, its pools, and the way to the collector."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import grpc
import prometheus_client as prometheus
from grpc_health.v1 import health_pb2_grpc

from hearsay.sending.transport import Tls, open_calls
from hearsay.v1 import shuffler_pb2, shuffler_pb2_grpc
from hearsay_server.build import revision, version
from hearsay_server.clock import Clock, system
from hearsay_server.config import ShufflerConfig
from hearsay_server.serving import doors, tls, tracing
from hearsay_server.serving.auth import Policy
from hearsay_server.serving.gate import Gate
from hearsay_server.serving.guard import FOR_EVERYBODY, Guard
from hearsay_server.serving.health import Health
from hearsay_server.serving.http.app import App
from hearsay_server.serving.metrics import Metrics, exposed
from hearsay_server.shuffler.forwarding import Forwarding
from hearsay_server.shuffler.plans import Plans
from hearsay_server.shuffler.pools import Pools
from hearsay_server.shuffler.service import Intake, Shuffler
from hearsay_server.storage import tokens
from hearsay_server.storage.database import open_database

_log = logging.getLogger("hearsay.shuffler")

SERVICE = shuffler_pb2.DESCRIPTOR.services_by_name["Shuffler"]


@contextlib.asynccontextmanager
async def running(config: ShufflerConfig, clock: Clock = system) -> AsyncIterator[int]:
    """Serve as `config` says while the context lasts; yield the port.

    On leaving, no new call is taken, calls under way end, and what waits is durable. Raises
    `InvalidInput` for an address that is not loopback without TLS, unless `insecure`, and where
    another shuffler has the folder; `ServerFailed` where an address cannot be bound, and
    `StorageFailed` where the folder cannot be used.
    """
    certificates = tls.certificates(config)
    loopback = doors.on_loopback(config, certificates)
    metrics = Metrics()
    async with contextlib.AsyncExitStack() as stack:
        pools = Pools(config.data)
        stack.callback(pools.close)
        database = open_database(config.data)
        stack.callback(database.close)
        trust = Tls(authorities=config.collector_ca) if config.collector_ca else None
        collector = open_calls(
            config.collector,
            tls=trust,
            token=config.collector_token or None,
            insecure=config.collector_insecure,
        )
        stack.callback(collector.close)
        healthy = Health([SERVICE.full_name])

        async def committed(error: Exception | None) -> None:
            if healthy.is_ready() != (error is None):
                await healthy.ready(error is None)

        plans = Plans(pools, collector, config.pinned)
        intake = Intake(pools, clock, committed)
        stack.push_async_callback(intake.close)
        shuffler = Shuffler(plans, intake, doors.rates(config), clock, metrics.refused)
        policy = Policy(
            tokens.Tokens(database),
            loopback=loopback,
            require_device_token=config.require_device_token,
        )
        spans = await stack.enter_async_context(tracing.exported(config.traces))
        guard = Guard(policy, metrics, spans, config.max_open_calls, config.max_upload_seconds)
        server = grpc.aio.server(
            interceptors=[Gate(guard)],
            options=doors.options(config),
            maximum_concurrent_rpcs=2 * (config.max_open_calls + FOR_EVERYBODY),
        )
        shuffler_pb2_grpc.add_ShufflerServicer_to_server(shuffler, server)
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        metrics_port = stack.enter_context(exposed(metrics, config.metrics))
        if metrics_port is not None:
            _log.info("metrics on port %d", metrics_port)
        doors.check_free(config.listen)
        port = doors.bind(server, config.listen, certificates)
        await server.start()
        closing: list[doors.Close] = [server.stop]
        stack.push_async_callback(doors.close, closing)
        if config.http:
            from hearsay_server.serving.http.listening import Door

            bounds = doors.http_bounds(config)
            app = App({SERVICE: shuffler}, guard, bounds, healthy.is_ready, metrics.registry, None)
            door = Door(app, config)
            closing.append(door.close)
            context = certificates.context() if certificates else None
            _log.info("HTTP on port %d", await door.open(config.http, context, False))
        stack.push_async_callback(healthy.stop)
        moved = prometheus.Counter(
            "hearsay_shuffled",
            "Sealed records that left, by what became of them.",
            ["outcome"],
            registry=metrics.registry,
        )
        forwarding = Forwarding(pools, plans, collector, clock, moved)
        task = asyncio.create_task(forwarding.run(config.check_seconds))
        stack.push_async_callback(_ended, task)
        yield port


async def _ended(task: "asyncio.Task[None]") -> None:
    """Stop forwarding: what the collector has not acknowledged stays."""
    task.cancel()
    await asyncio.wait((task,))


async def serve(config: ShufflerConfig, on_start: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; call `on_start` with the address once it answers."""
    stop = doors.stopping()
    async with running(config) as port:
        _log.info("hearsay shuffler %s, revision %s, has started", version(), revision())
        on_start(f"{config.listen.rpartition(':')[0]}:{port}")
        await stop.wait()
        _log.info("stopping: no new calls")
