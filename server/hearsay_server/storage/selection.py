"""Which of a survey's stored reports a request reads."""

from dataclasses import dataclass

from hearsay.plans import period
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from ldp import InvalidInput


@dataclass(frozen=True)
class Selected:
    """Levels, periods, and the ends of a range of periods, which belong to it.

    An empty field restricts nothing.
    """

    levels: tuple[str, ...] = ()
    periods: tuple[str, ...] = ()
    first: str = ""
    last: str = ""


EVERYTHING = Selected()


def resolve(plan: Plan, selection: analyst_pb2.Selection) -> Selected:
    """Return what a request selects of a survey; without levels, all levels of the plan.

    Raises `InvalidInput` for a level that the survey lacks, a name that is no period of the
    survey, and a range that ends before it begins.
    """
    first, last = selection.first_period, selection.last_period
    for name in selection.levels:
        plan.level(name)
    for name in (*selection.periods, *filter(None, (first, last))):
        period.start(plan.period, name)
    if last and first > last:
        raise InvalidInput(f"a range must not end before it begins, got {first!r} to {last!r}")
    levels = tuple(selection.levels or plan.levels)
    return Selected(levels, tuple(selection.periods), first, last)
