"""What a store may hold after requests of which some were answered and some were not.

Every row is a measurement of its own, so that a sum tells which rows are in it: one that was
lost is a 0 and one that was counted twice is a 2, and each has a name.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from hearsay.v1 import collector_pb2
from hearsay_server.ingest.intake import Cohort
from ldp import Tally

ABSENT, FORGOTTEN = -1, -2
"""States of an id, of which nothing is counted; any other is the version that is."""

Measurement = tuple[str, int]
"""A level and a code of it, in the period of its batch."""


@dataclass(frozen=True)
class Situation:
    """What may be so of a batch's period, or of its content, at some moment of a round."""

    open: bool
    closed: bool
    dropped: bool


ANY = Situation(open=True, closed=True, dropped=True)
"""For what may have happened at any time."""


@dataclass(frozen=True)
class Request:
    """Something that was asked for an id, and the answer; none if it may yet take effect."""

    version: int | None  # to be stored; None: to be forgotten
    answer: str | None = None


@dataclass(frozen=True)
class Version:
    """A batch, the measurements in it, and its codes of the attribute that has few."""

    batch: collector_pb2.Batch
    rows: tuple[Measurement, ...]
    smokes: tuple[Measurement, ...]


@dataclass
class Entry:
    """An id: the batches that were sent under it, and what may have become of them."""

    id: bytes
    period: str
    ends: int
    versions: list[Version]
    states: set[int] = field(default_factory=lambda: {ABSENT})
    pending: list[Request] = field(default_factory=list)
    first_day: int | None = None  # on which it may have come

    def answered(self, requests: Sequence[Request], situation: Situation) -> None:
        """Learn from what was asked at once, in whatever order it took effect."""
        every = (*self.pending, *requests)
        states = {end for state in self.states for end in _after(state, every, situation)}
        assert states, f"{self}: no order of {every} gives these answers, {situation}"
        self.states = states
        self.pending = [
            *(old for old in self.pending if not _is_moot(old, requests)),
            *(new for new in requests if new.answer is None),
        ]

    def observed(self, counts: Mapping[tuple[str, str, int], int]) -> None:
        """Compare with what is counted, and learn from it."""
        # What is pending may have taken effect by now.
        states = {end for s in self.states for end in _after(s, tuple(self.pending), ANY)}
        found = set()
        for number, version in enumerate(self.versions):
            ones = [counts.get((self.period, *row), 0) for row in version.rows]
            assert len(set(ones)) == 1, f"{self}: version {number} is counted in part: {ones}"
            assert ones[0] in (0, 1), f"{self}: version {number} is counted {ones[0]} times"
            if ones[0]:
                found.add(number)
        assert len(found) <= 1, f"{self}: two batches of one id are counted"
        narrowed = states & found if found else states & {ABSENT, FORGOTTEN}
        assert narrowed, f"{self}: counted is {found or 'nothing'}"
        self.states = narrowed

    def counted(self) -> Version | None:
        """Return the batch that counts, once that is known."""
        (state, *others) = sorted(self.states, reverse=True)
        assert state < 0 or not others
        return self.versions[state] if state >= 0 else None

    def __str__(self) -> str:
        return f"{self.id.hex()} of {self.period}, {self.states}, pending {self.pending}"


def _is_moot(old: Request, answers: Sequence[Request]) -> bool:
    """Tell whether a request without an answer cannot take effect after these were answered.

    Once an id is known, a batch of it that is under way still is refused; once it is forgotten,
    forgetting it again changes nothing. That its period is closed proves nothing: the clock of
    the server where the request is may be behind.
    """
    known = {"FORGOTTEN"} if old.version is None else {"STORED", "DUPLICATE", "BAD_ID", "FORGOTTEN"}
    return any(new.answer in known for new in answers)


def _after(state: int, requests: tuple[Request, ...], situation: Situation) -> Iterator[int]:
    """Yield the states that some order of the requests ends in with the answers that they got."""
    if not requests:
        yield state
    for index, request in enumerate(requests):
        rest = requests[:index] + requests[index + 1 :]
        if request.answer is None:
            yield from _after(state, rest, situation)
        for answer, next_ in _outcomes(
            state, request.version, situation if request.answer else ANY
        ):
            if request.answer in (None, answer):
                yield from _after(next_, rest, situation)


@cache
def _outcomes(state: int, version: int | None, now: Situation) -> frozenset[tuple[str, int]]:
    """Return the answers that a request may get in a state, each with the state after it."""
    found = set()
    if version is None:
        if state == ABSENT and now.open:
            found.add(("FORGOTTEN", FORGOTTEN))
        if state == FORGOTTEN or state >= 0:
            found.add(("FORGOTTEN", FORGOTTEN))
        if (state < 0 and now.closed) or (state >= 0 and now.dropped):
            found.add(("SUMMED", state))
        return frozenset(found)
    if state == ABSENT:
        found |= {("STORED", version)} if now.open else set()
    elif state == FORGOTTEN:
        found.add(("FORGOTTEN", state))
    elif state == version:
        found.add(("DUPLICATE", state))
    else:
        found.add(("BAD_ID", state))
        if now.dropped:  # with nothing left to compare with
            found.add(("DUPLICATE", state))
    if now.closed and (state < 0 or now.dropped):  # the id need not be remembered any more
        found.add(("PERIOD_CLOSED", state))
    return frozenset(found)


def counts_of(sums: Mapping[Cohort, Tally], attribute: str) -> Counter[tuple[str, str, int]]:
    """Return the counts of an attribute by period, level and code, without zeros."""
    found: Counter[tuple[str, str, int]] = Counter()
    for cohort, tally in sums.items():
        if cohort.attribute == attribute:
            for code in np.flatnonzero(tally.counts).tolist():
                found[cohort.period, cohort.level, code] += int(tally.counts[code])
    return found
