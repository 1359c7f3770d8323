"""What a look at a training comes to, and whether there is more to do."""

from dataclasses import dataclass

from hearsay.trouble import Reason

FINAL = {
    Reason.SPENT,
    Reason.ENDED,
    Reason.TRAINING_REFUSED,
    Reason.LOST_LEDGER,
    Reason.CLOSED,
    Reason.DISABLED,
    Reason.OTHER_SCHEMA,
    Reason.NOT_A_LEDGER,
    Reason.FORKED,
}
"""Reasons that end `run`: asking again would change nothing."""

QUIET = {Reason.READY, Reason.WAITING, Reason.NO_CONSENT, Reason.ENDED, Reason.SKIPPED}
"""Reasons that are no failure: the next look does not wait longer and longer."""


@dataclass(frozen=True)
class Progress:
    """What one look at a training came to.

    `reason` is READY where an update was stored, in `round`, and otherwise why none was; `detail`
    says more, also where an update of zeros was sent because the step failed. `wait` is after how
    many seconds the next look makes sense.
    """

    reason: Reason
    detail: str = ""
    round: int = 0
    wait: float = 0.0

    @property
    def is_final(self) -> bool:
        """Whether there is nothing left to do in this training, or nothing that time mends."""
        return self.reason in FINAL
