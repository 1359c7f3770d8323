"""The server process: services, who may call them, and a stop that drains."""

import asyncio
import contextlib
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator

import grpc
import prometheus_client as prometheus
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from hearsay.sending.transport import Tls, open_calls
from hearsay.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    analyst_pb2,
    analyst_pb2_grpc,
    attestation_pb2,
    attestation_pb2_grpc,
    collector_pb2,
    collector_pb2_grpc,
    shuffler_pb2,
    shuffler_pb2_grpc,
    trainer_pb2,
    trainer_pb2_grpc,
)
from hearsay_server import at_rest, private
from hearsay_server.build import revision, version
from hearsay_server.clock import Clock, system
from hearsay_server.config import Config
from hearsay_server.ingest.intake import Limits
from hearsay_server.serving import attesters, descriptors, doors, tls, tracing
from hearsay_server.serving.admin import Admin
from hearsay_server.serving.aggregating import Rounds
from hearsay_server.serving.analyses import Analyses, Bounds
from hearsay_server.serving.analyst import Analyst
from hearsay_server.serving.attestation import Attestation
from hearsay_server.serving.auth import ROLES, Policy
from hearsay_server.serving.collector import Collector
from hearsay_server.serving.gate import Gate
from hearsay_server.serving.grpc_door import GrpcDoor
from hearsay_server.serving.guard import FOR_EVERYBODY, Guard
from hearsay_server.serving.health import Health, Readiness, prober
from hearsay_server.serving.helping import Helping
from hearsay_server.serving.http.app import App
from hearsay_server.serving.inside import Inside, MakeSite
from hearsay_server.serving.metrics import Metrics, exposed
from hearsay_server.serving.minutes import Minutes
from hearsay_server.serving.sealed import SealedCollector
from hearsay_server.serving.summing import Summing
from hearsay_server.serving.trainer import Trainer
from hearsay_server.serving.visits import Visits
from hearsay_server.storage import key_material, tokens
from hearsay_server.storage.retention import swept
from hearsay_server.storage.store import Store
from hearsay_server.storage.writer import Writer

_log = logging.getLogger("hearsay.server")

_SERVICES = [name for name in ROLES if name not in ("hearsay.v1.Shuffler", "hearsay.v1.Helper")]
"""The services of this process; a shuffler and a helper are others."""

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
    without TLS, unless `insecure`, and where the certificate or the key of key material cannot be
    used; `ServerFailed` where an address cannot be bound; and as `open_database` where the folder
    cannot be used.
    """
    certificates = tls.certificates(config)
    loopback = doors.on_loopback(config, certificates)
    metrics = Metrics()
    doors.show_end(certificates, metrics)
    async with contextlib.AsyncExitStack() as stack:  # unwinds in reverse, whatever fails
        store = Store(config.where, at_rest.read(config.encryption_key, config.where))
        stack.callback(store.close)
        if not config.database:
            private.warn(_log, config.data)
        private.warn_of_secrets(_log, [config.tls_key, config.encryption_key])
        for lost in key_material.encrypt(store.database):
            _log.error("encryption_key does not hold the key of %s", lost)
        stack.push_async_callback(doors.threads_ended)  # they use the store
        known = tokens.Tokens(store.database)
        if loopback and not known.any():
            _log.warning(
                "no token was ever made: whoever reaches %s may ask and register anything, until "
                "`hearsay token create` makes one",
                " and ".join(address for address in (config.listen, config.http) if address),
            )
        healthy = Health(_SERVICES)
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
        rates = doors.rates(config)
        collector = Collector(store, writer, metrics, limits, rates, clock)
        sealed = SealedCollector(store, writer, metrics, clock)
        evident = Attestation(store, attesters.attester(config.attestation), certificates, clock)
        bounds = Bounds(config.analysis_seconds, config.analysis_memory_mib << 20)
        cores = max(2, (os.cpu_count() or 1) // 2)
        analyses = Analyses("analysis", cores, _ANALYSES, bounds, metrics)
        stack.callback(analyses.close)
        exports = Analyses("export", _EXPORTS, _EXPORTS, bounds, metrics)
        stack.callback(exports.close)
        watched = Analyses("watch", 1, 0, bounds, metrics)
        stack.callback(watched.close)
        analyst = Analyst(store, analyses, exports, watched, clock)
        stack.callback(analyst.close)
        helper = stack.enter_context(_helper(config))
        rounds = Rounds(store.database, writer, metrics, clock, helper)
        changed, visits = rounds.changed, Visits()
        trainer = Trainer(
            store.database, writer, metrics, rates, clock, counted=changed, visits=visits
        )
        admin = Admin(
            store,
            writer,
            clock,
            changed=changed,
            ended=rounds.ended,
            draw=draw,
            visits=visits,
            helper=helper,
        )

        def add(server: grpc.aio.Server) -> None:
            collector_pb2_grpc.add_CollectorServicer_to_server(collector, server)
            shuffler_pb2_grpc.add_SealedCollectorServicer_to_server(sealed, server)
            attestation_pb2_grpc.add_AttestationServicer_to_server(evident, server)
            analyst_pb2_grpc.add_AnswersServicer_to_server(analyst, server)
            trainer_pb2_grpc.add_TrainerServicer_to_server(trainer, server)
            admin_pb2_grpc.add_AdminServicer_to_server(admin, server)
            health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
            names = (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, server)

        options = doors.options(config, share_port=config.share_port)
        calls = 2 * (config.max_open_calls + FOR_EVERYBODY)
        opened = GrpcDoor([Gate(guard)], options, calls, add)
        await stack.enter_async_context(descriptors.watched(metrics))
        metrics_port = stack.enter_context(exposed(metrics, config.metrics))
        if metrics_port is not None:
            _log.info("metrics on port %d", metrics_port)
        if not config.share_port:
            doors.check_free(config.listen)
        services = {
            collector_pb2.DESCRIPTOR.services_by_name["Collector"]: collector,
            trainer_pb2.DESCRIPTOR.services_by_name["Trainer"]: trainer,
            shuffler_pb2.DESCRIPTOR.services_by_name["SealedCollector"]: sealed,
            attestation_pb2.DESCRIPTOR.services_by_name["Attestation"]: evident,
            analyst_pb2.DESCRIPTOR.services_by_name["Answers"]: analyst,
            admin_pb2.DESCRIPTOR.services_by_name["Admin"]: admin,
        }
        port = await opened.open(config.listen, certificates)
        closing: list[doors.Close] = [opened.close]
        stack.push_async_callback(doors.close, closing)
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
                doors.http_bounds(config),
                healthy.is_ready,
                metrics.registry,
                site(inside) if site else None,
            )
            door = Door(app, config)
            closing.append(door.close)
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
        if helper is not None:
            leading = _summing(helper, config.helper_seconds, store, metrics, clock)
            await stack.enter_async_context(leading)
        yield port


@contextlib.contextmanager
def _helper(config: Config) -> Iterator[Helping | None]:
    """Reach the configured helper while the context lasts; None where there is none."""
    if not config.helper:
        yield None
        return
    calls = open_calls(
        config.helper,
        tls=Tls(authorities=config.helper_ca) if config.helper_ca else None,
        token=config.helper_token or None,
        insecure=config.helper_insecure,
    )
    try:
        yield Helping(calls)
    finally:
        calls.close()


@contextlib.asynccontextmanager
async def _summing(
    helper: Helping, every: float, store: Store, metrics: Metrics, clock: Clock
) -> AsyncIterator[None]:
    """Lead two servers while the context lasts: sum records with the helper."""
    counted = prometheus.Counter(
        "hearsay_summed",
        "Records that are split between two servers, by what became of them.",
        ["outcome"],
        registry=metrics.registry,
    )
    summing = Summing(store.database, store.plans.known, helper, clock, counted)
    task = asyncio.create_task(summing.run(every))
    try:
        yield
    finally:
        summing.stop()  # a thread of the task may have a call under way still
        task.cancel()
        await asyncio.wait((task,))


async def serve(
    config: Config,
    on_start: Callable[[str], None],
    clock: Clock = system,
    site: MakeSite | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; call `on_start` with the address once it answers.

    `site` is that of `running`.
    """
    stop = doors.stopping()
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
