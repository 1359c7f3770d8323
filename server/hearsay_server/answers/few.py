"""How many reports an answer within public groups is from at least."""

from collections.abc import Iterable, Mapping

from hearsay_server.answers.queries import NoReports
from hearsay_server.storage.packed import PackedTallies
from ldp import Tally
from ldp.estimating.raking import Weights

LEAST = 20
"""The fewest reports of a level, map and period that an answer about some panels or values of
properties is from. The estimates from one report tell that report, and other answers about the same
group then tell its reports to other questions and in other periods. Estimates from 20 tell how
often each code came, and not which codes are of one person. This holds for each answer by itself:
the difference of two answers may be of fewer reports."""


def check(counts: Iterable[tuple[str, int]]) -> None:
    """Raise `NoReports` where one of some numbers of reports, each with its place, is too small."""
    for place, n in counts:
        if 0 < n < LEAST:
            raise NoReports(
                f"answers about some panels or values of properties are from {LEAST} reports of a "
                f"level and period at least, and there are {n} of {place}: ask for more panels or "
                "values, or for other levels or periods"
            )


def check_weights(weights: Weights) -> None:
    """Raise `NoReports` where one report's weight is more than that of one in `LEAST`."""
    most = weights.range[1] / float(weights.each @ weights.counts)
    if most * LEAST > 1 + 1e-9:
        raise NoReports(
            f"by these margins one report counts for {most:.2g} of the answer, and at most "
            f"1/{LEAST} may: give small groups smaller shares, or raise `least`"
        )


def counts_of(tallies: PackedTallies) -> Iterable[tuple[str, int]]:
    """Return the number of reports of each level, map and period, of all panels and groups."""
    for cohort, parts in tallies.summed(panels=True, groups=True).packed.items():
        yield place([(cohort.level, cohort.map)], cohort.period), sum(map(Tally.n_of, parts))


def place(chosen: Iterable[tuple[str, str]], period: str) -> str:
    """Return the words for reports of some levels and maps ("": none) in a period."""
    levels = " and ".join(
        f"the level {level!r}" + (f" and map {by_map!r}" if by_map else "")
        for level, by_map in dict.fromkeys(chosen)
    )
    return f"{levels} in {period}"


def without_small(
    groups: Mapping[str, PackedTallies],
) -> tuple[dict[str, PackedTallies], str]:
    """Return the groups that answers may be about, and in words those left out.

    Raises `NoReports` where none is left.
    """
    large: dict[str, PackedTallies] = {}
    small = []
    error = None
    for name, tallies in groups.items():
        counts = list(counts_of(tallies))
        try:
            check(counts)
        except NoReports as found:
            error = found
            small.append(f"{name} ({sum(n for _, n in counts):,} reports)")
        else:
            large[name] = tallies
    if error is not None and not large:
        raise error
    if not small:
        return large, ""
    return large, (
        f"left out are groups with fewer than {LEAST} reports of a level and period: "
        f"{', '.join(small)}"
    )
