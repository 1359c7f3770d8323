"""Reasons why a call failed, in the words of both transports."""

import re

from hearsay.plain import on_one_line
from hearsay.trouble import Reason

RETRY_AFTER = "retry-after-ms"
"""The name under which a server says for how many milliseconds it wants to be left alone."""

OUR_FAULT = {"INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION"}
"""Statuses of requests that will never be answered otherwise."""

TOLD = 8 << 10
"""Characters of a server's refusal that an analyst or operator is told: all, of an honest one."""

ASKS = "a client certificate: give Tls(certificate=, key=), or --certificate and --key"
"""What a server that closes the connection may ask for."""

MISTRUSTS = "it may not trust the client certificate: is it of the server's tls_client_ca?"

NO_SERVER = "no server answers at"
"""How it is told, before the target, that nothing listens there."""

_LONGEST = 3600.0
"""Seconds for which a server can ask to be left alone."""


def delay(text: str, unit: float = 1e-3) -> float:
    """Return the seconds of a delay that a server asks for in units of seconds; 0 if it is none."""
    # No more digits than a sane delay has: the server is not trusted, and int() may raise.
    return min(int(text) * unit, _LONGEST) if re.fullmatch("[0-9]{1,10}", text) else 0.0


def explained(status: str, details: str, target: str, *, answered: bool) -> tuple[Reason, str]:
    """Return the reason why a call to a target failed, and an explanation on one line.

    `status` is gRPC's name of it, such as "UNAVAILABLE". `answered` tells whether the server, or
    a proxy before it, said more than that it is not there.
    """
    told = on_one_line(details)
    server = f"the server at {target}"
    # Our servers forbid a call because of its token, and name it; a proxy has reasons of its own.
    if status == "PERMISSION_DENIED" and "token" in details:
        return Reason.BAD_TOKEN, f"{server} does not accept the token: {told}"
    if status == "UNAUTHENTICATED":
        return Reason.BAD_TOKEN, f"{server} does not accept the token, or asks for one: {told}"
    if status == "DEADLINE_EXCEEDED":
        return Reason.UNREACHABLE, f"{server} did not answer in time"
    if status == "CANCELLED":
        return Reason.UNREACHABLE, f"the call to {server} was ended"
    if status == "UNAVAILABLE" and not answered:
        return Reason.UNREACHABLE, f"{server} is not available: {told}"
    if status == "UNIMPLEMENTED":
        return Reason.SERVER_REFUSED, f"{server} does not know this call; is it an older version?"
    return Reason.SERVER_REFUSED, f"{server} refuses for now: {told} ({status})"
