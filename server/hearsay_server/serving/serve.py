"""The server process: services, who may call them, and a stop that drains."""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from hearsay.sending.transport import is_loopback
from hearsay.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    analyst_pb2,
    analyst_pb2_grpc,
    collector_pb2,
    collector_pb2_grpc,
    shuffler_pb2,
    shuffler_pb2_grpc,
    trainer_pb2,
    trainer_pb2_grpc,
)
from hearsay_server.build import revision, version
from hearsay_server.clock import Clock, system
from hearsay_server.config import Config
from hearsay_server.ingest.intake import Limits
from hearsay_server.limits import Rates
from hearsay_server.serving import tls, tracing
from hearsay_server.serving.admin import Admin
from hearsay_server.serving.aggregating import Rounds
from hearsay_server.serving.analyses import Analyses, Bounds
from hearsay_server.serving.analyst import Analyst
from hearsay_server.serving.auth import ROLES, Policy
from hearsay_server.serving.collector import Collector
from hearsay_server.serving.gate import Gate
from hearsay_server.serving.guard import FOR_EVERYBODY, Guard
from hearsay_server.serving.health import Health, Readiness, prober
from hearsay_server.serving.http.app import App
from hearsay_server.serving.http.app import Bounds as HttpBounds
from hearsay_server.serving.inside import Inside, MakeSite
from hearsay_server.serving.metrics import Metrics, exposed
from hearsay_server.serving.minutes import Minutes
from hearsay_server.serving.sealed import SealedCollector
from hearsay_server.serving.trainer import Trainer
from hearsay_server.serving.visits import Visits
from hearsay_server.storage import tokens
from hearsay_server.storage.retention import swept
from hearsay_server.storage.store import Store
from hearsay_server.storage.writer import MAX_REQUEST, Writer
from ldp.errors import InvalidInput, ServerFailed

_log = logging.getLogger("hearsay.server")

_Close = Callable[[float], Awaitable[None]]

_GRACE = 10.0
"""Seconds that calls under way may take to end once the server stops."""

_ANALYSES = 64
"""Questions of analysts that may wait while others are answered."""

_EXPORTS = 4
"""Exports under way at once, and exports that may wait for them."""


@contextlib.asynccontextmanager
async def running(
    config: Config,
    clock: Clock = system,
    draw: Callable[[int], bytes] = os.urandom,
    site: MakeSite | None = None,
) -> AsyncIterator[int]:
    """Serve as `config` says while the context lasts; yield the port.

    `draw` returns the random bytes that the noise of trainings is drawn from; `site` makes the
    pages that are shown at the HTTP door, if there are to be any.

    On leaving, health says NOT_SERVING, no new call is taken, calls under way end, waiting batches
    are written, and the store is closed. Raises `InvalidInput` for an address that is not loopback
    without TLS, unless `insecure`, and where the certificate cannot be used; `ServerFailed` where
    an address cannot be bound; and as `open_database` where the folder cannot be used.
    """
    certificates = tls.certificates(config)
    addresses = [address for address in (config.listen, config.http) if address]
    open_to_others = [address for address in addresses if not is_loopback(address)]
    if open_to_others and certificates is None and not config.insecure:
        raise InvalidInput(
            f"{open_to_others[0]} is not loopback: set tls_certificate and tls_key, listen on "
            "127.0.0.1 behind a proxy that has them, or pass --insecure on a network you trust"
        )
    loopback = not open_to_others
    metrics = Metrics()
    async with contextlib.AsyncExitStack() as stack:  # unwinds in reverse, whatever fails
        store = Store(config.where)
        stack.callback(store.close)
        known = tokens.Tokens(store.database)
        if loopback and not known.any():
            _log.warning(
                "no token was ever made: whoever reaches %s may ask and register anything",
                " and ".join(addresses),
            )
        healthy = Health(ROLES)
        readiness = Readiness(healthy, metrics)
        store.plans.load()
        limits = Limits(config.max_batch_rows, config.rows_per_token_and_period)
        writer = Writer(store, limits, clock, committed=readiness.committed)
        stack.push_async_callback(writer.close)
        metrics.queue_batches.set_function(lambda: writer.waiting[0])
        metrics.queue_bytes.set_function(lambda: writer.waiting[1])
        metrics.tally_lag.set_function(lambda: writer.lag)

        policy = Policy(known, loopback=loopback, require_device_token=config.require_device_token)
        spans = await stack.enter_async_context(tracing.exported(config.traces))
        guard = Guard(policy, metrics, spans, config.max_open_calls, config.max_upload_seconds)
        server = grpc.aio.server(
            interceptors=[Gate(guard)],
            options=_options(config),
            # The guard counts calls that it let in; this limit also counts calls before it,
            # and refuses them without saying when to come again.
            maximum_concurrent_rpcs=2 * (config.max_open_calls + FOR_EVERYBODY),
        )
        rates = _rates(config)
        collector = Collector(store, writer, metrics, limits, rates, clock)
        collector_pb2_grpc.add_CollectorServicer_to_server(collector, server)
        sealed = SealedCollector(store, writer, metrics, clock)
        shuffler_pb2_grpc.add_SealedCollectorServicer_to_server(sealed, server)
        bounds = Bounds(config.analysis_seconds, config.analysis_memory_mib << 20)
        cores = max(2, (os.cpu_count() or 1) // 2)
        analyses = Analyses("analysis", cores, _ANALYSES, bounds, metrics)
        stack.callback(analyses.close)
        exports = Analyses("export", _EXPORTS, _EXPORTS, bounds, metrics)
        stack.callback(exports.close)
        watched = Analyses("watch", 1, 0, bounds, metrics)
        stack.callback(watched.close)
        analyst = Analyst(store, analyses, exports, watched, clock)
        analyst_pb2_grpc.add_AnalystServicer_to_server(analyst, server)
        rounds = Rounds(store.database, writer, metrics, clock)
        changed, visits = rounds.changed, Visits()
        trainer = Trainer(
            store.database, writer, metrics, rates, clock, counted=changed, visits=visits
        )
        trainer_pb2_grpc.add_TrainerServicer_to_server(trainer, server)
        admin = Admin(
            store, writer, clock, changed=changed, ended=rounds.ended, draw=draw, visits=visits
        )
        admin_pb2_grpc.add_AdminServicer_to_server(admin, server)
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        names = (*ROLES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)

        metrics_port = stack.enter_context(exposed(metrics, config.metrics))
        if metrics_port is not None:
            _log.info("metrics on port %d", metrics_port)
        if not config.share_port:
            _check_free(config.listen)
        port = _bind(server, config.listen, certificates)
        services = {
            collector_pb2.DESCRIPTOR.services_by_name["Collector"]: collector,
            trainer_pb2.DESCRIPTOR.services_by_name["Trainer"]: trainer,
            shuffler_pb2.DESCRIPTOR.services_by_name["SealedCollector"]: sealed,
            analyst_pb2.DESCRIPTOR.services_by_name["Analyst"]: analyst,
            admin_pb2.DESCRIPTOR.services_by_name["Admin"]: admin,
        }
        await server.start()
        doors: list[_Close] = [server.stop]
        stack.push_async_callback(_close, doors)
        if config.http:
            from hearsay_server.serving.http.listening import Door

            minutes = Minutes(metrics)
            await stack.enter_async_context(minutes.counted())
            inside = Inside(
                config=config,
                clock=clock,
                services=services,
                guard=guard,
                policy=policy,
                metrics=metrics,
                minutes=minutes,
                readiness=readiness,
                database=store.database,
                certificates=certificates,
                analyses=analyses,
                loop=asyncio.get_running_loop(),
            )
            app = App(
                services,
                guard,
                _http_bounds(config),
                healthy.is_ready,
                metrics.registry,
                site(inside) if site else None,
            )
            door = Door(app, config)
            doors.append(door.close)
            context = certificates.context() if certificates else None
            http = await door.open(config.http, context, config.share_port)
            _log.info("HTTP on port %d", http)
            if site:
                scheme = "https" if context else "http"
                _log.info("pages: %s://%s:%d/", scheme, config.http.rpartition(":")[0], http)
        stack.push_async_callback(healthy.stop)
        stack.callback(analyst.stop_watching)
        await stack.enter_async_context(
            readiness.watched(writer, prober(store.database), config.probe_seconds)
        )
        await stack.enter_async_context(
            swept(writer, store.database, config.keep_batches_days, clock)
        )
        await stack.enter_async_context(rounds.moving())
        yield port


async def _close(doors: Iterable[_Close]) -> None:
    """Close all doors at once; calls under way have `_GRACE` seconds to end."""
    await asyncio.gather(*(close(_GRACE) for close in doors))


def _http_bounds(config: Config) -> HttpBounds:
    return HttpBounds(
        hosts=config.hosts,
        origins=config.origins,
        is_tls=config.tls_certificate is not None,
        max_bytes=config.max_message_bytes,
        max_json_bytes=config.http_max_json_bytes,
    )


def _options(config: Config) -> list[tuple[str, int]]:
    return [
        # Unasked, a second server on the port would take half of the calls, unnoticed.
        ("grpc.so_reuseport", int(config.share_port)),
        ("grpc.max_receive_message_length", config.max_message_bytes),
        ("grpc.max_concurrent_streams", config.max_streams_per_connection),
        ("grpc.max_allowed_incoming_connections", config.max_connections),
        ("grpc.max_connection_idle_ms", int(1000 * config.max_connection_idle_seconds)),
        # Clients ask every minute whether a silent call still lasts, and at once how fast a
        # connection is; by default gRPC hangs up on both.
        ("grpc.http2.min_ping_interval_without_data_ms", 30_000),
        ("grpc.http2.max_ping_strikes", 100),
        ("grpc.server_handshake_timeout_ms", int(1000 * tls.HANDSHAKE)),
    ]


def _rates(config: Config) -> Rates | None:
    per_second = config.batches_per_second
    return Rates(per_second, max(per_second, MAX_REQUEST)) if per_second else None


def _check_free(listen: str) -> None:
    """Raise `ServerFailed` where another process has one of the addresses of "host:port".

    gRPC is content with those that are left: of "localhost" with ::1, where 127.0.0.1 is taken.
    """
    host, _, port = listen.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return  # gRPC says what is wrong with it
    for family, kind, _, _, address in found:
        try:
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                detail = f"cannot listen on {listen}: {address[0]} has a server on this port"
                raise ServerFailed(detail) from None


def _bind(server: grpc.aio.Server, listen: str, certificates: tls.Certificates | None) -> int:
    try:
        if certificates is None:
            return server.add_insecure_port(listen)
        return server.add_secure_port(listen, certificates.credentials())
    except RuntimeError:
        raise ServerFailed(f"cannot listen on {listen}: is the port in use?") from None


async def serve(
    config: Config,
    on_start: Callable[[str], None],
    clock: Clock = system,
    site: MakeSite | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; call `on_start` with the address once it answers.

    `site` is that of `running`.
    """
    # Every connection is a file: the soft limit of many systems is 1024.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    async with running(config, clock, site=site) as port:
        _collect_rarely()
        _log.info("hearsay %s, revision %s, has started", version(), revision())
        on_start(f"{config.listen.rpartition(':')[0]}:{port}")
        await stop.wait()
        _log.info("stopping: no new calls, writing what waits")


def _collect_rarely() -> None:
    """Exclude objects made at startup from garbage collection, and collect less often.

    In calls under way the collector finds nothing to collect, and under load it looked at all of
    them many times a second: a tenth of the processor's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
