"""Batches of which every row is a measurement of its own, good ones and malformed ones."""

import random
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
from promises import Entry, Measurement, Version

from hearsay.plans.plan import Plan
from hearsay.v1 import collector_pb2
from hearsay_server.ingest.intake import Cohort, ends
from ldp import Tally

CODES = 1000
"""Measurements of a level in a period."""

SURVEY = f"""
name = "faults"
period = "P1D"
[levels]
strict = 1.0
open = 4.0
[[attributes]]
name = "which"
mechanism = "krr"
[attributes.categorical]
values = [{", ".join(f'"{number}"' for number in range(CODES))}]
[[attributes]]
name = "smokes"
mechanism = "krr"
[attributes.categorical]
values = ["no", "sometimes", "yes"]
"""
LEVELS = ("strict", "open")
ANSWERS = 3

Malformation = Callable[[collector_pb2.Batch], object]


def _put(**fields: object) -> Malformation:
    def put(batch: collector_pb2.Batch) -> None:
        for name, value in fields.items():
            setattr(batch, name, value)

    return put


MALFORMED: Mapping[str, Malformation] = {
    "REFUSED BAD_ID": _put(id=b"short"),
    "RETRY UNKNOWN_SURVEY": _put(survey="elsewhere"),
    "RETRY UNKNOWN_REVISION": _put(revision=bytes(32)),
    "REFUSED BAD_PERIOD": _put(period="2030-1-1"),
    "RETRY BAD_PERIOD": _put(period="2999-12-31"),
    "REFUSED BAD_ROWS": lambda batch: batch.ClearField("columns"),
    "REFUSED BAD_COLUMN": lambda batch: batch.columns.append(batch.columns[0]),
    "REFUSED BAD_CODES": lambda batch: setattr(batch.columns[0], "codes", b"\xff\xff\xff"),
}
"""By what becomes of them: each is a good batch but for one thing."""


class Maker:
    """Makes batches of a plan of `SURVEY`; each measurement is in one batch only."""

    def __init__(self, plan: Plan, chance: random.Random) -> None:
        self._plan = plan
        self._chance = chance
        self._next: Counter[tuple[str, str]] = Counter()

    def entry(self, period: str) -> Entry:
        """Return a new id with one batch."""
        id_ = self._chance.randbytes(16)
        return Entry(id_, period, ends(self._plan.period, period), [self._version(id_, period)])

    def another(self, entry: Entry) -> None:
        """Give an id another batch, which may not be counted beside the first."""
        entry.versions.append(self._version(entry.id, entry.period))

    def has_room(self, period: str) -> bool:
        """Tell whether enough measurements of a period are left for a batch."""
        return all(self._next[period, level] + 4 <= CODES for level in LEVELS)

    def malformed(self, period: str) -> tuple[str, collector_pb2.Batch]:
        """Return a batch that is refused, and how."""
        outcome = self._chance.choice(sorted(MALFORMED))
        batch = self._version(self._chance.randbytes(16), period).batch
        MALFORMED[outcome](batch)
        return outcome, batch

    def _version(self, id_: bytes, period: str) -> Version:
        levels = [self._chance.choice(LEVELS) for _ in range(self._chance.randint(1, 3))]
        which = [(level, self._take(period, level)) for level in levels]
        smokes = [
            (level, self._chance.randrange(ANSWERS)) if self._chance.random() < 0.5 else None
            for level in levels
        ]
        batch = collector_pb2.Batch(
            id=id_,
            survey=self._plan.survey,
            revision=self._plan.revision,
            period=period,
            rows=len(levels),
        )
        for level in LEVELS:
            _add_column(batch, "which", level, 2, which)
            _add_column(batch, "smokes", level, 1, smokes)
        return Version(batch, tuple(which), tuple(answer for answer in smokes if answer))

    def _take(self, period: str, level: str) -> int:
        self._next[period, level] += 1
        return self._next[period, level] - 1

    def tallies(self, versions: list[Version]) -> dict[Cohort, Tally]:
        """Return the tallies of these batches, one row after the other."""
        counts: dict[Cohort, list[int]] = {}
        for version in versions:
            batch = version.batch
            for name, size, rows in (
                ("which", CODES, version.rows),
                ("smokes", ANSWERS, version.smokes),
            ):
                for level, code in rows:
                    cohort = Cohort(batch.survey, batch.revision, name, level, batch.period)
                    counts.setdefault(cohort, [0] * size)[code] += 1
        return {
            cohort: Tally(sum(counts[cohort]), np.array(counts[cohort]))
            for cohort in sorted(counts)
        }


def _add_column(
    batch: collector_pb2.Batch,
    attribute: str,
    level: str,
    width: int,
    rows: list[Measurement] | list[Measurement | None],
) -> None:
    """Add what the rows say at one level, if any of them says something."""
    said = [row if row and row[0] == level else None for row in rows]
    if any(said):
        batch.columns.add(
            attribute=attribute,
            level=level,
            codes=b"".join(row[1].to_bytes(width, "little") for row in said if row),
            present=np.packbits([row is not None for row in said], bitorder="little").tobytes(),
        )
