"""Reasons why a call over gRPC failed, from its status."""

import re
from typing import Any

import grpc

from hearsay.sending import failures
from hearsay.trouble import Reason

_CONNECTING = "failed to connect|errors resolving|DNS resolution failed"
"""Beginnings of gRPC's messages for a missing connection."""

_CLOSED = "Socket closed|Connection reset"
"""All that gRPC says where a server misses a client certificate or does not trust it."""

_FAILURES = (
    (
        "errors resolving|DNS resolution failed",
        Reason.NAME_NOT_FOUND,
        "the host name in {} does not resolve",
    ),
    ("WRONG_VERSION_NUMBER", Reason.TLS, "{} does not speak TLS"),
    ("CERTIFICATE_VERIFY_FAILED", Reason.TLS, "the certificate of {} is not trusted"),
    ("(?i)hostname verification|peer name", Reason.TLS, "the certificate of {} has another name"),
    ("(?i)handshake", Reason.TLS, "no secure connection to {} could be made"),
    ("Connection refused|No such file", Reason.UNREACHABLE, f"{failures.NO_SERVER} {{}}"),
    (_CLOSED, Reason.UNREACHABLE, "{} closed the connection before it answered"),
    ("HTTP/2|http1", Reason.UNREACHABLE, "{} does not speak gRPC"),
    ("", Reason.UNREACHABLE, "{} cannot be reached"),
)
"""Patterns in gRPC's message for a missing connection, with their meaning; the first counts."""


def missing(status: Any, *, tls: bool, certificate: bool) -> str:
    """Return what a server that closed the connection may miss, to be appended; "" otherwise.

    `tls` tells whether the client spoke TLS, `certificate` whether it gave one of its own.
    """
    details = status.details() or ""
    if not re.match(_CONNECTING, details) or not re.search(_CLOSED, details):
        return ""
    if certificate:
        return f"; {failures.MISTRUSTS}"
    if tls:
        return f"; it may ask for {failures.ASKS}"
    return f"; it may expect TLS (Tls(), or --ca), and {failures.ASKS}"


def explained(status: Any, target: str) -> tuple[Reason, str]:
    """Return the reason why a call to a target failed, and an explanation on one line.

    `status` is an error of a stub, which is a `grpc.Call` as well.
    """
    details = status.details() or ""
    code = status.code()
    if code is grpc.StatusCode.UNAVAILABLE and re.match(_CONNECTING, details):
        reason, words = next(
            (reason, words) for pattern, reason, words in _FAILURES if re.search(pattern, details)
        )
        return reason, words.format(target)
    # A server that asks for patience has answered, and so has a proxy with a status of HTTP.
    asked = any(key == failures.RETRY_AFTER for key, _ in status.trailing_metadata() or ())
    answered = asked or "http2 header" in details
    return failures.explained(code.name, details, target, answered=answered)


def has_no_connection(status: Any) -> bool:
    """Tell whether a call failed for want of a connection, or on one that may be dead."""
    if status.code() is grpc.StatusCode.UNAVAILABLE:
        return re.match(_CONNECTING, status.details() or "") is not None
    return status.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def retry_after(status: Any) -> float:
    """Return the seconds to wait that a server asks for in its trailing metadata, or 0."""
    for key, value in status.trailing_metadata() or ():
        if key == failures.RETRY_AFTER:
            return failures.delay(str(value))
    return 0.0
