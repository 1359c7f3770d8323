"""The helper's process: its doors, its shares, and the way to the collector for plans."""

import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from hearsay.sealed import shares
from hearsay.v1 import two_servers_pb2, two_servers_pb2_grpc
from hearsay_server import at_rest
from hearsay_server.build import revision, version
from hearsay_server.clock import Clock, system
from hearsay_server.config import HelperConfig
from hearsay_server.elsewhere.plans import SURVEYS, TRAININGS, Plans
from hearsay_server.elsewhere.process import Elsewhere, Service
from hearsay_server.helper.held import Shares
from hearsay_server.helper.service import Helper, check
from hearsay_server.serving import doors

_log = logging.getLogger("hearsay.helper")

SERVICE = two_servers_pb2.DESCRIPTOR.services_by_name["Helper"]


@contextlib.asynccontextmanager
async def running(config: HelperConfig, clock: Clock = system) -> AsyncIterator[int]:
    """Serve as `config` says while the context lasts; yield the port.

    Raises `InvalidInput` for an address that is not loopback without TLS, unless `insecure`, and
    where another helper has the folder; `ServerFailed` where an address cannot be bound, and
    `StorageFailed` where the folder cannot be used.
    """
    async with contextlib.AsyncExitStack() as stack:
        held = Shares(config.data, at_rest.read(config.encryption_key, config.data))
        stack.callback(held.close)
        process = Elsewhere(config, stack, SERVICE.full_name)
        ours = (held, process.collector, config.pinned)
        plans = Plans(SURVEYS, *ours, lambda p: check(held.public, shares.splitting(p)), "helper")
        trainings = Plans(TRAININGS, *ours, lambda t: check(held.public, t.splitting), "helper")
        helper = Helper(plans, trainings, held, clock, process.metrics.refused)
        add = two_servers_pb2_grpc.add_HelperServicer_to_server
        yield await process.open(Service(SERVICE, add, helper))


async def serve(config: HelperConfig, on_start: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; call `on_start` with the address once it answers."""
    stop = doors.stopping()
    async with running(config) as port:
        _log.info("hearsay helper %s, revision %s, has started", version(), revision())
        on_start(f"{config.listen.rpartition(':')[0]}:{port}")
        await stop.wait()
        _log.info("stopping: no new calls")
