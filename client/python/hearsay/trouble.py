"""Reasons why answers are not taken or sent, for apps to branch on and people to read."""

from dataclasses import dataclass
from enum import StrEnum

from ldp.errors import HearsayError, InvalidInput, NotReady, PlanRefused, StorageFailed


class Reason(StrEnum):
    """Why answers are not taken or sent, or a person does not take part in a training; also the
    name of the counter of drops."""

    READY = "ready"
    DISABLED = "disabled"
    """HEARSAY_DISABLED is set: this process takes and sends nothing."""
    NO_CONSENT = "no_consent"
    """This person has not consented, or revoked."""
    NO_PLAN = "no_plan"
    """The plan has not come yet; the server is being asked."""
    BAD_TOKEN = "bad_token"
    """The server does not accept the token, or asks for one; or the token cannot be one."""
    NAME_NOT_FOUND = "name_not_found"
    """The server's host name does not resolve."""
    TLS = "tls"
    """No secure connection: the server's certificate is not trusted, or it speaks no TLS."""
    UNREACHABLE = "unreachable"
    """The server does not answer."""
    SERVER_REFUSED = "server_refused"
    """The server answers, and refuses the request: it has no such survey, say."""
    PLAN_REFUSED = "plan_refused"
    """The server's plan breaks a promise, a cap, or the choices made."""
    PLAN_CHANGED = "plan_changed"
    """The app accepts another plan now; a period that was answered by the old plan is not
    answered again."""
    NEW_LEDGER = "new_ledger"
    """The ledger is younger than the period: an earlier one may have spent in it."""
    LOST_LEDGER = "lost_ledger"
    """An earlier ledger, or a part of this one, was lost, and something counts for life."""
    CLOCK = "clock"
    """The clock cannot be right: the period was answered and left before, or begins more than a
    day after the server's time, or the clock raised."""
    LOCKED = "locked"
    """Another process holds the ledger for longer than an answer may wait."""
    DISK = "disk"
    """The ledger cannot be read or written: disk full, folder read-only, or the like."""
    CORRUPT = "corrupt"
    """The ledger is damaged."""
    OTHER_SCHEMA = "other_schema"
    """Another version of the SDK wrote the ledger."""
    NOT_A_LEDGER = "not_a_ledger"
    """The file is a database of something else; it is left alone."""
    FORKED = "forked"
    """The ledger is in the memory of another process, which this one was forked from."""
    CLOSED = "closed"
    """The client was closed."""

    # Of trainings alone.
    WAITING = "waiting"
    """No round of the training is open that this person may take part in."""
    SPENT = "spent"
    """The person used all participations in the training, or a cap allows no more."""
    ENDED = "ended"
    """The training has no more rounds."""
    SKIPPED = "skipped"
    """The app's step chose not to take part."""
    TRAINING_REFUSED = "training_refused"
    """The server's training is another than the kept one, or breaks what the app agreed to."""
    ROUND_REFUSED = "round_refused"
    """The server's round or model is none that the training can have."""
    UPDATE_REFUSED = "update_refused"
    """The server refused an update for good; the participation stays used."""


@dataclass(frozen=True)
class Status:
    """Whether answers are taken now, and if not, why; and how the last call to the server failed.

    `transport` is the last error of the transport in words, "" where the last call succeeded.
    """

    reason: Reason
    detail: str = ""
    transport: str = ""

    @property
    def ready(self) -> bool:
        """Whether answers are taken."""
        return self.reason is Reason.READY


class Trouble(HearsayError):
    """Why an answer is not taken or sent. It never reaches the app, which asks `Client.status`."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(detail or reason.value)
        self.status = Status(reason, detail)


_MENDABLE = (Reason.SERVER_REFUSED, Reason.CLOCK, Reason.CLOSED)
"""Reasons that the caller can fix: the survey's name, the clock= argument, a closed client."""

_OF_THE_FILE = (
    Reason.DISK,
    Reason.CORRUPT,
    Reason.OTHER_SCHEMA,
    Reason.NOT_A_LEDGER,
    Reason.NEW_LEDGER,
    Reason.LOST_LEDGER,
    Reason.FORKED,
)


def to_raise(reason: Reason, words: str) -> HearsayError:
    """Return the exception that tells the app of a reason, with `words` as its message."""
    if reason is Reason.PLAN_REFUSED:
        return PlanRefused(words)
    if reason in _MENDABLE:
        return InvalidInput(words)
    return StorageFailed(words) if reason in _OF_THE_FILE else NotReady(words)
