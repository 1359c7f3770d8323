"""An analyst's question about errors to come: with more reports, and when these will be there."""

import math
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from hearsay.asking import Options
from hearsay.plans import period as periods
from hearsay.plans import plan as plans
from hearsay.plans.plan import Plan
from hearsay.v1 import admin_pb2
from ldp.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

_RECENT = 7
"""Periods whose reports make the rate: the last ones before the latest, which may still go on."""


class Forecasts:
    """The question of `Analyst` about what more reports would tell."""

    @abstractmethod
    def estimate(self, survey: str, attribute: str, **options: Unpack[Options]) -> "pd.DataFrame":
        """Return a DataFrame: one row per value, or the row "mean" of a number."""

    @abstractmethod
    def show_survey(self, survey: str) -> admin_pb2.ShowSurveyResponse:
        """Return a survey's plan, and how many reports it holds, as a message."""

    def forecast(
        self, survey: str, attribute: str, *, goal: float | None = None, **options: Unpack[Options]
    ) -> "pd.DataFrame":
        """Return the error of each estimate now, with twice as many reports, and for a goal.

        Columns: estimate, standard_error, low and high, those of `estimate` with these options;
        with_twice, the standard error with twice as many reports; with `goal`, reports_for_goal:
        how many reports would make the standard error that small. `frame.attrs` are those of
        `estimate`, and rate: reports per period, on average over up to 7 periods before the latest
        one; twice: the period in which there will be twice as many reports at this rate; and with
        `goal` reached: the period by whose end every row will have it. They are None where the
        survey has no periods, or no rate is known yet.

        The error of an estimate of n reports is c / sqrt(n) as long as as large a share of the
        people chooses each level: the forecast assumes that. Raises `InvalidInput` for a goal that
        is not positive and where `options` select periods, of which there will not be more.
        """
        if goal is not None and not 0 < goal < math.inf:
            raise InvalidInput(f"goal must be a standard error > 0, got {goal!r}")
        if any(options.get(name) for name in ("periods", "first_period", "last_period")):
            raise InvalidInput("a forecast is of all periods: leave out those of the selection")
        table = self.estimate(survey, attribute, **options)
        now, reports = table["standard_error"], table.attrs["reports"]
        attrs = table.attrs
        table = table[["estimate", "standard_error", "low", "high"]].copy()
        table["with_twice"] = now / math.sqrt(2)
        shown = self.show_survey(survey)
        plan = plans.parse(shown.plan)
        counts = _by_period(shown, plan, attribute)
        rate = _rate(plan, list(shown.periods), counts)
        more: dict[Hashable, Any] = {
            "rate": None if rate is None else rate * reports / sum(counts),
            "twice": _when(plan, shown.periods, counts, rate, 2.0),
        }
        if goal is not None:
            times = (now / goal) ** 2
            table["reports_for_goal"] = np.ceil(reports * times)
            most = max(1.0, float(times.max()))
            more["reached"] = _when(plan, shown.periods, counts, rate, most)
        table.attrs = {**attrs, **more}
        return table


def _by_period(shown: admin_pb2.ShowSurveyResponse, plan: Plan, attribute: str) -> list[int]:
    """Return how many reports of an attribute there are in each of the periods with reports."""
    asked = plan.questions_of([attribute])
    found = [each.reports for each in shown.reports if each.attribute in asked]
    return [sum(numbers) for numbers in zip(*found, strict=True)]


def _rate(plan: Plan, names: Sequence[str], counts: Sequence[int]) -> float | None:
    """Return the reports per period before the latest one; None where that is not known."""
    if not plan.period or len(names) < 2:
        return None
    numbers = [periods.number(plan.period, name) for name in names]
    last = numbers[-1]
    span = min(_RECENT, last - numbers[0])
    recent = sum(n for at, n in zip(numbers, counts, strict=True) if last - span <= at < last)
    return recent / span if recent else None


def _when(
    plan: Plan, names: Sequence[str], counts: Sequence[int], rate: float | None, times: float
) -> str | None:
    """Return the period in which there will be so many times as many reports, at a rate."""
    if rate is None:
        return None
    left = math.ceil((times - 1) * sum(counts) / rate)
    if left > 100_000:
        return None
    name = names[-1]
    for _ in range(left):
        name = periods.label(plan.period, periods.end(plan.period, name))
    return name
