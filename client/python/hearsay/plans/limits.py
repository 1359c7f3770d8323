"""How much a plan may ask of a device that checks it: its server must not choose that."""

from collections.abc import Iterable

from hearsay.v1 import plan_pb2
from ldp import InvalidInput
from ldp.mechanisms import SetSelection

MOST_LEVELS = 64

MOST_SET_WORK = 1 << 28
"""The most that the set selections of a plan may take to check, as `_set_work` counts: a few
seconds."""

_FACTORS = 64
"""Steps that a binomial of a report's size counts for."""


def check_work(plan: plan_pb2.Plan) -> None:
    """Raise `InvalidInput` where a plan has too many levels, or set selections too large."""
    levels = max(len(plan.levels), len(plan.survey.levels))
    if levels > MOST_LEVELS:
        raise InvalidInput(f"a plan has at most {MOST_LEVELS} levels, got {levels}")
    work = sum(_set_work(level.mechanisms) for level in plan.levels)
    if work > MOST_SET_WORK:
        raise InvalidInput(
            f"the set_selection mechanisms of a plan have at most {MOST_SET_WORK} in sum of "
            f"(most + {_FACTORS}) size, got {work}: ask for fewer sets, or smaller ones"
        )


def _set_work(mechanisms: Iterable[plan_pb2.Mechanism]) -> int:
    """Return the steps of the exact sums of binomials that check set selections."""
    found = 0
    for mechanism in mechanisms:
        if mechanism.name == SetSelection.name:
            of = {each.name: sum(each.values) for each in mechanism.parameters}
            found += (of.get("most", 0) + _FACTORS) * of.get("size", 0)
    return found
