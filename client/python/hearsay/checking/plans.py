"""The plan that a server gives an analyst, and the periods that it names."""

from collections.abc import Collection, Sequence
from itertools import pairwise

from hearsay.plans import period
from hearsay.plans.plan import Plan, parse
from hearsay.plans.texts import check_name
from hearsay.v1 import analyst_pb2
from ldp.errors import InvalidInput


def plan_of(data: bytes, survey: str) -> Plan:
    """Return the plan of a survey; raise `InvalidInput` for bytes that are none that a server made.

    A device takes other names of questions and levels, too: an analyst's are those of files,
    columns and commands.
    """
    plan = parse(data)
    if plan.survey != survey:
        raise InvalidInput(f"plan: it is of {plan.survey!r}, not of {survey!r}")
    check_name("plan: survey", plan.survey)
    for name in plan.levels:
        check_name("plan: level", name)
    for name in plan.attributes:
        check_name("plan: attribute", name)
    return plan


def check_periods(plan: Plan, names: Sequence[str]) -> None:
    """Raise `InvalidInput` unless these are periods of the plan, in order, each once."""
    for name in names:
        period.start(plan.period, name)
    for before, name in pairwise(names):
        if name <= before:  # names of one unit sort as their times do
            raise InvalidInput(f"the period {name!r} comes after {before!r}")


def check_selected(
    plan: Plan, name: str, selection: analyst_pb2.Selection, chosen: Collection[str]
) -> None:
    """Raise `InvalidInput` unless a name is a period of the plan that the selection has.

    `chosen` are the selection's periods.
    """
    period.start(plan.period, name)
    first, last = selection.first_period, selection.last_period
    if (chosen and name not in chosen) or (first and name < first) or (last and name > last):
        raise InvalidInput(f"the period {name!r} was not asked for")
