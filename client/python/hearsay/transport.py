"""How a client reaches a server."""

import ipaddress
from typing import Any, Protocol, TypeVar

import grpc

from ldp import InvalidInput

_Request = TypeVar("_Request", contravariant=True)
_Response = TypeVar("_Response", covariant=True)

_OUR_FAULT = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
}


class Unreachable(ConnectionError):
    """The server did not answer, or could not."""


class _Rpc(Protocol[_Request, _Response]):
    def __call__(self, request: _Request, *, timeout: float) -> _Response: ...


def open_channel(target: str, *, insecure: bool = False, token: str | None = None) -> grpc.Channel:
    """Open a channel to "host:port" or "unix:path": with TLS unless the host is loopback.

    `insecure` forgoes TLS for any host; then whoever is on the path can read and forge batches,
    and use the `token` that goes with every call.
    """
    channel = _open(target, insecure)
    return channel if token is None else grpc.intercept_channel(channel, _Bearer(token))


class _Bearer(grpc.UnaryUnaryClientInterceptor):
    """Send a token with every call, with or without TLS."""

    def __init__(self, token: str) -> None:
        self._entry = ("authorization", f"Bearer {token}")

    def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        metadata = (*(client_call_details.metadata or ()), self._entry)
        return continuation(client_call_details._replace(metadata=metadata), request)


def _open(target: str, insecure: bool) -> grpc.Channel:
    if is_loopback(target):
        # A proxy of the environment must not see what was never to leave this machine.
        return grpc.insecure_channel(target, [("grpc.enable_http_proxy", 0)])
    if insecure:
        return grpc.insecure_channel(target)
    return grpc.secure_channel(target, grpc.ssl_channel_credentials())


def is_loopback(target: str) -> bool:
    """Tell whether "host:port" or "unix:path" stays on this machine."""
    if target.startswith("unix:"):
        return True
    host = target.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def call(rpc: _Rpc[_Request, _Response], request: _Request, timeout: float) -> _Response:
    """Call once, and tell what is the caller's to mend from what is not.

    Raises `InvalidInput` with the server's words where it refuses the request, `Unreachable`
    where it cannot be reached or fails.
    """
    try:
        return rpc(request, timeout=timeout)
    except grpc.RpcError as error:
        status: Any = error  # what a stub raises is a Call as well
        if status.code() in _OUR_FAULT:
            raise InvalidInput(status.details()) from None
        raise Unreachable(f"{status.code().name}: {status.details()}") from error
