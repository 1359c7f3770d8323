"""The doors of a process of another operator: gRPC and HTTP, health, metrics and its tokens."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2_grpc

from hearsay.sending.transport import Calls, Tls, open_calls
from hearsay_server import private
from hearsay_server.config import ElsewhereConfig
from hearsay_server.serving import descriptors, doors, tls, tracing
from hearsay_server.serving.auth import Policy
from hearsay_server.serving.gate import Gate
from hearsay_server.serving.grpc_door import GrpcDoor
from hearsay_server.serving.guard import FOR_EVERYBODY, Guard
from hearsay_server.serving.health import Health
from hearsay_server.serving.http.app import App
from hearsay_server.serving.metrics import Metrics, exposed
from hearsay_server.storage import tokens
from hearsay_server.storage.database import open_database

Application = Callable[..., Awaitable[None]]
"""An ASGI application."""

_log = logging.getLogger("hearsay.server")


@dataclass(frozen=True)
class Service:
    """A service of gRPC: its descriptor, what adds it to a server, and its servicer."""

    descriptor: ServiceDescriptor
    add: Callable[[Any, grpc.aio.Server], None]
    servicer: Any


class Elsewhere:
    """A process of another operator as it starts: its metrics, its health, and the way to the
    collector. `stack` unwinds it."""

    def __init__(self, config: ElsewhereConfig, stack: AsyncExitStack, service: str) -> None:
        """Open what the process needs; raise `StorageFailed` where the folder cannot be used."""
        self._config = config
        self._stack = stack
        self.metrics = Metrics()
        self.metrics.ready.set(1)
        self.healthy = Health([service])
        self._database = open_database(config.data)
        stack.callback(self._database.close)
        private.warn(_log, config.data)
        private.warn_of_secrets(_log, [config.tls_key, config.encryption_key])
        stack.push_async_callback(doors.threads_ended)  # they use it, and what was opened before
        self.collector: Calls = open_calls(
            config.collector,
            tls=Tls(authorities=config.collector_ca) if config.collector_ca else None,
            token=config.collector_token or None,
            insecure=config.collector_insecure,
        )
        stack.callback(self.collector.close)

    async def committed(self, error: Exception | None) -> None:
        """Tell those who ask for readiness whether the last commit went well."""
        self.metrics.ready.set(error is None)
        if self.healthy.is_ready() != (error is None):
            await self.healthy.ready(error is None)

    async def open(
        self,
        service: Service,
        around: Callable[[App], Application] | None = None,
    ) -> int:
        """Open the doors; return the port. `around` returns what answers HTTP in the place of the
        usual application.

        Raises `InvalidInput` for an address that is not loopback without TLS, unless `insecure`,
        and `ServerFailed` where an address cannot be bound.
        """
        config, stack = self._config, self._stack
        certificates = tls.certificates(config)
        policy = Policy(
            tokens.Tokens(self._database),
            loopback=doors.on_loopback(config, certificates),
            require_device_token=config.require_device_token,
        )
        spans = await stack.enter_async_context(tracing.exported(config.traces))
        guard = Guard(policy, self.metrics, spans, config.max_open_calls, config.max_upload_seconds)

        def add(server: grpc.aio.Server) -> None:
            service.add(service.servicer, server)
            health_pb2_grpc.add_HealthServicer_to_server(self.healthy, server)

        calls = 2 * (config.max_open_calls + FOR_EVERYBODY)
        opened = GrpcDoor([Gate(guard)], doors.options(config), calls, add)
        doors.show_end(certificates, self.metrics)
        await stack.enter_async_context(descriptors.watched(self.metrics))
        metrics_port = stack.enter_context(exposed(self.metrics, config.metrics))
        if metrics_port is not None:
            _log.info("metrics on port %d", metrics_port)
        doors.check_free(config.listen)
        port = await opened.open(config.listen, certificates)
        closing: list[doors.Close] = [opened.close]
        stack.push_async_callback(doors.close, closing)
        if config.http:
            from hearsay_server.serving.http.listening import Door

            services = {service.descriptor: service.servicer}
            bounds = doors.http_bounds(config)
            registry = self.metrics.registry
            app = App(services, guard, bounds, self.healthy.is_ready, registry, None)
            door = Door(app if around is None else around(app), config)
            closing.append(door.close)
            context = certificates.context() if certificates else None
            _log.info("HTTP on port %d", await door.open(config.http, context, False))
        stack.push_async_callback(self.healthy.stop)
        return port
