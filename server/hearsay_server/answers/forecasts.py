"""What more reports would tell: an estimate's errors to come, and when they will be there."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from hearsay.asking import roles
from hearsay.asking.answer import Answer, Table
from hearsay.asking.columns import COLUMNS
from hearsay.plans import period
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.ingest.intake import Cohort
from ldp.errors import InvalidInput

_RECENT = 7
"""Periods whose reports make the rate: the last ones before the present, which goes on."""


@dataclass(frozen=True)
class Arrivals:
    """How many reports of an attribute came in each period of a survey, `counts`, in time's order.

    `present` is the period that goes on, empty for a survey without periods; a `closed` survey
    takes no more reports.
    """

    counts: Sequence[tuple[str, int]]
    present: str
    closed: bool

    @property
    def reports(self) -> int:
        """The reports of all periods."""
        return sum(count for _, count in self.counts)

    def rate(self, unit: str) -> float | None:
        """Return the reports per period on average over up to 7 periods before the present one.

        None where that is not known: of a closed survey, one without periods, in its first period,
        and where no reports came of late.
        """
        if self.closed or not unit or not self.counts:
            return None
        last = period.number(unit, self.present)
        numbers = [(period.number(unit, name), count) for name, count in self.counts]
        span = min(_RECENT, last - numbers[0][0])
        recent = sum(count for at, count in numbers if last - span <= at < last)
        return recent / span if recent else None


def arrivals(
    plan: Plan, attribute: str, reports: Mapping[Cohort, int], closed: bool, now: datetime
) -> Arrivals:
    """Return the arrivals of an attribute's reports, from those of each cohort of its survey.

    The present period is a later one than the clock's where it has reports already: a clock is
    wrong.
    """
    asked = plan.questions_of([attribute])
    counts = dict.fromkeys(sorted({cohort.period for cohort in reports}), 0)
    for cohort, n in reports.items():
        if cohort.attribute in asked:
            counts[cohort.period] += n
    present = ""
    if plan.period:
        names = [period.label(plan.period, now), *counts]
        present = max(names, key=lambda name: period.number(plan.period, name))
    return Arrivals(tuple(counts.items()), present, closed)


def check(request: analyst_pb2.ForecastRequest) -> None:
    """Raise `InvalidInput` for a goal that is not positive, selected periods, and sums."""
    selection = request.question.selection
    if request.HasField("goal") and not 0 < request.goal < math.inf:
        raise InvalidInput(f"goal must be a standard error > 0, got {request.goal:g}")
    if selection.periods or selection.first_period or selection.last_period:
        raise InvalidInput("a forecast is of all periods: leave out those of the selection")
    if request.question.sums:
        raise InvalidInput("a forecast is of the values of an attribute: leave out the sums")


def forecast(answer: Answer, goal: float | None, unit: str, arrived: Arrivals) -> Answer:
    """Return the forecast for an estimate, of a survey whose periods are of `unit`.

    The error of an estimate of n people is c / sqrt(n) as long as as large a share of them chooses
    each level, and further reports are of other people. The rate of the reports that the estimate
    is of is their part of the rate of all of the attribute's.
    """
    rows = answer.table()
    now = np.asarray(rows.column("standard_error").values)
    own = rows.column("standard_error").unit
    columns = [rows.column(name) for name in COLUMNS]
    columns.append(roles.column("with_twice", now / math.sqrt(2), own))
    rate = arrived.rate(unit)
    figures = {
        **answer.figures,
        "closed": arrived.closed,
        "rate": None if rate is None else rate * answer.reports / arrived.reports,
        "twice": _when(unit, arrived, rate, 2.0),
    }
    if goal is not None:
        with np.errstate(over="ignore"):  # a goal that no number of reports reaches
            times = (now / goal) ** 2
            needed = np.ceil(answer.reports * times)
        columns.append(roles.column("reports_for_goal", needed, own))
        most = max(1.0, float(np.max(times[~np.isnan(times)], initial=1.0)))
        figures["reached"] = _when(unit, arrived, rate, most)
    table = Table("rows", rows.index, tuple(columns), rows.left_out)
    return replace(answer, view="forecast", tables=(table,), figures=figures)


def _when(unit: str, arrived: Arrivals, rate: float | None, times: float) -> str | None:
    """Return the period in which there will be so many times the reports, at a rate; None beyond
    the year 9999."""
    if rate is None or math.isinf(times):
        return None
    away = math.ceil((times - 1) * arrived.reports / rate)
    return period.named(unit, period.number(unit, arrived.present) + away)
