"""Answer from the sums of two servers: shares and means, with the errors of noise and sampling."""

from collections.abc import Iterator, Sequence

import numpy as np

from hearsay.asking import cautions, roles
from hearsay.asking.answer import Answer, Cohort, Note, Subject
from hearsay.asking.columns import COLUMNS
from hearsay.plans.plan import Plan
from hearsay.sealed import shares
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import tables
from hearsay_server.answers.queries import NOT_TESTED, NoReports, confidence_of
from hearsay_server.storage.sums import Sum
from ldp import Estimate, InvalidInput
from ldp.core.intervals import around, critical_value
from ldp.two_servers.records import Counted, estimate

_TAKEN = ("survey", "attribute", "selection", "confidence", "simultaneous")
"""The fields of a question that a survey with two servers answers."""

_IMPOSSIBLE = 6.0
"""Standard errors of noise beyond which a count cannot be one of answers."""


def check(plan: Plan, question: analyst_pb2.EstimateRequest) -> None:
    """Raise `InvalidInput` for what sums cannot answer."""
    chosen = question.selection
    asked = [field.name for field, _ in question.ListFields() if field.name not in _TAKEN]
    asked += [name for name in ("levels", "maps", "where", "panels") if getattr(chosen, name)]
    if asked:
        raise InvalidInput(
            f"the records of {plan.survey!r} are summed by two servers, which tell each value's "
            f"share, or the mean, of periods alone: leave out {', '.join(asked)}"
        )


def _chosen(question: analyst_pb2.EstimateRequest) -> bool:
    """Tell whether a question is of some periods."""
    chosen = question.selection
    return bool(chosen.periods or chosen.first_period or chosen.last_period)


def answer(plan: Plan, question: analyst_pb2.EstimateRequest, found: Sequence[Sum]) -> Answer:
    """Answer a question from the sums of its periods.

    Intervals are normal ones: noise is of many devices. With `simultaneous` they cover all values
    at once (Bonferroni). Raises `NoReports` where there is no sum yet, and `InvalidInput` as
    `check`.
    """
    check(plan, question)
    two, confidence = shares.of(plan), confidence_of(question)
    if not found:
        of = "of a period that is over" if plan.period else "that wait"
        raise NoReports(
            f"no sum of {plan.survey!r} is there yet"
            f"{' for these periods' if _chosen(question) else ''}: one is made of {two.least:,} "
            f"records or more {of}, together with the helper"
        )
    periods = list(dict.fromkeys(each.period for each in found))
    records = sum(each.records for each in found)
    total = np.sum([np.frombuffer(each.total, "<i8") for each in found], axis=0)
    told = estimate(two.layout, total, records, two.variance, repeats=len(periods))
    attribute = plan.attributes[question.attribute]
    mine = told[list(plan.attributes).index(attribute.name)]
    domain = attribute.domain
    bounds = (-1.0, 1.0) if domain.statistic == "mean" else (0.0, 1.0)
    shown = domain.in_units(Estimate(mine.values, mine.errors, records, bounds))
    z = critical_value(confidence, len(shown.value) if question.simultaneous else 1)
    lows, highs = around(shown.value, z * shown.standard_error, shown.bounds)
    (level,) = plan.levels.values()
    columns = dict(zip(COLUMNS, (shown.value, shown.standard_error, lows, highs), strict=True))
    unit = roles.unit_of(domain.statistic)
    return Answer(
        "estimate",
        plan.survey,
        (Subject(attribute.name, attribute.title),),
        domain.statistic,
        (tables.estimates("rows", (attribute.name, domain.labels), columns, unit),),
        confidence,
        question.simultaneous,
        records,
        repeats=len(periods),
        method="two servers",
        notes=tuple(_impossible(mine, records)),
        figures=NOT_TESTED,
        cohorts=tuple(
            Cohort(
                plan.revision,
                level.name,
                period,
                "",
                level.epsilon,
                "two servers",
                sum(each.records for each in found if each.period == period),
            )
            for period in periods
        ),
    )


def _impossible(told: Counted, records: int) -> Iterator[Note]:
    """Yield a note where the counts are none that answers and noise can make: devices may add any
    numbers, and smaller ones are not seen."""
    least = float(told.counts.min())
    if least < -_IMPOSSIBLE * told.count_error:
        yield Note.of(cautions.impossible_count, count=least)
    elif told.answered > records + _IMPOSSIBLE * told.answered_error:
        answers = float(told.answered)
        yield Note.of(cautions.impossible_total, answers=answers, records=records)
