"""Reasons why a call failed, from its gRPC status."""

import re
from typing import Any

import grpc

from hearsay.trouble import Reason

_RETRY_AFTER = "retry-after-ms"

_TOLD = 300
"""Characters of a server's error message that are passed on."""

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
    ("Connection refused|No such file", Reason.UNREACHABLE, "nothing listens at {}"),
    (_CLOSED, Reason.UNREACHABLE, "{} closed the connection before it answered"),
    ("HTTP/2", Reason.UNREACHABLE, "{} does not speak gRPC"),
    ("", Reason.UNREACHABLE, "{} cannot be reached"),
)
"""Patterns in gRPC's message for a missing connection, with their meaning; the first counts."""


def on_one_line(words: str) -> str:
    """Return a server's message for a log or a person: cut short, and on one line."""
    return "".join(c if c.isprintable() else " " for c in words[:_TOLD])


def missing(status: Any, *, tls: bool, certificate: bool) -> str:
    """Return what a server that closed the connection may miss, to be appended; "" otherwise.

    `tls` tells whether the client spoke TLS, `certificate` whether it gave one of its own.
    """
    details = status.details() or ""
    if not re.match(_CONNECTING, details) or not re.search(_CLOSED, details):
        return ""
    if certificate:
        return "; it may not trust the client certificate: is it of the server's tls_client_ca?"
    mine = "a client certificate: give Tls(certificate=, key=), or --certificate and --key"
    return (
        f"; it may ask for {mine}" if tls else f"; it may expect TLS (Tls(), or --ca), and {mine}"
    )


def explained(status: Any, target: str) -> tuple[Reason, str]:
    """Return the reason why a call to a target failed, and an explanation on one line.

    `status` is an error of a stub, which is a `grpc.Call` as well.
    """
    code, details = status.code(), status.details() or ""
    told = on_one_line(details)
    server = f"the server at {target}"
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return Reason.BAD_TOKEN, f"{server} does not accept the token, or asks for one: {told}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Reason.UNREACHABLE, f"{server} did not answer in time"
    if code is grpc.StatusCode.CANCELLED:
        return Reason.UNREACHABLE, f"the call to {server} was ended"
    if code is grpc.StatusCode.UNAVAILABLE:
        if re.match(_CONNECTING, details):
            reason, words = next(
                (reason, words)
                for pattern, reason, words in _FAILURES
                if re.search(pattern, details)
            )
            return reason, words.format(target)
        # A server that asks for patience has answered, and so has a proxy with a status of HTTP.
        answered = any(key == _RETRY_AFTER for key, _ in status.trailing_metadata() or ())
        if not answered and "http2 header" not in details:
            return Reason.UNREACHABLE, f"{server} is not available: {told}"
    return Reason.SERVER_REFUSED, f"{server} refuses for now: {told} ({code.name})"


def has_no_connection(status: Any) -> bool:
    """Tell whether a call failed for want of a connection, or on one that may be dead."""
    if status.code() is grpc.StatusCode.UNAVAILABLE:
        return re.match(_CONNECTING, status.details() or "") is not None
    return status.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def retry_after(status: Any) -> float:
    """Return the seconds to wait that a server asks for in its trailing metadata, or 0."""
    for key, value in status.trailing_metadata() or ():
        # No more digits than a sane delay has: the server is not trusted, and int() may raise.
        if key == _RETRY_AFTER and re.fullmatch("[0-9]{1,10}", str(value)):
            return min(int(value) / 1000, 3600.0)
    return 0.0
