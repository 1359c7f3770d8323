"""Changes over time: differences between periods, trends and breaks, from tallies."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hearsay.asking import cautions, roles
from hearsay.asking.answer import Answer, Column, Note, Subject, Table, Unit
from hearsay.asking.columns import change_columns
from hearsay.plans import period
from hearsay.plans.kinds import Binned
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import queries
from hearsay_server.answers.queries import NoReports, Tallies, confidence_of
from hearsay_server.answers.repeats import of_levels
from hearsay_server.ingest.intake import Cohort
from ldp import InvalidInput, Tally
from ldp.core.estimation import LEAST_PANELS, LEAST_REPORTS
from ldp.core.intervals import check_confidence
from ldp.estimating import change as changing
from ldp.estimating.change import Changes, Parts, Series
from ldp.estimating.sums import Summed

Floats = NDArray[np.float64]

Request = analyst_pb2.ChangeRequest

MOST_PERIODS = 1000
"""Periods that one question may be about: it takes time in proportion to their square."""

_LEAST = {Request.DIFFERENCE: 2, Request.TREND: 3, Request.BREAKS: 5}

_KINDS = {Request.DIFFERENCE: "difference", Request.TREND: "trend", Request.BREAKS: "breaks"}
_VIEWS = {**_KINDS, Request.DIFFERENCE: "change"}

_NAMES = {Request.DIFFERENCE: "a difference", Request.TREND: "a trend", Request.BREAKS: "a break"}


def check(plan: Plan, question: Request) -> None:
    """Raise `InvalidInput` for what cannot be asked, before tallies are read."""
    if question.kind not in _LEAST:
        raise InvalidInput(f"kind must be DIFFERENCE, TREND or BREAKS, got {question.kind}")
    if not plan.period:
        raise InvalidInput(
            f"{plan.survey!r} has no periods, so nothing can change: declare a period in a survey "
            "that asks again"
        )
    named = question.selection.periods
    if question.kind == Request.DIFFERENCE and (len(named) != 2 or len(set(named)) != 2):
        listed = ", ".join(map(repr, named)) or "none"
        raise InvalidInput(f"a difference is between two periods: name both, got {listed}")
    check_confidence(confidence_of(question))
    if question.sums and question.ranges:
        raise InvalidInput("ask for sums of values or for ranges of a number, not both")
    if len(question.ranges) > queries.MOST_SUMS:
        raise InvalidInput(f"there may be {queries.MOST_SUMS} ranges, got {len(question.ranges)}")
    if question.sums:
        queries.check_sums(plan, question.attribute)


def change(
    plan: Plan, question: Request, tallies: Tallies, unfinished: Sequence[str] = ()
) -> Answer:
    """Answer a `ChangeRequest` from the tallies of its cohorts.

    `unfinished` are the periods that are not over yet. Raises `NoReports` where a period that is
    named has none, or too few have any, and `InvalidInput` for what cannot be asked.
    """
    check(plan, question)
    tallies = {cohort: tally for cohort, tally in tallies.items() if tally.n}  # unpacked once
    names = _periods(plan, question, tallies)
    sets, labels, statistic = _rows(plan, question)
    found = _series(plan, question.attribute, tallies, names, sets)
    changes = _COMPUTED[question.kind](found, [period.number(plan.period, name) for name in names])
    confidence = confidence_of(question)
    domain = plan.asked(question.attribute).domain
    view = _VIEWS[question.kind]
    counts = found.n.astype(int).tolist()
    return Answer(
        view,
        plan.survey,
        (Subject(question.attribute, plan.asked(question.attribute).title),),
        statistic,
        (_table(plan, question, changes, labels, names, roles.unit_of(statistic)),),
        confidence=confidence,
        simultaneous=question.simultaneous,
        reports=sum(counts),
        parts=dict(zip(names, counts, strict=True)),
        notes=(
            *_open([name for name in names if name in unfinished]),
            *_few(plan, found),
            *_mixed(found, tallies, changes, labels, domain.units),
        ),
        figures={
            "panels": 0 if found.scores is None else found.scores.shape[0],
            "kind": _KINDS[question.kind],
            "any_p_value": changes.any_p_value,
        },
    )


def _periods(plan: Plan, question: Request, tallies: Tallies) -> list[str]:
    """Return the periods of the answer."""
    seen = sorted({cohort.period for cohort in tallies})
    named = list(dict.fromkeys(question.selection.periods))
    for name in named:
        if name not in seen:
            raise NoReports(
                f"there are no reports of {question.attribute!r} in the period {name!r}"
            )
    if len(seen) < _LEAST[question.kind]:
        raise NoReports(
            f"{_NAMES[question.kind]} takes {_LEAST[question.kind]} periods with reports of "
            f"{question.attribute!r} at least, got {len(seen)}"
        )
    if len(seen) > MOST_PERIODS:
        raise InvalidInput(
            f"a change is told of at most {MOST_PERIODS} periods, got {len(seen)}: select a range"
        )
    return named if question.kind == Request.DIFFERENCE else seen


def _series(
    plan: Plan, attribute: str, tallies: Tallies, names: Sequence[str], sets: Floats | None
) -> Series:
    """Return the estimates of an attribute in the named periods."""
    by_period: dict[str, dict[Cohort, Tally]] = {name: {} for name in names}
    by_panel: dict[tuple[int, str], dict[Cohort, Tally]] = {}
    for cohort, tally in tallies.items():
        by_period[cohort.period][cohort] = tally
        if cohort.panel:
            by_panel.setdefault((cohort.panel, cohort.period), {})[cohort] = tally
    parts = [_parts(plan, attribute, by_period[name], sets) for name in names]
    panels = [
        [_parts(plan, attribute, by_panel.get((panel, name), {}), sets) for name in names]
        for panel in sorted({panel for panel, _ in by_panel})
    ]
    memo = any(plan.questions[cohort.attribute].memo for cohort in tallies)
    # Of one period a person has one report, but where a record reports several views.
    repeated = 1.0
    if any(level.budget.reported > 1 for level in plan.levels.values()):
        each = [own.factor for part in by_period.values() for own in of_levels(plan, part)]
        repeated = max(each)
    return changing.series(parts, panels, codes=memo, repeated=repeated)


def _parts(plan: Plan, attribute: str, tallies: dict[Cohort, Tally], sets: Floats | None) -> Parts:
    """Return the estimator and tally of each level and map in one period."""
    if not tallies:
        return {}
    found = queries.of_strata(plan, plan.parts(attribute), tallies)
    return {
        name: (mechanism if sets is None else Summed(mechanism, sets), tally)
        for name, (mechanism, tally) in found.items()
    }


def _rows(plan: Plan, question: Request) -> tuple[Floats | None, Sequence[str], str]:
    """Return the sets of values or bins to sum, shape (sets, k), None without any; and the labels
    and the statistic of what is told."""
    domain = plan.asked(question.attribute).domain
    if question.sums:
        sets = queries.value_sets(plan, question.attribute, question.sums)
        return sets, [" + ".join(each.values) for each in question.sums], "share"
    if not question.ranges:
        return None, domain.labels, domain.compared
    only = f"{question.attribute!r} is {domain}: ranges over time are those of a number in bins"
    bins = Binned.expected(domain, only).points
    sets = np.array([bins.inside(each.low, each.high) for each in question.ranges], float)
    labels = [bins.range_label(each.low, each.high) for each in question.ranges]
    return sets, labels, "share"


_COMPUTED: dict[int, Callable[[Series, list[int]], Changes]] = {
    Request.DIFFERENCE: lambda series, times: changing.difference(series),
    Request.TREND: lambda series, times: changing.trend(series, np.array(times) - times[0]),
    Request.BREAKS: lambda series, times: changing.breaks(series),
}


def _table(
    plan: Plan,
    question: Request,
    changes: Changes,
    labels: Sequence[str],
    names: Sequence[str],
    unit: Unit,
) -> Table:
    domain = plan.asked(question.attribute).domain
    confidence = confidence_of(question)
    low, high = changes.interval(confidence, simultaneous=question.simultaneous)
    units = domain.units
    numbers = (
        domain.origin + units * changes.first,
        domain.origin + units * changes.second,
        units * changes.value,
        units * changes.standard_error,
        units * low,
        units * high,
        changes.p_value,
        changes.adjusted_p_value,
    )
    each = zip(change_columns(question.kind), numbers, strict=True)
    columns = [roles.column(*named, unit) for named in each]
    if changes.mix is not None:
        columns.append(roles.column("mix", units * changes.mix, unit))
    if changes.place is not None:
        periods = [names[place] for place in changes.place.tolist()]
        columns.insert(0, Column("period", "text", "none", periods))
    return Table("rows", roles.index((question.attribute, labels)), tuple(columns))


def _open(unfinished: Sequence[str]) -> Iterator[Note]:
    """Yield a note of periods that are not over."""
    if unfinished:
        yield Note.of(cautions.unfinished, periods=unfinished)


def _few(plan: Plan, found: Series) -> Iterator[Note]:
    """Yield a note where the survey has panels, and no error can be told from them."""
    if plan.panels and found.scores is None:
        yield Note.of(cautions.few_panels, panels=LEAST_PANELS, reports=LEAST_REPORTS)


def _mixed(
    found: Series, tallies: Tallies, changes: Changes, labels: Sequence[str], units: float
) -> Iterator[Note]:
    """Yield a note where the mix of levels and maps of the reports changed, and what it did to a
    change."""
    if len({(cohort.level, cohort.map) for cohort in tallies}) < 2:
        return
    if changes.mix is None:
        yield Note.of(cautions.mix_unknown)
        return
    by = np.abs(changes.mix) / changes.standard_error
    most = int(by.argmax())
    if by[most] >= 1:
        moved = float(units * changes.mix[most])
        yield Note.of(cautions.mix_changed, label=labels[most], moved=moved)
