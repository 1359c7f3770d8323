"""What a survey asks: questions and attributes."""

import math
from dataclasses import dataclass

from hearsay.plans.kinds import Domain, Grid
from ldp import InvalidInput


@dataclass(frozen=True)
class Question:
    """What one mechanism randomises: an attribute, or a view of several.

    `cap` is the most epsilon that a report may have at any level.
    """

    name: str
    title: str
    domain: Domain | Grid
    memo: float = 0.0
    cap: float = math.inf


@dataclass(frozen=True)
class Attribute(Question):
    """What a survey wants to know of a person.

    `memo` is 0 where every report is drawn afresh. Otherwise a device keeps one permanent answer
    per distinct value, of at most `memo` times a report's epsilon, and reports it every period:
    itself where `memo` is 1, with fresh noise where it is more. Raises `InvalidInput` for
    another `memo`, or one for anything but words and categories that are protected alike.
    """

    domain: Domain

    def __post_init__(self) -> None:
        if not self.memo:
            return
        if not 1 <= self.memo < math.inf:
            raise InvalidInput(f"memo must be 0, or finite and >= 1, got {self.memo!r}")
        self.domain.check_memo()
