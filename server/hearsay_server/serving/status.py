"""The end of a call with a status, whichever door it came through; the names of health checks."""

import grpc

from hearsay_server.limits import TooMany
from ldp.errors import HearsayError

LIVE = "live"
"""The service whose health is that of the process alone."""

MENDED = 5.0
"""Seconds after which to look whether a disk or a database that failed is mended."""

_MOST = 2000
"""Most bytes of an error's detail; gRPC may write three for each."""

HTTP_STATUS = {
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.UNAUTHENTICATED: 401,
}
"""HTTP's status by ours, as Connect has them; 500 for the others."""


class Ended(HearsayError):
    """A call ends with a status that its caller is told."""

    def __init__(
        self, code: grpc.StatusCode, detail: str, retry_after: float | None = None
    ) -> None:
        """End with a code and a detail; the call may come again after `retry_after` seconds."""
        super().__init__(shortened(detail))
        self.code = code
        self.retry_after = retry_after


def passing(error: TooMany) -> Ended:
    """Return the end of a call that comes above a limit, and may come again."""
    return Ended(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error), error.retry_after)


def shortened(detail: str) -> str:
    """Shorten a detail, which may quote a long input: clients take a few kilobytes of a status."""
    data = detail.encode()
    if len(data) <= _MOST:
        return detail
    return data[:_MOST].decode(errors="ignore") + "..."


def no_survey(name: str) -> Ended:
    """Return the end of a call that names an unknown survey."""
    return Ended(grpc.StatusCode.NOT_FOUND, f"there is no survey {name!r} here")


def unreadable() -> Ended:
    """Return the end of a call with a message of another type; a parser's error would quote it."""
    detail = "the message is not of the type that this method takes"
    return Ended(grpc.StatusCode.INVALID_ARGUMENT, detail)
