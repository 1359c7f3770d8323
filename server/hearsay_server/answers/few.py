"""How many reports an answer within public groups is from, and leaves, at least."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hearsay.asking import cautions
from hearsay.asking.answer import Note
from hearsay.asking.columns import NOT_GIVEN
from hearsay.plans.plan import Plan
from hearsay.plans.properties import PANEL
from hearsay_server.answers.queries import NoReports
from hearsay_server.ingest.intake import Cohort
from ldp.estimating.raking import Weights

LEAST = 20
"""The fewest reports of a question, level, map and period that an answer about some panels or
values of properties is from, and that it leaves. The estimates from one report tell that report,
and other answers about the same group then tell its reports to other questions and in other
periods. Estimates from 20 tell how often each code came, and not which codes are of one person."""

Cell = tuple[int, str]
"""A panel and a group."""

Counts = Sequence[tuple[str, Mapping[Cell, int]]]
"""The reports of all cells of each question, level, map and period, with the words for these."""

_Key = tuple[str, ...]
"""A panel or value of each of the properties that are selected by."""


@dataclass(frozen=True)
class Table:
    """The reports of one question, level, map and period, by what they are selected by, and which
    of these an answer is about."""

    place: str
    counts: Mapping[_Key, int]
    taken: frozenset[_Key]


def tables(
    plan: Plan, by: Sequence[str], counts: Counts, takes: Callable[[Cell], bool]
) -> list[Table]:
    """Return the tables of a question that selects reports by some properties, `PANEL` among them
    where it selects panels, and takes these cells."""

    def key(cell: Cell) -> _Key:
        panel, group = cell
        values = {**plan.properties.values_of(group), PANEL: f"panel {panel}"}
        return tuple(values[name] or NOT_GIVEN for name in by)

    found = []
    for where, cells in counts:
        sums = Counter[_Key]()
        for cell, n in cells.items():
            sums[key(cell)] += n
        taken = frozenset(key(cell) for cell in cells if takes(cell))
        found.append(Table(where, {each: n for each, n in sums.items() if n}, taken))
    return found


def check(asked: Iterable[Table]) -> None:
    """Raise `NoReports` for an answer that tells, by itself or by the difference to another answer
    by the same properties or to the answer about all, of fewer than `LEAST` reports.

    What answers may tell apart is the same for all questions by some properties: of one property,
    each value that has `LEAST` reports, and all others taken together, with the smallest of
    the former where they are fewer. Of several properties, each combination that has any report, if
    all of them have `LEAST`. So sums and differences of such answers are of `LEAST` reports, too.
    """
    for table in asked:
        taken = table.counts.keys() & table.taken
        n = sum(table.counts[key] for key in taken)
        if 0 < n < LEAST:
            raise NoReports(
                f"answers about some panels or values of properties are from {LEAST} reports of a "
                f"level and period at least, and there are {n} of {table.place}: ask for more "
                "panels or values, or for other levels or periods"
            )
        if not taken or len(taken) == len(table.counts):
            continue  # nothing, or everything, is taken
        together = _together(table.counts)
        n = sum(table.counts[key] for key in together)
        named = " and ".join(sorted(", ".join(key) for key in together))
        if together and len(next(iter(together))) > 1:
            raise NoReports(
                "answers by several properties at once need "
                f"{LEAST} reports of each combination that anybody has, or others tell of fewer by "
                f"subtraction, and there are fewer of {named} at {table.place}: select by one of "
                "the properties, or other levels or periods"
            )
        if taken & together and together - taken:
            raise NoReports(
                f"answers about some panels or values of properties leave {LEAST} reports of a "
                f"level and period at least, or others tell of fewer by subtraction: of "
                f"{table.place} ask for {named} ({n} reports) together, or for none of them"
            )


def _together(counts: Mapping[_Key, int]) -> frozenset[_Key]:
    """Return what has fewer than `LEAST` reports, with the smallest others until there are enough
    of them."""
    found: list[_Key] = []
    n = 0
    for key in sorted(counts, key=lambda key: (counts[key], key)):
        if counts[key] >= LEAST and (not found or n >= LEAST):
            break
        found.append(key)
        n += counts[key]
    return frozenset(found)


def check_weights(weights: Weights) -> None:
    """Raise `NoReports` where one report's weight is more than that of one in `LEAST`."""
    most = weights.range[1] / float(weights.each @ weights.counts)
    if most * LEAST > 1 + 1e-9:
        raise NoReports(
            f"by these margins one report counts for {most:.2g} of the answer, and at most "
            f"1/{LEAST} may: give small groups smaller shares, or raise `least`"
        )


def counts_of(reports: Mapping[Cohort, int]) -> Counts:
    """Return the reports of each question, level, map and period by panel and group."""
    found: dict[tuple[str, str, str, str], dict[Cell, int]] = {}
    for c, n in reports.items():
        found.setdefault((c.attribute, c.level, c.map, c.period), {})[c.panel, c.group] = n
    return [(place([key[1:3]], key[3]), cells) for key, cells in found.items()]


def place(chosen: Iterable[tuple[str, str]], period: str) -> str:
    """Return the words for reports of some levels and maps ("": none) in a period."""
    levels = " and ".join(
        f"the level {level!r}" + (f" and map {by_map!r}" if by_map else "")
        for level, by_map in dict.fromkeys(chosen)
    )
    return f"{levels} in {period}"


def without_small(asked: Mapping[str, Sequence[Table]]) -> tuple[list[str], Note | None]:
    """Return the names of those groups, each with its tables, that answers may be about, and a note
    of those left out.

    Raises `NoReports` where none is left.
    """
    large, small = [], []
    error = None
    for name, each in asked.items():
        try:
            check(each)
        except NoReports as found:
            error = found
            n = sum(table.counts.get(key, 0) for table in each for key in table.taken)
            small.append(f"{name} ({n:,} reports)")
        else:
            large.append(name)
    if error is not None and not large:
        raise error
    if not small:
        return large, None
    return large, Note.of(cautions.small_groups, least=LEAST, groups=small)
