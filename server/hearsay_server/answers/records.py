"""Records that report several attributes, read from batches: what questions about pairs are from.

A tally has one attribute's reports. What two attributes tell together is in the records alone, and
so only as long as the retention keeps rows.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hearsay import asking
from hearsay.asking import cautions
from hearsay.plans import presence
from hearsay.plans.plan import Plan
from hearsay.plans.properties import group_of
from hearsay.v1 import collector_pb2
from hearsay_server.answers.few import Cell
from hearsay_server.answers.queries import NoReports
from ldp.core.mechanism import Codes, Mechanism
from ldp.core.repeated import Repeats, factors
from ldp.errors import InvalidInput
from ldp.estimating.pairs import PairTally, check_pair, count_pairs

Chosen = tuple[str, str]
"""A level, and a map, "" for none."""

Key = tuple[str, tuple[Chosen, ...]]
"""A period, and the level and map of each attribute."""


@dataclass(frozen=True, eq=False)
class Complete:
    """The codes of records that report all attributes asked for, by period, levels and maps.

    Each value has an array of codes for each attribute, in the same order of records.
    """

    codes: Mapping[Key, Sequence[Codes]]

    @property
    def bytes(self) -> int:
        """How many bytes the codes take."""
        return sum(array.nbytes for arrays in self.codes.values() for array in arrays)


def check_together(plan: Plan, attributes: Sequence[str], levels: Collection[str]) -> None:
    """Raise `InvalidInput` where by the plan no record at these levels reports all of them."""
    together = " and ".join(map(repr, attributes))
    for name in attributes:
        if name not in plan.questions:
            views = [view for view, own in plan.views.items() if name in own.attributes]
            raise InvalidInput(
                f"no view asks {together} together, and only {', '.join(views)} ask {name!r}: "
                "there is no record that tells of both"
            )
    if all(plan.levels[name].budget.reported < len(attributes) for name in levels):
        raise InvalidInput(
            f"no record reports {together} together: a record of this survey reports fewer "
            'attributes, drawn at random (budget = "sample"). A survey whose budget is split can '
            "tell, or one with a view of them"
        )


def complete(
    plan: Plan,
    attributes: Sequence[str],
    levels: Collection[str],
    batches: Iterable[Sequence[collector_pb2.Batch]],
) -> Complete:
    """Return the records of the batches that report all the attributes at these levels.

    The batches were checked before they were stored.
    """
    asked = set(attributes)
    known: dict[Chosen, int] = {}
    parts: dict[Key, list[Sequence[Codes]]] = {}
    for page in batches:
        rows = sum(batch.rows for batch in page)
        at = {name: np.full(rows, -1, dtype=np.int16) for name in attributes}
        place = {name: np.zeros(rows, dtype=np.intp) for name in attributes}
        data: dict[tuple[str, Chosen], list[bytes]] = {}
        seen: dict[tuple[str, Chosen], int] = {}
        start = 0
        for batch in page:
            for column in batch.columns:
                if column.attribute not in asked or column.level not in levels:
                    continue
                chosen = column.level, column.map
                key = column.attribute, chosen
                where = start + np.flatnonzero(presence.unpack(column.present, batch.rows))
                at[column.attribute][where] = known.setdefault(chosen, len(known))
                before = seen.get(key, 0)
                place[column.attribute][where] = np.arange(before, before + where.size)
                seen[key] = before + where.size
                data.setdefault(key, []).append(column.codes)
            start += batch.rows
        decoded = {
            (name, (level, own)): plan.mechanism(level, name, own).decode(
                b"".join(codes), seen[name, (level, own)]
            )
            for (name, (level, own)), codes in data.items()
        }
        names = list(known)
        together = np.stack([at[name] for name in attributes])
        kept = np.flatnonzero((together >= 0).all(axis=0))
        for mine in _alike(together[:, kept]):
            mine = kept[mine]
            these = tuple(names[number] for number in together[:, mine[0]])
            arrays = [
                decoded[name, chosen][place[name][mine]]
                for name, chosen in zip(attributes, these, strict=True)
            ]
            parts.setdefault((page[0].period, these), []).append(arrays)
    return _joined(parts)


def counted(
    attributes: Sequence[str],
    levels: Collection[str],
    batches: Iterable[Sequence[collector_pb2.Batch]],
) -> Counter[tuple[Key, Cell]]:
    """Return how many records `complete` has of each panel and group."""
    found = Counter[tuple[Key, Cell]]()
    for batch in (batch for page in batches for batch in page):
        known: dict[Chosen, int] = {}
        at = {name: np.full(batch.rows, -1, dtype=np.int16) for name in attributes}
        for column in batch.columns:
            if column.attribute in at and column.level in levels:
                number = known.setdefault((column.level, column.map), len(known))
                at[column.attribute][presence.unpack(column.present, batch.rows)] = number
        together = np.stack(list(at.values()))
        kept = together[:, (together >= 0).all(axis=0)]
        names, cell = list(known), (batch.panel, group_of(batch.properties))
        for mine in _alike(kept):
            these = tuple(names[number] for number in kept[:, mine[0]])
            found[(batch.period, these), cell] += mine.size
    return found


def _alike(levels: NDArray[np.int16]) -> Iterator[NDArray[np.intp]]:
    """Yield the places of each different column of the levels, shape (attributes, n)."""
    _, number = np.unique(levels[0], return_inverse=True)
    for row in levels[1:]:
        _, number = np.unique(number * (int(row.max(initial=0)) + 1) + row, return_inverse=True)
    for each in range(int(number.max(initial=-1)) + 1):
        yield np.flatnonzero(number == each)


def mechanisms(plan: Plan, attributes: Sequence[str], chosen: Sequence[Chosen]) -> list[Mechanism]:
    """Return the mechanism of each attribute for those who chose these levels and maps."""
    return [
        plan.mechanism(level, name, own)
        for name, (level, own) in zip(attributes, chosen, strict=True)
    ]


@contextmanager
def telling_of_dropped(dropped: int) -> Iterator[None]:
    """Say in the error that there are no records that rows were dropped, where some were."""
    try:
        yield
    except NoReports as error:
        if not dropped:
            raise
        raise NoReports(
            f"{error}: the retention has dropped the rows of {dropped} batches, and what "
            "attributes tell together is in the rows alone"
        ) from None


def with_note_of_dropped(answer: asking.Answer, dropped: int) -> asking.Answer:
    """Return an answer with a note where it is from what the retention has left of the rows."""
    if not dropped:
        return answer
    return replace(
        answer, notes=(*answer.notes, asking.Note.of(cautions.rows_dropped, batches=dropped))
    )


def merged(parts: Sequence[Complete]) -> Complete:
    """Return the records of all parts."""
    several: dict[Key, list[Sequence[Codes]]] = {}
    for part in parts:
        for key, arrays in part.codes.items():
            several.setdefault(key, []).append(arrays)
    return _joined(several)


def _joined(several: Mapping[Key, Sequence[Sequence[Codes]]]) -> Complete:
    return Complete(
        {
            key: [np.concatenate(arrays) for arrays in zip(*each, strict=True)]
            for key, each in several.items()
        }
    )


@dataclass(frozen=True, eq=False)
class Pairs:
    """What the records of two attributes tell: pair tallies by combination of levels and maps.

    `counts` are the numbers of records by period and combination, which the tallies do not tell
    apart: there may be many periods.
    """

    tallies: Mapping[tuple[Chosen, ...], PairTally]
    counts: Mapping[Key, int]

    @property
    def products(self) -> int:
        """How many sums of products the tallies have."""
        return sum(tally.products.size for tally in self.tallies.values())

    def __add__(self, other: "Pairs") -> "Pairs":
        tallies = dict(self.tallies)
        for chosen, tally in other.tallies.items():
            tallies[chosen] = tallies[chosen] + tally if chosen in tallies else tally
        return Pairs(tallies, Counter(self.counts) + Counter(other.counts))


def pairs(plan: Plan, attributes: tuple[str, str], records: Complete) -> Pairs:
    """Return what the records of two attributes tell."""
    found = Pairs({}, {})
    for (period, chosen), codes in records.codes.items():
        first, second = mechanisms(plan, attributes, chosen)
        tally = count_pairs(first, codes[0], second, codes[1])
        found += Pairs({chosen: tally}, {(period, chosen): tally.n})
    return found


def check_countable(plan: Plan, attributes: tuple[str, str], levels: Collection[str]) -> None:
    """Raise `InvalidInput` where the pair tallies of two attributes would be too large."""
    first, second = attributes
    for one, other in product(levels, levels):
        for mine in plan.levels[one].by_map[first].values():
            for theirs in plan.levels[other].by_map[second].values():
                check_pair(mine, theirs)


def repeats(
    plan: Plan, attributes: Sequence[str], counts: Mapping[Key, int]
) -> dict[tuple[Chosen, ...], Repeats]:
    """Return the repeats of the records of each combination of levels and maps, as
    `repeats.of_levels`.

    Codes may be the same in all periods where an attribute has memos. `counts` are the numbers
    of records.
    """
    combinations = list(dict.fromkeys(levels for _, levels in counts))
    periods = list(dict.fromkeys(period for period, _ in counts))
    reports: NDArray[np.float64] = np.zeros((len(combinations), len(periods)))
    for (period, levels), n in counts.items():
        reports[combinations.index(levels), periods.index(period)] += n
    memo = any(plan.attributes[name].memo for name in attributes)
    each = zip(combinations, factors(reports).tolist(), strict=True)
    return {levels: Repeats(factor, memo) for levels, factor in each}
