"""What the crowd says so far, for everybody: asked once a minute at most, and rounded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np

from hearsay.asking import wire
from hearsay.plans.kinds import Domain, Strings
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2, answer_pb2
from hearsay_server.pages.words import shown
from hearsay_server.serving.inside import Inside
from hearsay_server.serving.status import Ended
from ldp.core.intervals import critical_value
from ldp.estimating.strata import SIGNIFICANCE

FEWEST = 100
"""Reports below which nothing is shown: the interval would say nothing either."""

_MOST_ROWS = 24
"""Values of a question that are shown: those of the largest estimates."""

_MOST_QUESTIONS = 32
"""Questions that one look asks about."""

_DIFFER = (
    "People who chose different levels answer differently: nothing can be said of all of them."
)


@dataclass(frozen=True)
class Said:
    """What the crowd says of one question: rows of value, estimate, and both ends of the interval.

    `refused` says why there are none. All numbers are rounded to the digits of the interval, and
    `reports` as `about` does.
    """

    title: str
    reports: int
    rows: Sequence[tuple[str, str, str, str]]
    unit: str
    refused: str = ""
    warning: str = ""
    left_out: int = 0

    @property
    def chart(self) -> dict[str, Any]:
        """The same rounded numbers, as `charts.js` draws them."""
        rows = []
        for label, *numbers in self.rows:
            estimate, low, high = (float(each.replace(",", "")) for each in numbers)
            ends = f"{numbers[1]}{self.unit} to {numbers[2]}{self.unit}"
            row = {
                "label": shown(label),
                "said": f"{shown(label)}: {numbers[0]}{self.unit} ({ends})",
            }
            rows.append(row | {"estimate": estimate, "low": low, "high": high})
        unit = "share, in %" if self.unit else "average"
        zero = bool(self.unit)
        return {
            "kind": "intervals",
            "x": unit,
            "reach": "Lines are 95% intervals.",
            "zero": zero,
            "rows": rows,
        }


async def crowd(inside: Inside, plan: Plan) -> list[Said]:
    """Return what the crowd says of each attribute, one question after the other.

    The server asks in its own name, as the operator declared the results public; the limits of
    analysts' questions hold. The reports are of all periods.
    """
    attributes = list(plan.attributes.values())[:_MOST_QUESTIONS]
    pools = plan.levels_differ_at_most == 0
    return [
        await _one(inside, plan.survey, each.name, each.title or each.name, each.domain, pools)
        for each in attributes
    ]


async def _one(
    inside: Inside, survey: str, name: str, title: str, domain: Domain, pools: bool
) -> Said:
    """Ask about one attribute; `pools`: the plan takes people of all levels for alike."""
    if isinstance(domain, Strings):
        return Said(title, 0, (), "", "Words are not shown here: rare ones could tell of somebody.")
    is_mean = domain.statistic == "mean"
    top = 0 if is_mean else _MOST_ROWS
    request = analyst_pb2.EstimateRequest(survey=survey, attribute=name, top=top)
    try:
        message = await inside.own("Answers/Estimate", request)
    except Ended as error:
        if error.code == grpc.StatusCode.FAILED_PRECONDITION:
            return Said(title, 0, (), "", "There is nothing to show yet.")
        return Said(title, 0, (), "", "This cannot be found out now: come again in a minute.")
    found = wire.from_message(answer_pb2.Answer.FromString(message))
    if found.reports < FEWEST:
        words = f"Fewer than {FEWEST} reports came so far: nothing can be said yet."
        return Said(title, 0, (), "", words)
    tested = found.figures["homogeneity"]
    if pools and isinstance(tested, float) and tested < SIGNIFICANCE:
        return Said(title, 0, (), "", _DIFFER)
    is_share = domain.statistic == "frequency"
    scale = 100.0 if is_share else 1.0
    table = found.table()
    numbers = (np.asarray(table.column(name).values) for name in ("estimate", "low", "high"))
    each = zip(table.index[0].labels, *numbers, strict=True)
    rows = [rounded(str(label), *row, scale=scale) for label, *row in each if not np.isnan(row[1])]
    refused = "" if rows else "There is nothing to show yet."
    unit = "%" if is_share else ""
    left_out = len(domain.labels) - len(rows) if not is_mean else 0
    return Said(title, about(found.reports), rows, unit, refused, found.warning, max(0, left_out))


def rounded(
    label: str, estimate: float, low: float, high: float, *, scale: float = 1.0
) -> tuple[str, str, str, str]:
    """Return label, estimate and interval with the digits that the interval's half width has.

    So an interval of 42.13% ± 3.2% is shown as 42%, from 39% to 45%.
    """
    half = scale * (high - low) / 2
    digits = max(0, -math.floor(math.log10(half))) if half > 0 else 6
    step = 10.0**-digits if half < 1 or digits else 10.0 ** math.floor(math.log10(max(half, 1)))
    low, high = scale * low, scale * high
    estimate = min(max(scale * estimate, low), high)
    return (
        label,
        _at(estimate, step, digits),
        _at(math.floor(low / step) * step, step, digits),
        _at(math.ceil(high / step) * step, step, digits),
    )


def about(reports: int) -> int:
    """Return a number of reports with the digits of an interval around it, if chance alone decided
    who takes part: a 95% interval. So that one report more is rarely seen."""
    half = critical_value(0.95) * math.sqrt(reports)
    step: int = 10 ** math.floor(math.log10(max(1.0, half)))
    return round(reports / step) * step


def _at(number: float, step: float, digits: int) -> str:
    text = f"{round(number / step) * step:,.{digits}f}"
    return "0" if float(text.replace(",", "")) == 0 else text
