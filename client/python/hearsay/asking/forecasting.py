"""An analyst's question about errors to come: with more reports, and when these will be there."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Unpack

import numpy as np

from hearsay.asking.answer import Answer, Column, Table
from hearsay.asking.selection import Options
from hearsay.plans import period as periods
from hearsay.plans import plan as plans
from hearsay.plans.plan import Plan
from hearsay.v1 import admin_pb2
from ldp.errors import InvalidInput

_RECENT = 7
"""Periods whose reports make the rate: the last ones before the present, which goes on."""


class Forecasts:
    """The question of `Analyst` about what more reports would tell."""

    @abstractmethod
    def estimate(self, survey: str, attribute: str, **options: Unpack[Options]) -> Answer:
        """Return an answer: one row per value, or the row "mean" of a number."""

    @abstractmethod
    def show_survey(self, survey: str) -> admin_pb2.ShowSurveyResponse:
        """Return a survey's plan, and how many reports it holds, as a message."""

    def forecast(
        self, survey: str, attribute: str, *, goal: float | None = None, **options: Unpack[Options]
    ) -> Answer:
        """Return the error of each estimate now, with twice as many reports, and for a goal.

        Columns: estimate, standard_error, low and high, those of `estimate` with these options;
        with_twice, the standard error with twice as many reports; with `goal`, reports_for_goal:
        how many reports would make the standard error that small. Its figures are those of
        `estimate`, and closed: whether the survey takes no more reports; rate: reports per period,
        on average over up to 7 periods before the present one; twice: the period in which there
        will be twice as many reports at this rate; and with `goal` reached: the period by whose end
        every row will have it. They are None where the survey is closed or has no periods, and
        where no rate is known: of a first period, and where no reports came of late.

        The error of an estimate of n people is c / sqrt(n) as long as as large a share of them
        chooses each level: the forecast assumes that, and that further reports are of other people.
        Further periods of the same people may not lower the error, which allows for them
        (`Answer.repeats`): the periods named are then too early. Raises `InvalidInput` for
        a goal that is not positive, and where `options` select periods, of which no more reports
        will come.
        """
        if goal is not None and not 0 < goal < math.inf:
            raise InvalidInput(f"goal must be a standard error > 0, got {goal!r}")
        if any(options.get(name) for name in ("periods", "first_period", "last_period")):
            raise InvalidInput("a forecast is of all periods: leave out those of the selection")
        answer = self.estimate(survey, attribute, **options)
        rows = answer.table()
        now = np.asarray(rows.column("standard_error").values)
        unit = rows.column("standard_error").unit
        columns = [rows.column(name) for name in ("estimate", "standard_error", "low", "high")]
        columns.append(Column("with_twice", "error", unit, now / math.sqrt(2)))
        shown = self.show_survey(survey)
        plan = plans.parse(shown.plan)
        counts = _by_period(shown, plan, attribute)
        rate, present = None, ""
        if plan.period and shown.periods and not shown.status.closed:
            present = _present(plan.period, shown.periods[-1])
            rate = _rate(plan.period, list(shown.periods), counts, present)
        figures = {
            **answer.figures,
            "closed": shown.status.closed,
            "rate": None if rate is None else rate * answer.reports / sum(counts),
            "twice": _when(plan.period, present, sum(counts), rate, 2.0),
        }
        if goal is not None:
            times = (now / goal) ** 2
            needed = np.ceil(answer.reports * times)
            columns.append(Column("reports_for_goal", "n", "count", needed, True))
            most = max(1.0, float(np.max(times[~np.isnan(times)], initial=1.0)))
            figures["reached"] = _when(plan.period, present, sum(counts), rate, most)
        table = Table("rows", rows.index, tuple(columns), rows.left_out)
        return replace(answer, view="forecast", tables=(table,), figures=figures)


def _by_period(shown: admin_pb2.ShowSurveyResponse, plan: Plan, attribute: str) -> list[int]:
    """Return how many reports of an attribute there are in each of the periods with reports."""
    asked = plan.questions_of([attribute])
    found = [each.reports for each in shown.reports if each.attribute in asked]
    return [sum(numbers) for numbers in zip(*found, strict=True)]


def _present(unit: str, latest: str) -> str:
    """Return the present period; a later one that has reports already, where a clock is wrong."""
    now = periods.label(unit, datetime.now(UTC))
    return max(now, latest, key=lambda name: periods.number(unit, name))


def _rate(unit: str, names: Sequence[str], counts: Sequence[int], present: str) -> float | None:
    """Return the reports per period before the present one; None where that is not known."""
    numbers = [periods.number(unit, name) for name in names]
    last = periods.number(unit, present)
    span = min(_RECENT, last - numbers[0])
    recent = sum(n for at, n in zip(numbers, counts, strict=True) if last - span <= at < last)
    return recent / span if recent else None


def _when(unit: str, present: str, count: int, rate: float | None, times: float) -> str | None:
    """Return the period in which there will be so many times `count` reports, at a rate; None
    beyond the year 9999."""
    if rate is None:
        return None
    return periods.named(
        unit, periods.number(unit, present) + math.ceil((times - 1) * count / rate)
    )
