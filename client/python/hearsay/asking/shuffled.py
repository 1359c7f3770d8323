"""What mixing by a shuffler gives the records of a sealed survey, cohort by cohort.

The bounds and their sources are those of `ldp.assurance.amplification`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, Unpack

from hearsay.asking.selection import Selection
from hearsay.plans import plan as plans
from hearsay.plans.sealing import LEAST
from hearsay.v1 import analyst_pb2
from ldp import InvalidInput, Mechanism
from ldp.core.exact import float_above
from ldp.errors import needs

if TYPE_CHECKING:
    import pandas as pd

DELTA = 1e-6
"""The delta of the bounds unless another is asked for."""

TRUST = (
    "This holds against the collector alone, if the shuffler is honest and tells the collector "
    "nothing, and if the other records of the line are honest. Records of one person in several "
    "periods add up. Every device's ledger is charged the local epsilon, which holds against "
    "everybody."
)
"""Who must be honest for what `shuffled` says."""

_Answers = tuple[tuple[str, str, str], ...]
"""What is in the clear of a record: question, level and map of each of its answers."""


@dataclass(frozen=True)
class Cohort:
    """Records of one period that left the shuffler together and share one randomizer, because they
    answer the same questions at the same levels and maps.

    `epsilon` is what a whole record spends, by its mechanisms' integers. `shuffled` bounds what
    the cohort's records in random order tell of one of them, at `delta`; None where the honest
    ones are fewer than 1,000, where a report depends on a memo, which links a person's records,
    and where an answer may be revealed or is protected by distance: such records are no clones.
    """

    period: str
    answers: _Answers
    records: int
    epsilon: float
    shuffled: float | None

    @property
    def level(self) -> str:
        """The level, or levels, of the answers."""
        return ", ".join(dict.fromkeys(level for _, level, _ in self.answers))

    @property
    def attributes(self) -> str:
        """The questions that are answered, with the map that was chosen where there is one."""
        return ", ".join(
            f"{name} ({chosen})" if chosen else name for name, _, chosen in self.answers
        )


def cohorts(
    answers: Iterator[analyst_pb2.MixesResponse], delta: float = DELTA, forged: int = 0
) -> list[Cohort]:
    """Return the cohorts of a sealed survey's mixes, by period, the largest first.

    `answers` are those of `Analyst.mixes`. `forged` records of each cohort are taken for forged,
    and hide nobody. A record hides only among records of its cohort, since all else is in the
    clear; the bound is that of the whole record, whose answers are linked to each other. It is
    `amplification.shuffled`. Raises `InvalidInput` unless the survey is
    sealed and has neither panels nor properties, 0 < delta < 1 and forged >= 0. Cost: some
    seconds a cohort, and up to a minute where questions have many kinds of pairs of answers.
    """
    if forged < 0 or not 0 < delta < 1:
        raise InvalidInput(
            f"expected forged >= 0 and delta between 0 and 1, got {forged} and {delta}"
        )
    plan = plans.parse(next(answers).plan)
    if plan.sealing is None:
        raise InvalidInput(
            f"{plan.survey}: the records of this survey go to the server directly, so nothing "
            "mixes them: a shuffler takes those of a survey with [sealing]"
        )
    if plan.told > 1:
        raise InvalidInput(
            f"{plan.survey}: records tell their panel or properties in the clear, and hide only "
            "among records that tell the same; cohorts are counted for surveys without either"
        )
    order = {name: place for place, name in enumerate(plan.questions)}
    found = []
    for mixed in (each for answer in answers for each in answer.mixed):
        told = tuple(
            (each.attribute, each.level, each.map)
            for each in sorted(mixed.answers, key=lambda each: order[each.attribute])
        )
        mechanisms = [plan.levels[level].by_map[name][chosen] for name, level, chosen in told]
        epsilon = float_above(sum((Fraction(m.realised_epsilon) for m in mechanisms), Fraction()))
        repeats = any(plan.questions[name].memo for name, _, _ in told)
        bound = None if repeats else _bound(mechanisms, mixed.records - forged, delta)
        found.append(Cohort(mixed.period, told, mixed.records, epsilon, bound))
    return found


def _bound(mechanisms: Sequence[Mechanism], honest: int, delta: float) -> float | None:
    if honest < LEAST or any(m.guarantee != "pure" for m in mechanisms):
        return None
    from ldp.assurance import amplification  # which imports scipy: an app never gets here

    return amplification.shuffled(mechanisms, honest, delta).epsilon


class _Asks(Protocol):
    def mixes(
        self, survey: str, **selection: Unpack[Selection]
    ) -> Iterator[analyst_pb2.MixesResponse]: ...


class Shuffles:
    """Say what mixing gives the records of sealed surveys."""

    def shuffled(
        self: _Asks,
        survey: str,
        *,
        delta: float = DELTA,
        forged: int = 0,
        **selection: Unpack[Selection],
    ) -> "pd.DataFrame":
        """Return what mixing by an honest shuffler gives a sealed survey's records, by cohort.

        Index: period, level, attributes (the questions that a record answers). Columns: records;
        epsilon, of one whole record, which every device's ledger is charged; shuffled_epsilon, at
        `delta`, which is missing where `Cohort` claims nothing. Records that left the shuffler at
        another time have a row of their own. `frame.attrs["trust"]` says who must be honest.
        Raises `InvalidInput` as `cohorts` does.
        """
        with needs("a DataFrame", "analyst"):
            import pandas as pd

        found = cohorts(self.mixes(survey, **selection), delta, forged)
        names = ["period", "level", "attributes"]
        index = pd.MultiIndex.from_tuples(
            [(c.period, c.level, c.attributes) for c in found], names=names
        )
        rows = [
            [c.records, c.epsilon, math.nan if c.shuffled is None else c.shuffled] for c in found
        ]
        table = pd.DataFrame(rows, index, ["records", "epsilon", "shuffled_epsilon"])
        table.attrs = {"delta": delta, "forged": forged, "trust": TRUST}
        return table
