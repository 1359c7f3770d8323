"""Explain a survey before it is registered: protection, cost and precision."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import hearsay.plans.plan
from hearsay.plans.attested import Requirement
from hearsay.plans.domains import Binned, Categorical, Grid, Numeric, Ratings, SetOf, Strings
from hearsay.plans.plan import Level, Plan
from hearsay.shuffled import DELTA
from hearsay.v1 import survey_pb2
from hearsay_server import tabular
from hearsay_server.surveys import (
    explain_budgets,
    explain_changes,
    explain_pairs,
    explain_sets,
    explain_views,
    explain_words,
    graded,
    over_time,
    worth,
)
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.explain_changes import Smallest
from hearsay_server.surveys.explain_pairs import Pair
from hearsay_server.surveys.explain_views import Together
from hearsay_server.surveys.over_time import Cost
from hearsay_server.surveys.survey import Question
from hearsay_server.wrapping import print_wrapped
from ldp import InvalidInput, Mechanism, PolicyMeanTable
from ldp.assurance.amplification import clone_bound
from ldp.core.mechanism import Categorical as CategoricalMechanism
from ldp.core.repeated import Repeats
from ldp.estimating.points import precision
from ldp.estimating.pooling import planned_covariance
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.mechanisms.ranges.waves import Waves
from ldp.planning.value import Levels

_MOST_VALUES = 256
"""Values up to which the error of several maps together is that of pooling by likelihood."""
_OVER_TIME_BY_MAP = (
    "This is for those who chose no map. Ledgers take the sum for those who chose one, and it is "
    "about the values that all of a person's maps protect."
)
_OVER_TIME = (
    "The sum is what ledgers and caps count. The other epsilon bounds what all reports tell but "
    "for a probability of delta, where nobody's times and levels depend on codes sent before. Of "
    "values under a policy both hold for those that it protects, and a memoised attribute counts "
    "once, as for a value that stays."
)


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

    `decision` names the attributes that a record reports, and the costs of the other ways. `rows`
    predict errors for `users` users at that level and map. `pooled` and `strict` are the errors by
    attribute where they spread evenly over the levels, and over the maps and no map, and where all
    had the strictest level and no map. `together` compares views with attributes that are asked one
    by one, and `pairs` are attributes that records report together.
    `repeats` give the joint epsilon of the reports of several periods, and what they reveal, and
    `ranges` the errors of ranges and of the median, for numbers of which only a bin is collected.
    `costs` are of answers in `periods` periods, and `best` names mechanisms that cost less.
    `precisions` has the variances of one respondent by level, None where there is one level.
    """

    plan: Plan
    users: int
    decision: Sequence[str]
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
        decision=explain_budgets.lines(
            explain_budgets.ways(survey.budget, epsilons, questions, every=True)
        ),
        rows=rows,
        protections=[line for q in questions for line in _protections(q)],
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
        # inverses add up.
        return math.sqrt(parts / sum(1 / row.error**2 for row in rows))
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
            variance = (
                surveys.planned(domain, mechanism)
                if isinstance(domain, SetOf | Ratings | Strings)
                else _variance(mechanism)
            )
            error = domain.units * math.sqrt(variance / (users * chance))
            size, epsilon = mechanism.code_bytes, mechanism.epsilon
            row = Row(level.name, name, mechanism.name, epsilon, chance, size, error, memo, chosen)
            rows.append(row)
    return rows


def _variance(mechanism: Mechanism) -> float:
    """Predict the variance of one report, on average over its values or ranges, or at the worst
    number."""
    if isinstance(mechanism, PolicyMeanTable):
        return graded.noise(mechanism) + surveys.SPREAD
    if isinstance(mechanism, MeanMechanism):
        return mechanism.largest_report_variance + surveys.SPREAD
    if isinstance(mechanism, Waves):
        return mechanism.range_variance
    uniform = np.full(mechanism.parameters, 1 / mechanism.parameters)
    return float(np.mean(mechanism.variance(uniform, 1)))


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


def _protections(question: Question) -> list[str]:
    """Return lines on which values are protected from which, at epsilon 1 of the attribute."""
    domain = question.domain
    if isinstance(domain, SetOf | Ratings):
        noun = "set" if isinstance(domain, SetOf) else "table of ratings"
        return [f"{question.name}: every {noun} from every other, the empty one too, by epsilon"]
    if isinstance(domain, Strings):
        return [f"{question.name}: every word from every other, of whatever length, by epsilon"]
    if isinstance(domain, Binned | Grid):
        kept = "where in a bin a number is never leaves the device"
        return [f"{question.name}: every bin from every other, by epsilon; {kept}"]
    if not isinstance(domain, Categorical):
        if domain.is_graded:
            return [f"{question.name}: {line}" for line in graded.protections(domain)]
        return [f"{question.name}: every number from every other, by epsilon"]
    if not domain.maps:
        return _of_values(question.name, domain)
    lines = _of_values(f"{question.name}, no map", domain)
    for name in domain.map_names:
        lines += _of_values(f"{question.name}, {name}", domain.chosen(name))
    return [
        *lines,
        f"{question.name}: the map that a person chose, or that they chose none, is sent in the "
        "clear",
        f"{question.name}: in several reports by different maps, only what all of them protect "
        "stays protected",
    ]


def in_the_clear(plan: Plan, users: int) -> list[str]:
    """Return lines on panels and properties, how many bits link a person's reports, and how many
    of the respondents share them on average; and on how records are sealed."""
    lines = []
    if plan.panels:
        lines.append(
            f"panel: 1 of {plan.panels}, which a person's device draws once and sends with every "
            "report as long as the person has one ledger"
        )
    for each in plan.properties.declared:
        title = f" ({each.title})" if each.title else ""
        lines.append(f"{each.name}{title}: {_some(each.values)}, or none, as the app says")
    if lines:
        lines.append(
            f"all together: 1 of {plan.told:,} combinations, {math.log2(plan.told):.1f} bits by "
            "which a person's reports may be linked over periods"
        )
        lines.append(
            f"{users / plan.told:,.3g} of {users:,} respondents share a combination, if all are as "
            "frequent; whoever reads the database can link the reports of a person who is alone in "
            "one"
        )
    if plan.attested is not None:
        lines.append(attested_in_words(plan.attested))
    if plan.sealing is not None:
        last = plan.sealing.key_count * plan.sealing.rotate_days
        turns = (
            f"a new key every {plan.sealing.rotate_days} days, {plan.sealing.key_count} keys for "
            f"{last:,} days; the last one goes on after that"
            if plan.period
            else "one key for ever, as the survey has no periods"
        )
        lines.append(
            f"each record is sealed and padded to {plan.sealing.size} bytes, for a shuffler that "
            f"waits until {plan.sealing.least:,} of a period have come; {turns}"
        )
        lines += _mixed(plan, plan.sealing.least)
    return lines


def _mixed(plan: Plan, least: int) -> list[str]:
    """Return what the fewest records that a shuffler forwards give each other, by level."""
    if any(question.memo for question in plan.questions.values()):
        return []
    lines = []
    for level in plan.levels.values():
        mechanisms = [m for by_map in level.by_map.values() for m in by_map.values()]
        if all(mechanism.guarantee == "pure" for mechanism in mechanisms):
            mixed = clone_bound(level.epsilon, least, DELTA)
            lines.append(
                f"{level.name}: mixed with {least:,} honest records that answer the same questions "
                f"at this level, one tells the collector epsilon {mixed:.3g} at delta {DELTA:g} in "
                f"place of {level.epsilon:.4g}, if the shuffler does not collude with it; the "
                f"ledger is charged {level.epsilon:.4g}"
            )
    return lines


def _of_values(place: str, domain: Categorical) -> list[str]:
    policy = domain.policy(1.0)
    if policy is None:
        return [f"{place}: every value from every other, by epsilon"]
    lines = []
    for a, mine in enumerate(policy.members):
        for b, theirs in enumerate(policy.members):
            if a == b and len(mine) == 1:
                continue
            distance = policy.distance(mine[0], theirs[1] if a == b else theirs[0])
            of, others = (_some([domain.values[v] for v in group]) for group in (mine, theirs))
            against = "each other" if a == b else others
            if math.isinf(distance):
                lines.append(f"{place}: {of} may be told from {against} for certain")
            else:
                lines.append(f"{place}: {of} from {against} by {distance:g} epsilon")
    return lines


def attested_in_words(requirement: Requirement) -> str:
    """Say which evidence a server must give before devices send it records."""
    each = [
        f"{kind} with {len(listed)} measurement{'s' * (len(listed) > 1)}"
        for kind, listed in requirement.measurements.items()
    ]
    worth = (
        "test evidence proves nothing, so this protects nobody"
        if "test" in requirement.measurements
        else "it protects in addition, if the platform's maker is honest"
    )
    return (
        f"records leave only for a server that gives evidence of {' or '.join(each)}, at most "
        f"{requirement.max_age:,} s old; {worth}"
    )


def _told_apart(name: str, domain: Numeric) -> Table:
    """Return a table of some numbers: by how many epsilon a row's may be told from a column's."""
    numbers, rows = graded.told_apart(domain)
    title = f"{name}: how much of epsilon tells a number (row) from another"
    table = Table("", *numbers, title=title)
    for shown, row in zip(numbers, rows, strict=True):
        table.add_row(f"[bold]{shown}[/bold]", *row)
    return table


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
    return f"{name}: a memo per value, all its reports for {cost}; when a value changes is {change}"


def _some(values: Sequence[str]) -> str:
    shown = [*values[:4], "..."] if len(values) > 5 else values
    return " or ".join(shown)


def show(explanation: Explanation, console: Console) -> None:
    """Print an explanation."""
    plan = explanation.plan
    console.print(f"[bold]{plan.survey}[/bold]  {escape(plan.title)}")
    print_wrapped(f"levels  {surveys.levels_in_words(plan)}", console)
    console.print("\n[bold]What a record reports[/bold]")
    for line in explanation.decision:
        print_wrapped(f"  {line}", console)
    console.print("\n[bold]Who is protected from what[/bold]")
    for line in explanation.protections:
        print_wrapped(f"  {line}", console)
    if told := in_the_clear(plan, explanation.users):
        console.print("\n[bold]What is in the clear besides levels and maps[/bold]")
        for line in told:
            print_wrapped(f"  {line}", console)
    for name, attribute in plan.attributes.items():
        if isinstance(attribute.domain, Numeric) and attribute.domain.is_graded:
            console.print()
            console.print(_told_apart(name, attribute.domain))
    if told := explain_words.lines(plan, explanation.users):
        console.print("\n[bold]Which words will be found[/bold]")
        for line in told:
            print_wrapped(f"  {line}", console)
    if told := explain_sets.lines(plan, explanation.users):
        console.print("\n[bold]What sets and ratings tell[/bold]")
        for line in told:
            print_wrapped(f"  {line}", console)
    memos = any(row.memo for row in explanation.rows)
    if memos:
        console.print("\n[bold]What reports of several periods cost together[/bold]")
        for line in explanation.repeats:
            print_wrapped(f"  {line}", console)
    console.print()
    maps = any(row.map for row in explanation.rows)
    alone = "level and map" if maps else "level"
    table = Table(title=f"Each {alone} by itself, with {explanation.users:,} users at it")
    for heading in ("level", "attribute, map" if maps else "attribute", "mechanism"):
        table.add_column(heading)
    for heading in ("epsilon", "reported", "bytes", "error", *(["memo"] if memos else [])):
        table.add_column(heading, justify="right")
    for level in plan.levels.values():
        mine = [row for row in explanation.rows if row.level == level.name]
        for row in mine:
            table.add_row(
                row.level,
                f"{row.attribute}, {row.map}" if row.map else row.attribute,
                row.mechanism,
                f"{row.epsilon:.4f}",
                f"{row.chance:.0%}",
                str(row.bytes),
                f"{row.error:.4f}",
                *([f"{row.memo:.4f}" if row.memo else ""] if memos else []),
            )
        table.add_row(
            level.name, "[bold]whole record[/bold]", "", f"{level.budget.record_epsilon:.4f}"
        )
        table.add_section()
    tabular.show(table)
    if explanation.costs:
        console.print()
        tabular.show(over_time.table(explanation.periods, explanation.costs))
        print_wrapped(_OVER_TIME, console)
        if maps:
            print_wrapped(_OVER_TIME_BY_MAP, console)
        for line in explanation.best:
            print_wrapped(f"  {line}", console)
        console.print()
    evenly, and_ = ("levels and maps", ", without a map,") if maps else ("levels", "")
    users = f"{explanation.users:,} users"
    title = f"{users}, evenly over the {evenly}, against the strictest{and_} for all"
    print_wrapped(
        "Errors are standard errors: of a frequency on average, if all values are equally "
        "frequent; of a mean, if numbers are spread evenly and noise is at its worst (on average "
        "where numbers are protected by their value).",
        console,
    )
    if explanation.ranges:
        console.print("\n[bold]Ranges of numbers in bins, if these are spread evenly[/bold]")
    for line in explanation.ranges:
        print_wrapped(f"  {line}", console)
    console.print()
    compared = Table("attribute", title=title)
    for heading in ("error", "error, all strictest", "users it would take"):
        compared.add_column(heading, justify="right")
    for name, error in explanation.pooled.items():
        strictest = explanation.strict[name]
        factor = (strictest / error) ** 2
        compared.add_row(name, f"{error:.4f}", f"{strictest:.4f}", f"{factor:.1f} times as many")
    tabular.show(compared)
    if explanation.precisions:
        print_wrapped(worth.MEANING, console)
        tabular.show(worth.table(plan, explanation.precisions, explanation.users))
    if explanation.together:
        print_wrapped(
            "What is asked together can be estimated together. Apart, a combination is estimated "
            "from records that report each attribute by itself, with its part of epsilon, and an "
            "attribute as the budget says.",
            console,
        )
        explain_views.show(explanation.together, plan, explanation.users, console)
    if explanation.changes:
        print_wrapped(
            "A change between two periods is found with probability 0.8 from this size on, by the "
            "test of one value at significance 0.05 (hearsay query --change). Without panels the "
            "test allows for whatever the same people may do."
            + (
                " Memos: where one person in ten answers otherwise in the second period."
                if memos
                else ""
            ),
            console,
        )
        explain_changes.show(explanation.changes, explanation.users, console)
    if explanation.pairs:
        print_wrapped(
            "Records tell of two attributes together, as long as their rows are kept. A test of "
            "independence finds a dependence as often as one of so many users without privacy.",
            console,
        )
        explain_pairs.show(explanation.pairs, explanation.users, console)
