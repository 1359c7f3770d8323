"""The shuffler's process: its doors, its pools, and the way to the collector."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import prometheus_client as prometheus

from hearsay.sealed import oblivious, records
from hearsay.v1 import shuffler_pb2, shuffler_pb2_grpc
from hearsay_server import at_rest
from hearsay_server.build import revision, version
from hearsay_server.clock import Clock, system
from hearsay_server.config import ShufflerConfig
from hearsay_server.elsewhere.plans import SURVEYS, Plans
from hearsay_server.elsewhere.process import Elsewhere, Service
from hearsay_server.serving import doors
from hearsay_server.serving.http.app import App
from hearsay_server.shuffler.forwarding import Forwarding
from hearsay_server.shuffler.gateway import Gateway
from hearsay_server.shuffler.pools import Pools
from hearsay_server.shuffler.service import Intake, Shuffler

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
    async with contextlib.AsyncExitStack() as stack:
        pools = Pools(config.data, at_rest.read(config.encryption_key, config.data))
        stack.callback(pools.close)
        process = Elsewhere(config, stack, SERVICE.full_name)
        metrics = process.metrics
        plans = Plans(SURVEYS, pools, process.collector, config.pinned, records.check, "shuffler")
        intake = Intake(pools, clock, process.committed)
        stack.push_async_callback(intake.close)
        shuffler = Shuffler(plans, intake, doors.rates(config), clock, metrics.refused)
        add = shuffler_pb2_grpc.add_ShufflerServicer_to_server
        around = _gateway(config, pools) if config.ohttp else None
        port = await process.open(Service(SERVICE, add, shuffler), around)
        moved = prometheus.Counter(
            "hearsay_shuffled",
            "Sealed records that left, by what became of them.",
            ["outcome"],
            registry=metrics.registry,
        )
        forwarding = Forwarding(pools, plans, process.collector, clock, moved)
        task = asyncio.create_task(forwarding.run(config.check_seconds))
        stack.push_async_callback(_ended, forwarding, task)
        yield port


def _gateway(config: ShufflerConfig, pools: Pools) -> Callable[[App], Gateway]:
    """Return what sets a gateway before the application; make its first key if there is none."""
    oblivious.check()
    if not pools.keys():
        pools.new_key()
    found = pools.keys()
    return lambda app: Gateway(app, found, config)


async def _ended(forwarding: Forwarding, task: "asyncio.Task[None]") -> None:
    """Stop forwarding; a thread of the task may have calls under way still."""
    forwarding.stop()
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
