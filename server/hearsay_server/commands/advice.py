"""Advice at the command line where a server gives no answer."""

from hearsay.sending.failures import NO_SERVER
from hearsay.sending.transport import Unreachable
from hearsay.trouble import Reason

_TO_DO = {
    Reason.NAME_NOT_FOUND: "check the address",
    Reason.BAD_TOKEN: "give --token, or set HEARSAY_TOKEN",
    Reason.TLS: "`hearsay --ca FILE` before the command trusts a CA of yours, and --server-name "
    "there expects another name; --insecure forgoes TLS on a network that you trust",
}
"""What to do, by the reason."""


def advised(error: Unreachable) -> str:
    """Return an error in words, with what to do about it where that is known."""
    words, to_do = str(error), _TO_DO.get(error.reason)
    if words.startswith(NO_SERVER):
        to_do = "start one with `hearsay serve`, or give another address"
    if words.endswith("does not speak TLS"):
        to_do = "leave out --ca, --certificate, --key and --server-name before the command, or "
        to_do += "give --insecure on a network that you trust"
    return f"{words}; {to_do}" if to_do else words
