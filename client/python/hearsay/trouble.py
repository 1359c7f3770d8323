"""Why nothing is taken or sent, in words that an app can branch on and a person can read."""

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """What stands between an answer and the server; also the name of what it drops."""

    READY = "ready"
    NO_CONSENT = "no_consent"
    """Nobody has consented, or consent was revoked."""
    NO_PLAN = "no_plan"
    """No plan has come yet: the server could not be reached since the first start."""
    PLAN_REFUSED = "plan_refused"
    """The server's plan breaks a promise, a cap, or the choices made."""
    PLAN_CHANGED = "plan_changed"
    """The plan changed within the period: the next period goes by the new one."""
    NEW_LEDGER = "new_ledger"
    """The ledger is younger than the period: an earlier one may have spent in it."""
    LOST_LEDGER = "lost_ledger"
    """The ledger was made by itself, and something counts for life: see `create_ledger`."""
    CLOCK = "clock"
    """The clock shows a period before one that was answered already."""
    LOCKED = "locked"
    """Another process holds the ledger for longer than an answer may wait."""
    DISK = "disk"
    """The ledger cannot be read or written: disk full, folder read-only, or the like."""
    CORRUPT = "corrupt"
    """The ledger is damaged."""
    NEWER_SCHEMA = "newer_schema"
    """A newer version of the SDK wrote the ledger."""
    NOT_A_LEDGER = "not_a_ledger"
    """The file is a database of something else; it is left alone."""
    FORKED = "forked"
    """The ledger is in the memory of another process, which this one was forked from."""
    CLOSED = "closed"
    """The client was closed."""


@dataclass(frozen=True)
class Status:
    """Whether answers are taken now, and if not, why."""

    reason: Reason
    detail: str = ""

    @property
    def ready(self) -> bool:
        """Whether answers are taken."""
        return self.reason is Reason.READY


class Trouble(Exception):
    """What keeps the ledger shut: it never reaches the app, which asks `Client.status`."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(detail or reason.value)
        self.status = Status(reason, detail)
