"""Explain a survey before it is registered: protection, cost and precision."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import hearsay.plans.plan
from hearsay.plans.kinds import Binned
from hearsay.plans.plan import Level, Plan
from hearsay.v1 import survey_pb2
from hearsay_server.surveys import (
    explain_budgets,
    explain_changes,
    explain_pairs,
    explain_protections,
    explain_views,
    over_time,
)
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.explain_budgets import Way
from hearsay_server.surveys.explain_changes import Smallest
from hearsay_server.surveys.explain_pairs import Pair
from hearsay_server.surveys.explain_views import Together
from hearsay_server.surveys.over_time import Cost
from hearsay_server.surveys.question import Question, planned
from ldp import InvalidInput
from ldp.core.mechanism import Categorical as CategoricalMechanism
from ldp.core.repeated import Repeats
from ldp.estimating.points import precision
from ldp.estimating.pooling import planned_covariance
from ldp.mechanisms.ranges.waves import Waves
from ldp.planning.value import Levels

_MOST_VALUES = 256
"""Values up to which the error of several maps together is that of pooling by likelihood."""


@dataclass(frozen=True)
class Row:
    """One question at one level: an attribute, or a view. `map` is that of the people who chose one
    of the attribute's maps, "" for none.

    `chance` is the share of records that report it, `error` the predicted standard error of a
    value's frequency (root mean square over values, if all are equally frequent) or of the mean
    (noise as for the worst number, numbers spread evenly), in the attribute's units. `memo` is
    the epsilon of a memo, 0 without.
    """

    level: str
    attribute: str
    mechanism: str
    epsilon: float
    chance: float
    bytes: int
    error: float
    memo: float
    map: str = ""


@dataclass(frozen=True)
class Explanation:
    """A survey as it would be resolved.

    `ways` are those to spend a record's epsilon, the survey's own first. `rows` predict errors for
    `users` users at that level and map. `pooled` and `strict` are the errors by attribute where
    they spread evenly over the levels, and over the maps and no map, and where all had the
    strictest level and no map. `together` compares views with attributes that are asked one by one,
    and `pairs` are attributes that records report together. `repeats` give the joint epsilon of the
    reports of several periods, and what they reveal, and `ranges` the errors of ranges and of the
    median, for numbers of which only a bin is collected. `costs` are of answers in `periods`
    periods, and `best` names mechanisms that cost less. `precisions` has the variances of one
    respondent by level, None where there is one level.
    """

    plan: Plan
    users: int
    ways: Sequence[Way]
    rows: Sequence[Row]
    protections: Sequence[str]
    repeats: Sequence[str]
    ranges: Sequence[str]
    pooled: dict[str, float]
    strict: dict[str, float]
    together: Sequence[Together]
    pairs: Sequence[Pair]
    changes: Sequence[Smallest]
    periods: int
    costs: Sequence[Cost]
    best: Sequence[str]
    precisions: Levels | None

    @property
    def decision(self) -> list[str]:
        """The attributes that a record reports, and the costs of the other ways, in words."""
        return explain_budgets.lines(self.ways)


def explain(
    survey: survey_pb2.Survey, source: str, users: int, periods: int | None = None
) -> Explanation:
    """Resolve a survey, predict its errors, and what answers in so many periods cost.

    `periods` is None for a year of them. Raises `InvalidInput` where the survey is not valid or
    declares two servers, and for periods as `over_time.costs`.
    """
    if users < 1:
        raise InvalidInput(f"users must be at least 1, got {users}")
    try:
        plan = hearsay.plans.plan.parse(surveys.resolve(survey))
    except InvalidInput as error:
        raise InvalidInput(f"{source}: {error}") from None
    if plan.two_servers:
        raise InvalidInput(
            f"{source}: its records are summed by two servers, so no answer has a mechanism or an "
            "error of its own: `hearsay survey explain` says what the sums promise and tell"
        )
    questions = surveys.questions(survey)
    rows = [row for level in plan.levels.values() for row in _rows(plan, level, users)]
    epsilons = [level.epsilon for level in plan.levels.values()]
    pooled, strict = {}, {}
    for name in plan.questions:
        mine = [row for row in rows if row.attribute == name]
        pooled[name] = _pooled(plan, mine, users)
        strict[name] = mine[0].error  # levels are in order of epsilon, and no map comes first
    times, costs = over_time.costs(plan, periods)
    return Explanation(
        plan=plan,
        users=users,
        ways=explain_budgets.ways(survey.budget, epsilons, questions, every=True),
        rows=rows,
        protections=[line for q in questions for line in explain_protections.of(q)],
        repeats=[_repeats(q) for q in questions] if plan.period else [],
        ranges=[
            line for level in plan.levels.values() for line in _ranges(plan, level, rows, users)
        ],
        pooled=pooled,
        strict=strict,
        together=explain_views.compared(survey, plan, users),
        pairs=explain_pairs.of(plan, users),
        changes=explain_changes.of(plan, users),
        periods=times,
        costs=costs,
        best=over_time.best_mechanisms(plan, times) if times else [],
        precisions=_precisions(plan, questions, rows, users),
    )


def _pooled(plan: Plan, rows: Sequence[Row], users: int) -> float:
    """Return the error of an attribute where users spread evenly over its levels and maps."""
    name, parts = rows[0].attribute, len(rows)
    labels = len(plan.questions[name].domain.labels)
    mechanisms = [plan.mechanism(row.level, name, row.map) for row in rows]
    told = [each for each in mechanisms if isinstance(each, CategoricalMechanism)]
    if not plan.maps(name) or labels > _MOST_VALUES:
        # Of n users an equal part is in each: variances are so many times larger, and their
        # inverses add up: of errors by the smallest, whose square may be no float.
        least = min(row.error for row in rows)
        return least * math.sqrt(parts / sum((least / row.error) ** 2 for row in rows))
    # Each map is precise about other values, which one number for all values cannot say.
    users_of_each = users * rows[0].chance / parts
    uniform = np.full(labels, 1 / labels)
    covariance = planned_covariance([(each, users_of_each) for each in told], uniform)
    return math.sqrt(float(np.trace(covariance)) / labels)


def _precisions(
    plan: Plan, questions: Sequence[Question], rows: Sequence[Row], users: int
) -> Levels | None:
    """Return the variances of one respondent without a map, in the mechanisms' own units."""
    if len(plan.levels) < 2:
        return None
    errors = [row.error / plan.questions[row.attribute].domain.units for row in rows if not row.map]
    variances = users * np.square(errors).reshape(len(plan.levels), -1)
    epsilons = [level.epsilon for level in plan.levels.values()]
    return Levels(epsilons, variances, [question.weight for question in questions])


def _rows(plan: Plan, level: Level, users: int) -> list[Row]:
    rows = []
    chances = (chance / (1 << 64) for chance in level.budget.chances)
    for (name, by_map), chance in zip(level.by_map.items(), chances, strict=True):
        domain = plan.questions[name].domain
        memoizer = plan.memoizer(level.name, name)
        memo = memoizer.epsilon if memoizer else 0.0
        for chosen, mechanism in by_map.items():
            error = domain.units * math.sqrt(planned(domain, mechanism) / (users * chance))
            size, epsilon = mechanism.code_bytes, mechanism.epsilon
            row = Row(level.name, name, mechanism.name, epsilon, chance, size, error, memo, chosen)
            rows.append(row)
    return rows


def _ranges(plan: Plan, level: Level, rows: Sequence[Row], users: int) -> list[str]:
    """Return lines on how well ranges and the median of binned numbers will be known."""
    lines = []
    for row in rows:
        domain, mechanism = plan.asked(row.attribute).domain, level.mechanisms[row.attribute]
        if row.level != level.name or not isinstance(domain, Binned):
            continue
        assert isinstance(mechanism, Waves)
        planned = precision([(mechanism, 1, Repeats())], domain.count)
        reports = users * row.chance
        variance = mechanism.range_variance
        worst = math.sqrt(planned.worst_range_variance / reports)
        middle = math.sqrt(planned.middle_variance / reports)
        median = (
            f"{middle * domain.count:.2g} bins"
            if domain.edges
            else f"{middle * (domain.high - domain.low):.4g}"
        )
        lines.append(
            f"{level.name}, {row.attribute}: the share of a range has an error of {row.error:.4f} "
            f"on average, {worst:.4f} at worst; the median one of "
            f"{median}. The design's average variance is within "
            f"{mechanism.gap:.2%} of the least that other chances of these patterns, or plain "
            f"waves, could have, and within {variance / mechanism.least_range_variance - 1:.0%} of "
            "the least of all channels that treat bins alike"
        )
    return lines


def _repeats(question: Question) -> str:
    """Return a line on the epsilon of answers in every period, and on changes they reveal."""
    name = question.name
    if not question.memo:
        return f"{name}: a fresh report every period, for epsilon each time"
    if question.memo == 1:
        cost, change = "epsilon", "plain to see"
    else:
        cost = f"{question.memo:g} epsilon"
        change = "not hidden: it comes to light with the number of reports"
    return (
        f"{name}: a memo per value, all its reports for {cost}; when a value changes, or "
        f"an earlier one comes back, is {change}"
    )
