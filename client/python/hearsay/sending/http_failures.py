"""Reasons why a call over HTTP failed, from the exceptions of a connection."""

import errno
import socket
import ssl

from hearsay.sending.dialing import Site
from hearsay.sending.failures import ASKS, MISTRUSTS, NO_SERVER
from hearsay.sending.framing import Answered, CutOff, Malformed
from hearsay.trouble import Reason

_NAMES = {"HOSTNAME_MISMATCH": 62, "IP_ADDRESS_MISMATCH": 64}
"""OpenSSL's numbers for a certificate of another name."""

_NO_TLS = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "RECORD_LAYER",
    "PACKET_LENGTH",
    "UNKNOWN_PROTOCOL",
)
"""Parts of OpenSSL's names for bytes that are not of TLS."""


def explained(error: Exception, to: Site) -> tuple[Reason, str]:
    """Return the reason why a call failed, and an explanation on one line."""
    named = to.url
    cause, words = Reason.UNREACHABLE, f"{named} cannot be reached"
    match error:
        case Answered():
            words = f"the server at {named} answers {error}"
        case TimeoutError():
            words = f"the server at {named} did not answer in time"
        case socket.gaierror():
            cause, words = Reason.NAME_NOT_FOUND, f"the host name in {named} does not resolve"
        case ssl.SSLCertVerificationError():
            cause = Reason.TLS
            if error.verify_code in _NAMES.values():
                words = f"the certificate of {named} has another name"
            else:
                words = f"the certificate of {named} is not trusted: {error.verify_message}"
        case ssl.SSLError() if error.reason:
            cause, words = Reason.TLS, _of_tls(error.reason, to)
        case ConnectionRefusedError():
            words = f"{NO_SERVER} {named}"
        case CutOff():
            words = f"{named} closed the connection in the middle of its answer"
        case ConnectionError() | ssl.SSLError():
            words = f"{named} closed the connection before it answered; {_missing(to)}"
        case OSError():
            known = errno.errorcode.get(error.errno or 0, type(error).__name__)
            words = f"{named} cannot be reached ({known})"
        case Malformed():
            words = f"{named} does not speak HTTP as it should ({error})"
            words += "" if to.is_tls else f"; {_missing(to)}"
    return cause, words


def _of_tls(reason: str, to: Site) -> str:
    if any(part in reason for part in _NO_TLS):
        return f"{to.url} does not speak TLS"
    if "CERTIFICATE_REQUIRED" in reason:
        return f"{to.url} asks for {ASKS}"
    if "ALERT" in reason and to.tls is not None and to.tls.certificate is not None:
        return f"{to.url} refuses a secure connection ({reason}); {MISTRUSTS}"
    return f"no secure connection to {to.url} could be made ({reason})"


def _missing(to: Site) -> str:
    """Return what a server that closes the connection may miss."""
    if not to.is_tls:
        return "it may expect https://"
    certificate = to.tls is not None and to.tls.certificate is not None
    return MISTRUSTS if certificate else f"it may ask for {ASKS}"
