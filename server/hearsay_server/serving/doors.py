"""The doors of a process that serves: what it listens on, within which limits, and how it stops."""

import asyncio
import errno
import math
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Iterable

from hearsay.sending.transport import is_loopback
from hearsay_server.config import Process
from hearsay_server.limits import Rates
from hearsay_server.serving import tls
from hearsay_server.serving.http.app import Bounds
from hearsay_server.serving.metrics import Metrics
from hearsay_server.storage.writer import MAX_REQUEST
from ldp.errors import InvalidInput, ServerFailed

Close = Callable[[float], Awaitable[None]]

_GRACE = 10.0
"""Seconds that calls under way may take to end once the process stops."""


def on_loopback(config: Process, certificates: tls.Certificates | None) -> bool:
    """Tell whether the process listens on loopback alone.

    Raises `InvalidInput` where it does not, and has no TLS and is not `insecure`.
    """
    addresses = [address for address in (config.listen, config.http) if address]
    open_to_others = [address for address in addresses if not is_loopback(address)]
    if open_to_others and certificates is None and not config.insecure:
        raise InvalidInput(
            f"{open_to_others[0]} is not loopback: set tls_certificate and tls_key, listen on "
            "127.0.0.1 behind a proxy that has them, or pass --insecure on a network you trust"
        )
    return not open_to_others


async def close(doors: Iterable[Close]) -> None:
    """Close all doors at once; calls under way have `_GRACE` seconds to end."""
    await asyncio.gather(*(close(_GRACE) for close in doors))


async def threads_ended() -> None:
    """Wait for the threads of `asyncio.to_thread`, whose tasks may be cancelled; the loop takes no
    work for threads any more."""
    await asyncio.get_running_loop().shutdown_default_executor()


def http_bounds(config: Process) -> Bounds:
    """Return the bounds of the HTTP door."""
    return Bounds(
        hosts=config.hosts,
        origins=config.origins,
        is_tls=config.tls_certificate is not None,
        max_bytes=config.max_message_bytes,
        max_json_bytes=config.http_max_json_bytes,
    )


def options(config: Process, *, share_port: bool = False) -> list[tuple[str, int]]:
    """Return the options of a gRPC server."""
    return [
        # Unasked, a second server on the port would take half of the calls, unnoticed.
        ("grpc.so_reuseport", int(share_port)),
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


def rates(config: Process) -> Rates | None:
    """Return the rates of tokens, None where there is no limit."""
    per_second = config.batches_per_second
    return Rates(per_second, max(per_second, MAX_REQUEST)) if per_second else None


def check_free(listen: str) -> None:
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


def show_end(certificates: tls.Certificates | None, metrics: Metrics) -> None:
    """Let a metric say when the certificate in use ends."""
    if certificates is not None:
        ends = certificates.ends
        metrics.certificate_end.set_function(
            lambda: at.timestamp() if (at := ends()) is not None else math.nan
        )


def stopping() -> asyncio.Event:
    """Allow as many open files as the system does; return an event that SIGTERM and SIGINT set."""
    # Every connection is a file: the soft limit of many systems is 1024.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    return stop
