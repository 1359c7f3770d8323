"""How a client reaches a server."""

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc

from hearsay.v1 import collector_pb2, collector_pb2_grpc
from ldp import InvalidInput

_Request = TypeVar("_Request", contravariant=True)
_Response = TypeVar("_Response", covariant=True)

_OUR_FAULT = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
}

_KEEP_ALIVE = [
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
]
"""A connection that died unnoticed under a long call, as a stream is, is found out within 70 s."""

_CHANNEL = [*_KEEP_ALIVE, ("grpc.use_local_subchannel_pool", 1)]
"""A channel shares its connection with no other: not with that of the process it forked from."""

_abandoned: list[grpc.Channel] = []
"""Channels of a parent process. Closing them, before the fork or here, makes gRPC shut down while
the process forks, and the child's calls hang."""

Token = str | Callable[[], str]
"""What proves to the server who calls; a function is asked at every call."""


class Unreachable(ConnectionError):
    """The server did not answer, or could not; `retry_after` is when it asked to be asked again,
    in seconds, 0 where it said nothing."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Tls:
    """Files in PEM for TLS: the authorities to trust instead of the system's, and for a server
    that asks who calls, a certificate (chain) with its key. `server_name` is the name to find
    in the server's certificate where it is not the host's.

    Raises `InvalidInput` where only one of the two is given.
    """

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InvalidInput("a client certificate needs its key, and a key its certificate")

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files; raise `InvalidInput` where one cannot be read."""
        try:
            contents = [
                None if file is None else Path(file).read_bytes()
                for file in (self.authorities, self.key, self.certificate)
            ]
        except OSError as error:
            raise InvalidInput(f"cannot read a file for TLS: {error}") from None
        return grpc.ssl_channel_credentials(*contents)


class _Rpc(Protocol[_Request, _Response]):
    def __call__(self, request: _Request, *, timeout: float) -> _Response: ...


class Transport(Protocol):
    """What the sender needs of a server. Every call raises `Unreachable` where no answer comes
    within `timeout` seconds, and `InvalidInput` where the server refuses the request."""

    def get_plan(self, survey: str, timeout: float) -> bytes:
        """Return the bytes of a survey's plan."""

    def submit(self, batch: collector_pb2.Batch, timeout: float) -> collector_pb2.Result:
        """Hand over a batch; return what became of it."""

    def forget(self, survey: str, period: str, ids: Sequence[bytes], timeout: float) -> None:
        """Ask that batches be deleted, and never be taken."""

    def interrupt(self) -> None:
        """End the call under way, if any, as if no answer had come. Safe from any thread."""

    def close(self) -> None:
        """Disconnect; the next call connects again."""

    def after_fork(self, *, usable: bool) -> None:
        """Forget, in the child, what belongs to the parent; no call was under way if `usable`."""


class GrpcTransport:
    """The Collector service of a real server, over one connection that is made when needed."""

    def __init__(
        self,
        target: str,
        *,
        tls: Tls | None = None,
        token: Token | None = None,
        insecure: bool = False,
    ) -> None:
        self._open: Callable[[], grpc.Channel] = lambda: open_channel(
            target, tls=tls, insecure=insecure
        )
        self._token = token
        self._channel: grpc.Channel | None = None
        self._call: Any = None  # a grpc.Future that is under way
        self._usable = True

    def get_plan(self, survey: str, timeout: float) -> bytes:
        request = collector_pb2.GetPlanRequest(survey=survey)
        return bytes(self._run("GetPlan", request, timeout).plan)

    def submit(self, batch: collector_pb2.Batch, timeout: float) -> collector_pb2.Result:
        request = collector_pb2.SubmitRequest(batches=[batch])
        results = self._run("Submit", request, timeout).results
        if len(results) != 1:
            raise Unreachable(f"the server answered one batch with {len(results)} results")
        result: collector_pb2.Result = results[0]
        return result

    def forget(self, survey: str, period: str, ids: Sequence[bytes], timeout: float) -> None:
        request = collector_pb2.ForgetRequest(survey=survey, period=period, ids=ids)
        self._run("Forget", request, timeout)

    def interrupt(self) -> None:
        call = self._call
        if call is not None:
            call.cancel()

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def after_fork(self, *, usable: bool) -> None:
        if self._channel is not None:
            _abandoned.append(self._channel)
        self._channel = self._call = None
        self._usable = usable

    def _run(self, name: str, request: Any, timeout: float) -> Any:
        if not self._usable:
            raise Unreachable("this process was forked in the middle of a call; others will send")
        if self._channel is None:
            self._channel = self._open()
        rpc = getattr(collector_pb2_grpc.CollectorStub(self._channel), name)

        def run(request: Any, *, timeout: float) -> Any:
            # A future, because only that can be ended by another thread.
            self._call = rpc.future(request, timeout=timeout, metadata=metadata(self._token))
            try:
                return self._call.result()
            except grpc.FutureCancelledError as error:
                raise Unreachable("the call was interrupted") from error
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    # The connection may have died unnoticed: have another one. The old one is
                    # closed afterwards, so that it is never the last, and gRPC does not shut down.
                    old, self._channel = self._channel, self._open()
                    if old is not None:
                        old.close()
                raise
            finally:
                self._call = None

        return call(run, request, timeout)


def open_channel(
    target: str,
    *,
    tls: Tls | None = None,
    token: Token | None = None,
    insecure: bool = False,
) -> grpc.Channel:
    """Open a channel to "host:port" or "unix:path": with TLS unless the host is loopback.

    `tls` speaks it on loopback too. `insecure` forgoes TLS for any host; then whoever is on the
    path can read and forge batches, and use the `token`, which goes with every call.
    Raises `InvalidInput` where a file of `tls` cannot be read.
    """
    channel = _open(target, tls, insecure)
    return channel if token is None else grpc.intercept_channel(channel, _Bearer(token))


class _Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Send a token with every call, with or without TLS."""

    def __init__(self, token: Token) -> None:
        self._token = token

    def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        entries = (*(client_call_details.metadata or ()), *metadata(self._token))
        return continuation(client_call_details._replace(metadata=entries), request)

    intercept_unary_stream = intercept_unary_unary


def _open(target: str, tls: Tls | None, insecure: bool) -> grpc.Channel:
    if tls is not None:
        name = tls.server_name
        override = [] if name is None else [("grpc.ssl_target_name_override", name)]
        return grpc.secure_channel(target, tls.credentials(), [*override, *_CHANNEL])
    if is_loopback(target):
        # A proxy of the environment must not see what was never to leave this machine.
        return grpc.insecure_channel(target, [("grpc.enable_http_proxy", 0), *_CHANNEL])
    if insecure:
        return grpc.insecure_channel(target, _CHANNEL)
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(), _CHANNEL)


def metadata(token: Token | None) -> list[tuple[str, str]]:
    """Return the metadata that carries a token."""
    if token is None:
        return []
    try:
        text = token if isinstance(token, str) else token()
    except Exception as error:  # the app's own function; its words may have the token in them
        raise Unreachable(f"no token could be had: {type(error).__name__}") from None
    return [("authorization", f"Bearer {text}")]


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
        raise _translated(error) from error


def stream(rpc: Any, request: Any, timeout: float | None = None) -> Iterator[Any]:
    """Yield what a call that streams answers, until it ends or the iterator is closed.

    `timeout` is for all of it. Raises as `call`.
    """
    answers = rpc(request, timeout=timeout)
    try:
        yield from answers
    except grpc.RpcError as error:
        raise _translated(error) from error
    finally:
        answers.cancel()


def _translated(status: Any) -> Exception:
    """Return what to raise for an error of a stub, which is a Call as well."""
    if status.code() in _OUR_FAULT:
        return InvalidInput(status.details())
    return Unreachable(f"{status.code().name}: {status.details()}", _retry_after(status))


def _retry_after(status: Any) -> float:
    """Return the seconds that a server asks to wait, in its trailing metadata."""
    for key, value in status.trailing_metadata() or ():
        # No more digits than a sane delay has: the server is not trusted, and int() may raise.
        if key == "retry-after-ms" and re.fullmatch("[0-9]{1,10}", str(value)):
            return min(int(value) / 1000, 3600.0)
    return 0.0
