"""Calls over gRPC: the transport of targets such as "host:port"."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message

from hearsay.plain import on_one_line
from hearsay.sending.channels import abandoned, channels
from hearsay.sending.connection import LARGEST, LARGEST_ANSWER
from hearsay.sending.failures import OUR_FAULT, TOLD
from hearsay.sending.grpc_failures import explained, has_no_connection, missing, retry_after
from hearsay.sending.transport import (
    Answer,
    ServerTransport,
    Tls,
    Token,
    Unreachable,
    bearer,
    check_tls,
    is_loopback,
    malformed,
)
from hearsay.trouble import Reason
from ldp.errors import InvalidInput, NotReady

_KEEP_ALIVE = [
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
]
"""Detects within 70 s that a connection died unnoticed under a long call, such as a stream."""

_IDLE = ("grpc.client_idle_timeout_ms", 300_000)
"""A connection without calls is closed after five minutes: a router on the way may have forgotten
it by then, and a server need not hold the connections of all devices."""

_ONE_THREAD = ("SingleThreadedUnaryStream", 1)
"""Calls that stream answers need no thread but the caller's. gRPC may drop this option: then they
work as well, with a thread for each call."""

_CHANNEL = [*_KEEP_ALIVE, _IDLE, ("grpc.use_local_subchannel_pool", 1)]
"""Options of a channel, which shares its connection with no other, nor across a fork."""

_PATH = "/hearsay.v1."

_SCHEMES = {"dns", "google-c2p", "ipv4", "ipv6", "unix-abstract", "vsock", "xds"}
"""Names that gRPC takes for a scheme rather than for a host's name."""


@dataclass(frozen=True)
class _Route:
    """Target and TLS of a `GrpcTransport`. Equal routes share a connection."""

    target: str
    tls: Tls | None
    insecure: bool

    def missing(self, status: Any) -> str:
        tls = self.tls is not None or not (self.insecure or is_loopback(self.target))
        certificate = self.tls is not None and self.tls.certificate is not None
        return missing(status, tls=tls, certificate=certificate)

    def open(self) -> grpc.Channel:
        return _open(self.target, self.tls, self.insecure, LARGEST, [_ONE_THREAD])


class GrpcTransport(ServerTransport):
    """The services for devices of a real server.

    The connection is made when it is needed, and shared by all transports of the process with the
    same target, TLS files and `insecure`; each call carries its own transport's `token`. One call
    at a time.
    Raises `InvalidInput` for a target as `check_target` does, and for a file that cannot be read.
    """

    def __init__(
        self,
        target: str,
        *,
        tls: Tls | None = None,
        token: Token | None = None,
        insecure: bool = False,
    ) -> None:
        check_target(target)
        if tls is not None:
            _credentials(tls)
        self._route = _Route(target, tls, insecure)
        self._where = target
        self._token = token
        self._call: Any = None  # a grpc.Call that is under way
        self._usable = True

    def interrupt(self) -> None:
        call = self._call
        if call is not None:
            call.cancel()

    def after_fork(self, *, usable: bool) -> None:
        if self._call is not None:
            abandoned.append(self._call)
        self._call = None
        self._usable = usable

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        if not self._usable:
            raise Unreachable("this process was forked in the middle of a call; others will send")
        entries = _metadata(self._token)
        try:
            shared = channels.borrow(self._route)
        except InvalidInput as error:
            raise Unreachable(str(error), reason=Reason.TLS) from None
        failed = False
        call = None
        try:
            # A call that streams its answers, of which there is one. Unlike a call with one
            # answer, another thread can end it, and it starts no thread: as a process exits,
            # Python 3.12 starts none, and a future would be waited for without an end.
            rpc: Any = shared.channel.unary_stream(_PATH + method, _serialized, kind.FromString)
            call = self._call = rpc(request, timeout=timeout, metadata=entries)
            answers: list[Answer] = list(itertools.islice(call, 2))
            call.cancel()  # does nothing unless there are more
            _finish(call)
        except grpc.RpcError as error:
            if call is not None:
                _finish(call)
            if call is not None and call.cancelled():
                raise Unreachable("the call was interrupted") from None
            failed = has_no_connection(error)
            raise self._translated(error) from None
        finally:
            self._call = None
            if call is not None:
                call.cancel()  # does nothing unless an exception came from elsewhere
            channels.give_back(shared, failed=failed)
        if len(answers) != 1:
            raise malformed(self._where, f"one request with {len(answers)} messages")
        return answers[0]

    def _translated(self, status: Any) -> Exception:
        if status.code().name in OUR_FAULT:
            return InvalidInput(on_one_line(status.details() or ""))
        return _unreachable(status, self._route)


def _finish(call: Any) -> None:
    """Read all remaining gRPC events of a call that has ended, which does not wait.

    Until then gRPC keeps the call, and with it the channel, which goes on connecting even after
    it was closed.
    """
    # No public name does this. A call that has a thread lacks the method, and does not need it.
    take_in = getattr(call, "_consume_next_event", None)
    while take_in is not None and call._state.due:
        take_in()


def check_target(target: str) -> None:
    """Raise `InvalidInput` unless a target is "host:port", "[::1]:port" or "unix:path"."""
    if re.fullmatch(r"unix:.+", target):
        return
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^][:/@\s]+):([0-9]{1,5})", target)
    if found is None or found[1] in _SCHEMES or not 1 <= int(found[2]) <= 65535:
        raise InvalidInput(
            'a target is "host:port", "[IPv6 address]:port" or "unix:path", with a port from 1 to '
            f"65535; or a URL such as https://host, which is reached over HTTP; got {target!r}"
        )


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
    channel = _open(target, tls, insecure, LARGEST_ANSWER, [])
    return channel if token is None else grpc.intercept_channel(channel, _Bearer(token))


class _Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Send a token with every call, with or without TLS."""

    def __init__(self, token: Token) -> None:
        self._token = token

    def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        entries = (*(client_call_details.metadata or ()), *_metadata(self._token))
        return continuation(client_call_details._replace(metadata=entries), request)

    intercept_unary_stream = intercept_unary_unary


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    """Read the files; raise `InvalidInput` where one cannot be read."""
    check_tls(tls)
    return grpc.ssl_channel_credentials(*tls.read())


def _open(
    target: str, tls: Tls | None, insecure: bool, largest: int, more: list[Any]
) -> grpc.Channel:
    options = [*_CHANNEL, ("grpc.max_receive_message_length", largest), *more]
    if tls is not None:
        credentials, name = _credentials(tls), tls.server_name
        override = [] if name is None else [("grpc.ssl_target_name_override", name)]
        return grpc.secure_channel(target, credentials, [*override, *options])
    if is_loopback(target):
        # A proxy of the environment must not see calls that were never to leave this machine.
        return grpc.insecure_channel(target, [("grpc.enable_http_proxy", 0), *options])
    if insecure:
        return grpc.insecure_channel(target, options)
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(), options)


def _metadata(token: Token | None) -> list[tuple[str, str]]:
    """Return the metadata that carries a token."""
    value = bearer(token)
    return [] if value is None else [("authorization", value)]


class GrpcCalls:
    """`Calls` over a channel of their own.

    A method of another service than ours is named by its path: "/grpc.health.v1.Health/Check".
    """

    def __init__(
        self,
        target: str,
        *,
        tls: Tls | None = None,
        token: Token | None = None,
        insecure: bool = False,
    ) -> None:
        """Raise as `open_channel`, and as `check_target` for the target."""
        check_target(target)
        self._route = _Route(target, tls, insecure)
        self._channel = open_channel(target, tls=tls, token=token, insecure=insecure)

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        """Return the answer, as `Calls.call` does."""
        path = method if method.startswith("/") else _PATH + method
        rpc: Any = self._channel.unary_unary(path, _serialized, kind.FromString)
        try:
            answer: Answer = rpc(request, timeout=timeout)
        except grpc.RpcError as error:
            raise self._translated(error) from error
        return answer

    def stream(
        self, method: str, request: Message, kind: type[Answer], timeout: float | None = None
    ) -> Iterator[Answer]:
        """Yield the answers, as `Calls.stream` does."""
        rpc: Any = self._channel.unary_stream(_PATH + method, _serialized, kind.FromString)
        answers = rpc(request, timeout=timeout)
        try:
            yield from answers
        except grpc.RpcError as error:
            raise self._translated(error) from error
        finally:
            answers.cancel()

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _translated(self, status: Any) -> Exception:
        """Return the exception to raise for an error of a stub, which is a Call as well."""
        words = on_one_line(status.details() or "", TOLD)
        if status.code() is grpc.StatusCode.FAILED_PRECONDITION:
            return NotReady(words)
        if status.code().name in OUR_FAULT:
            return InvalidInput(words)
        return _unreachable(status, self._route)


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


def _unreachable(status: Any, route: _Route) -> Unreachable:
    """Return the exception to raise where a server could not be reached, or fails."""
    reason, words = explained(status, route.target)
    return Unreachable(words + route.missing(status), retry_after(status), reason)
