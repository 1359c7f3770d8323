"""Which of a survey's stored reports a request reads."""

from dataclasses import dataclass

from hearsay.plans import period
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from ldp import InvalidInput


@dataclass(frozen=True)
class Selected:
    """Levels, periods, the ends of a range of periods, which belong to it, and maps.

    An empty field restricts nothing; an empty name among the maps stands for those who chose none.
    """

    levels: tuple[str, ...] = ()
    periods: tuple[str, ...] = ()
    first: str = ""
    last: str = ""
    maps: tuple[str, ...] = ()

    def has(self, period: str) -> bool:
        """Tell whether a period is selected."""
        return (
            (not self.periods or period in self.periods)
            and period >= self.first
            and (not self.last or period <= self.last)
        )


EVERYTHING = Selected()

_MOST_PERIODS = 1000
"""Periods that one request may name; a range may hold any number."""


def resolve(plan: Plan, selection: analyst_pb2.Selection, attribute: str = "") -> Selected:
    """Return what a request selects of a survey; without levels, all levels of the plan.

    Raises `InvalidInput` for a level that the survey lacks, a map that the attribute lacks, or any
    where the request is not about one attribute, a name that is no period of the survey, a range
    that ends before it begins, and more than 1000 periods.
    """
    first, last = selection.first_period, selection.last_period
    levels = tuple(dict.fromkeys(selection.levels))
    for name in levels:
        plan.level(name)
    maps = tuple(dict.fromkeys(selection.maps))
    if maps and not attribute:
        raise InvalidInput(
            "maps are selected in questions about one attribute: leave them out for rows, for "
            "tests of forged reports, and for several attributes together"
        )
    for name in filter(None, maps):
        known = plan.maps(attribute)
        if name not in known:
            raise InvalidInput(
                f"{attribute!r} has no map {name!r}; it has {', '.join(known) or 'none'}"
            )
    periods = tuple(dict.fromkeys(selection.periods))
    if len(periods) > _MOST_PERIODS:
        raise InvalidInput(
            f"a request names at most {_MOST_PERIODS} periods, got {len(periods)}: select a range"
        )
    for name in (*periods, *filter(None, (first, last))):
        period.start(plan.period, name)
    if last and first > last:
        raise InvalidInput(f"a range must not end before it begins, got {first!r} to {last!r}")
    return Selected(levels or tuple(plan.levels), periods, first, last, maps)
