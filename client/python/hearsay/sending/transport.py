"""How a client reaches a server: the calls of a transport, tokens, TLS, and what can fail."""

import ipaddress
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from hearsay.trouble import Reason
from hearsay.v1 import collector_pb2
from ldp.errors import HearsayError, InvalidInput

Token = str | Callable[[], str]
"""The secret that proves to a server who calls, of printable ASCII; a function is asked at every
call. White space around it is taken off."""

_WHITE = "\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""What JavaScript's trim() takes off."""

Answer = TypeVar("Answer", bound=Message)


class Unreachable(HearsayError, ConnectionError):
    """The server did not answer, or could not.

    `retry_after` is the delay that it asked for, in seconds, 0 where it asked for none;
    `reason` is the kind of obstacle.
    """

    def __init__(
        self, message: str, retry_after: float = 0.0, reason: Reason = Reason.UNREACHABLE
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.reason = reason


@dataclass(frozen=True)
class Tls:
    """Files in PEM for TLS: the authorities to trust instead of the system's, and for a server
    that asks who calls, a certificate (chain) with its key. `authorities` may be the bytes of such
    a file as well: then they hold, whatever a file has later. `server_name` is the name to find
    in the server's certificate where it is not the host's.

    Raises `InvalidInput` where only one of the two is given.
    """

    authorities: Path | bytes | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InvalidInput("a client certificate needs its key, and a key its certificate")

    def read(self) -> list[bytes | None]:
        """Return what the files of the authorities, the key and the certificate hold.

        Raises `InvalidInput` where one cannot be read.
        """
        try:
            return [
                file if file is None or isinstance(file, bytes) else Path(file).read_bytes()
                for file in (self.authorities, self.key, self.certificate)
            ]
        except OSError as error:
            raise InvalidInput(f"cannot read a file for TLS: {error}") from None


class Transport(Protocol):
    """The calls of a device to a server. Each raises `Unreachable` where no answer comes within
    `timeout` seconds, and `InvalidInput` where the server refuses the request."""

    def get_plan(self, survey: str, timeout: float) -> collector_pb2.GetPlanResponse:
        """Return a survey's plan."""

    def submit(self, batch: collector_pb2.Batch, timeout: float) -> collector_pb2.SubmitResponse:
        """Submit a batch; return a response with the one result of the batch."""

    def forget(
        self, survey: str, period: str, ids: Sequence[bytes], timeout: float
    ) -> collector_pb2.ForgetResponse:
        """Ask the server to delete the batches with these ids, and never to take them."""

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        """Call another method, such as "Trainer/GetRound", which answers with a message of `kind`.
        A call that is made twice must be as good as one."""

    def interrupt(self) -> None:
        """End the call under way, if any, as if no answer had come. Safe from any thread."""

    def close(self) -> None:
        """Disconnect, without waiting; the next call connects again."""

    def after_fork(self, *, usable: bool) -> None:
        """Drop the parent's call in a forked child; no call was under way if `usable`."""


class ServerTransport(ABC):
    """What the transports to a real server have in common; with the rest it is a `Transport`."""

    _where: str
    """The server, in errors."""

    def get_plan(self, survey: str, timeout: float) -> collector_pb2.GetPlanResponse:
        request = collector_pb2.GetPlanRequest(survey=survey)
        return self.call("Collector/GetPlan", request, collector_pb2.GetPlanResponse, timeout)

    def submit(self, batch: collector_pb2.Batch, timeout: float) -> collector_pb2.SubmitResponse:
        request = collector_pb2.SubmitRequest(batches=[batch])
        answer = self.call("Collector/Submit", request, collector_pb2.SubmitResponse, timeout)
        return single(answer, self._where)

    def forget(
        self, survey: str, period: str, ids: Sequence[bytes], timeout: float
    ) -> collector_pb2.ForgetResponse:
        request = collector_pb2.ForgetRequest(survey=survey, period=period, ids=ids)
        return self.call("Collector/Forget", request, collector_pb2.ForgetResponse, timeout)

    def close(self) -> None:
        self.interrupt()

    @abstractmethod
    def interrupt(self) -> None: ...

    @abstractmethod
    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer: ...


class Calls(Protocol):
    """The calls of analysts and admins. Safe from several threads at once.

    A method is named as "Answers/Estimate", and `kind` is the message that it answers with. Each
    call raises `InvalidInput` with the server's words where it refuses the request, `NotReady`
    where it cannot answer it yet, `Unreachable` where it cannot be reached or fails.
    """

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        """Return the answer, which comes within `timeout` seconds."""

    def stream(
        self, method: str, request: Message, kind: type[Answer], timeout: float | None = None
    ) -> Iterator[Answer]:
        """Yield the answers, until the call ends or the iterator is closed.

        `timeout` is for all of it, in seconds.
        """

    def close(self) -> None:
        """Disconnect."""


def connect(
    target: str, *, tls: Tls | None = None, token: Token | None = None, insecure: bool = False
) -> Transport:
    """Return a transport to "host:port" or "unix:path" over gRPC, or to a URL over HTTP.

    It connects with its first call. Raises `InvalidInput` for another target, and where a file of
    `tls` cannot be read.
    """
    if is_url(target):
        from hearsay.sending.over_http import HttpTransport

        return HttpTransport(target, tls=tls, token=token, insecure=insecure)
    # Only where it is used: gRPC takes a third of the time that an import of the SDK takes.
    from hearsay.sending.over_grpc import GrpcTransport

    return GrpcTransport(target, tls=tls, token=token, insecure=insecure)


def open_calls(
    target: str, *, tls: Tls | None = None, token: Token | None = None, insecure: bool = False
) -> Calls:
    """Return the calls of an analyst or admin to a server; targets are those of `connect`."""
    if is_url(target):
        from hearsay.sending.over_http import HttpCalls

        return HttpCalls(target, tls=tls, token=token, insecure=insecure)
    from hearsay.sending.over_grpc import GrpcCalls

    return GrpcCalls(target, tls=tls, token=token, insecure=insecure)


def is_url(target: str) -> bool:
    """Tell whether a target is to be reached over HTTP."""
    return re.match("https?://", target, re.IGNORECASE) is not None


def check_tls(tls: object) -> None:
    """Raise `InvalidInput` unless this is a `Tls` or None."""
    if not (tls is None or isinstance(tls, Tls)):
        raise InvalidInput(
            f"tls must be a Tls(...), got {tls!r}; for the system's authorities leave it out, as "
            "TLS is used for any host that is not loopback, or give Tls() for loopback, too"
        )


def bearer(token: Token | None) -> str | None:
    """Return the value of the header that carries a token; None without one."""
    if token is None:
        return None
    try:
        text = token if isinstance(token, str) else token()
    except Exception as error:  # the app's own function; its words may have the token in them
        words = f"no token could be had: {type(error).__name__}"
        raise Unreachable(words, reason=Reason.BAD_TOKEN) from None
    return f"Bearer {_carried(text)}"


def check_token(token: Token | None) -> None:
    """Raise `Unreachable` for a text that no server can be sent as a token."""
    if isinstance(token, str):
        _carried(token)


def _carried(text: object) -> str:
    """Return a token without the white space that a file or a variable may have around it."""
    found = text.strip(_WHITE) if isinstance(text, str) else ""
    if not (found and found.isascii() and found.isprintable()):
        raise Unreachable("the token is not printable ASCII, or empty", reason=Reason.BAD_TOKEN)
    return found


def single(response: collector_pb2.SubmitResponse, target: str) -> collector_pb2.SubmitResponse:
    """Return the answer to one batch; raise `Unreachable` unless it has one result."""
    if len(response.results) != 1:
        raise malformed(target, f"one batch with {len(response.results)} results")
    return response


def malformed(target: str, what: str) -> Unreachable:
    """Return the error to raise for an answer that a server of ours never gives."""
    return Unreachable(f"the server at {target} answered {what}", reason=Reason.SERVER_REFUSED)


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
