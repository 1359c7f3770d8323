"""Answers for the population, from respondents whose public groups have known shares in it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hearsay.asking import cautions
from hearsay.asking.answer import Answer, Note, Table
from hearsay.plans.kinds import Ratings, SetOf
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import few, queries, tables
from hearsay_server.answers import sets as sets_of
from hearsay_server.answers.queries import Floats, Tallies, confidence_of
from hearsay_server.answers.repeats import of_groups, people
from hearsay_server.ingest.intake import Cohort
from ldp import InvalidInput, SetBits, Tally
from ldp.core.estimation import Cohorts
from ldp.core.estimator import Estimator
from ldp.core.tally import add_up
from ldp.estimating.raking import LEAST, Margin, Weights, rake, reconciled
from ldp.estimating.sets import MeanSize, SetSizes
from ldp.estimating.weighting import weighted, weighted_ratings
from ldp.mechanisms import SetMechanism


def estimate(plan: Plan, question: analyst_pb2.EstimateRequest, tallies: Tallies) -> Answer:
    """Answer an `EstimateRequest` with margins, from tallies whose cohorts have their own groups.

    The answer is that without margins, whose estimates stand beside the weighted ones: they are
    stratified, too, whatever the survey says of its levels. Raises as `queries.estimate`, and
    `InvalidInput` for margins that the survey or its respondents do not fit.
    """
    check(plan, question)
    plain = analyst_pb2.EstimateRequest()
    plain.CopyFrom(question)
    for name in ("margins", "least", "top", "values"):
        plain.ClearField(name)
    plain.method = queries.STRATIFIED
    answer = queries.estimate(plan, plain, ungrouped(tallies))
    weights, groups, assumed = weights_of(plan, question, tallies)
    weighed = _weighed(plan, question, answer, groups, weights)
    weighed = replace(weighed, method=method(question), figures=queries.NOT_TESTED)
    return noted(weighed, weights, assumed)


def ungrouped(tallies: Tallies) -> Tallies:
    """Return the sums over the groups of tallies whose cohorts have their own groups."""
    sums: dict[Cohort, Tally] = {}
    for cohort, tally in tallies.items():
        add_up(sums, [(replace(cohort, group=""), tally)])
    return sums


def weights_of(
    plan: Plan,
    question: analyst_pb2.EstimateRequest | analyst_pb2.DistributionRequest,
    tallies: Tallies,
) -> tuple[Weights, list[Cohorts], list[Note]]:
    """Return the weights that a question's margins give the groups, the groups' cohorts, and what
    is assumed of the part of the population that is selected."""
    margins, assumed = _margins(plan, question)
    groups: dict[str, dict[Cohort, Tally]] = {}
    for cohort, tally in tallies.items():
        groups.setdefault(cohort.group, {})[cohort] = tally
    each = _by_group(plan, question.attribute, groups)
    weights = rake(
        tuple(plan.properties.by_name),
        [tuple(plan.properties.values_of(name).values()) for name in each],
        [cohorts.n for cohorts in each.values()],
        margins,
        least=question.least if question.HasField("least") else LEAST,
        people=[people(plan, groups[name]) for name in each],
    )
    few.check_weights(weights)
    return weights, list(each.values()), assumed


def method(question: analyst_pb2.EstimateRequest | analyst_pb2.DistributionRequest) -> str:
    """Return the method's name of an answer with margins."""
    return f"weighted to {', '.join(' and '.join(m.properties) for m in question.margins)}"


def noted(answer: Answer, weights: Weights, assumed: Sequence[Note]) -> Answer:
    """Return an answer with what there is to know of its weights."""
    return replace(
        answer,
        reports=weights.n,
        notes=(*answer.notes, *_told(weights, assumed)),
        figures={
            **answer.figures,
            "design_effect": weights.design_effect,
            "weights": list(weights.range),
        },
    )


def _told(weights: Weights, assumed: Sequence[Note]) -> Iterator[Note]:
    yield from assumed
    if left := int(weights.counts.sum()) - weights.n:
        yield Note.of(cautions.without_share, respondents=left)
    if weights.joined:
        yield Note.of(cautions.joined, groups=weights.joined)


def check(plan: Plan, question: analyst_pb2.EstimateRequest) -> None:
    """Raise `InvalidInput` for what a weighted estimate does not have, and margins that do not fit
    the survey."""
    for name in ("consistency", "forged", "recover"):
        if question.HasField(name) if name != "consistency" else question.consistency:
            raise InvalidInput(f"weighted estimates have no {name}: leave it out, or the margins")
    if question.method not in ("", queries.STRATIFIED):
        raise InvalidInput(
            f"weighted estimates are stratified by level, got the method {question.method!r}"
        )
    _margins(plan, question)


def _margins(
    plan: Plan, question: analyst_pb2.EstimateRequest | analyst_pb2.DistributionRequest
) -> tuple[list[Margin], list[Note]]:
    """Return a question's margins within the part of the population that it selects by properties,
    and what they assume of it; raise `InvalidInput` where they do not fit the survey."""
    if not plan.properties:
        raise InvalidInput(
            f"{plan.survey!r} declares no properties, which margins are shares by: declare them "
            "before people answer"
        )
    given = reconciled([_margin(plan, margin) for margin in question.margins])
    selected = {each.property: list(each.values) for each in question.selection.where}
    found, assumed = [], []
    for margin in given:
        own = set(margin.properties)
        if own <= selected.keys():
            raise InvalidInput(
                f"reports are selected by {', '.join(sorted(own))}, which is all that a margin is "
                "of: select by a share of 0, or leave the margin out"
            )
        if lacking := selected.keys() - own:
            if any(own | lacking <= set(other.properties) for other in given):
                continue  # it follows from the other one, and is of the whole population
            rest = [name for name in margin.properties if name not in selected]
            assumed.append(Note.of(cautions.same_within, properties=rest, within=sorted(lacking)))
        found.append(margin.within(selected))
    return found, assumed


def _margin(plan: Plan, given: analyst_pb2.Margin) -> Margin:
    """Return a margin whose rows are in the survey's order, none given last, whatever the file's:
    of rows that are as small, the first ones are joined."""
    names = tuple(given.properties)
    shares = {tuple(row.values): row.share for row in given.rows}
    if len(shares) < len(given.rows):  # `Margin` says which
        return Margin(names, [tuple(row.values) for row in given.rows], np.zeros(len(given.rows)))
    Margin(names, list(shares), np.array(list(shares.values())))  # checked before its values
    for row in shares:
        for name, value in zip(names, row, strict=True):
            plan.properties.check(name, value)
    values = [(*plan.properties.named(name).values, "") for name in names]

    def place(row: tuple[str, ...]) -> list[int]:
        return [those.index(value) for those, value in zip(values, row, strict=True)]

    rows = sorted(shares, key=place)
    return Margin(names, rows, np.array([shares[row] for row in rows]))


def _by_group(plan: Plan, attribute: str, groups: Mapping[str, Tallies]) -> dict[str, Cohorts]:
    """Return the cohorts of each group that has reports: one for each level and map."""
    repeats = of_groups(plan, groups)
    return {
        name: Cohorts(
            list(queries.of_strata(plan, plan.parts(attribute), some).values()), repeats[name]
        )
        for name, some in groups.items()
    }


def _weighed(
    plan: Plan,
    question: analyst_pb2.EstimateRequest,
    answer: Answer,
    groups: Sequence[Cohorts],
    weights: Weights,
) -> Answer:
    """Return an answer with weighted estimates, beside those of the answer without weights."""
    asked = plan.asked(question.attribute)
    domain, confidence = asked.domain, confidence_of(question)
    if question.sizes:
        items = sets_of.items_of(asked, "sizes")
        return _sized(question, groups, weights, items, answer)
    if question.sums:
        sets = queries.sets_to_sum(plan, question)
        summed = weighted(groups, weights, sets).estimate
        columns = tables.columns_of(summed, confidence, question.simultaneous)
        columns["effective_sample_size"] = queries.effective_sample_size(summed)
        return replace(answer, tables=(_beside(answer.table(), columns),))
    found = domain.in_units(weighted(groups, weights).estimate)
    if isinstance(domain, Ratings):
        means = weighted_ratings(groups, weights)
        columns, unknown = sets_of.rating_columns(
            domain, means, found, confidence=confidence, simultaneous=question.simultaneous
        )
        answer = replace(answer, notes=tuple(unknown))
        order = np.nan_to_num(columns["estimate"], nan=-np.inf)
    else:
        columns = tables.columns_of(found, confidence, question.simultaneous)
        order = found.value
        if domain.statistic == "frequency":
            columns["effective_sample_size"] = queries.effective_sample_size(found)
    rows = _beside(answer.table(), columns, queries.shown(question, domain, order))
    return replace(answer, tables=(rows, tables.rated(rows)) if "share" in columns else (rows,))


def _beside(
    table: Table, columns: dict[str, Floats], places: NDArray[np.intp] | None = None
) -> Table:
    """Return a table with these columns, and its own estimates as `unweighted`, in the rows at
    these places, or in all."""
    (level,) = table.index
    if places is None:
        places = np.arange(len(table))
    for name in ("estimate", "standard_error"):
        unweighted = {"estimate": "unweighted"}.get(name, f"unweighted_{name}")
        columns[unweighted] = np.asarray(table.column(name).values, dtype=np.float64)
    return tables.estimates(
        table.name,
        (level.name, [str(level.labels[place]) for place in places.tolist()]),
        {name: column[places] for name, column in columns.items()},
        table.column("estimate").unit,
        len(table) - len(places),
        table.statistic,
    )


def _sized(
    question: analyst_pb2.EstimateRequest,
    groups: Sequence[Cohorts],
    weights: Weights,
    domain: SetOf,
    answer: Answer,
) -> Answer:
    """Return an answer about sizes with weighted estimates."""
    each, of_mean = _sizes(question, groups, weights, domain, answer.confidence)
    notes = [note for note in answer.notes if note.code != cautions.larger_sets.__name__]
    if len(notes) < len(answer.notes):
        notes.append(sets_of.larger(domain, float(each["estimate"][-1])))
    columns = {"rows": each, tables.MEAN: of_mean}
    beside = [_beside(table, columns[table.name]) for table in answer.tables]
    return replace(answer, tables=tuple(beside), notes=tuple(notes))


def _sizes(
    question: analyst_pb2.EstimateRequest,
    groups: Sequence[Cohorts],
    weights: Weights,
    domain: SetOf,
    confidence: float,
) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return the columns of weighted sizes of sets, where they are known, and of the mean size."""
    if question.top or question.values:
        raise InvalidInput("sizes are answered with all their rows: leave out top and values")
    mechanisms = [mechanism for cohorts in groups for mechanism, _ in cohorts]
    bits = [isinstance(mechanism, SetBits) for mechanism in mechanisms]
    if any(bits) and not all(bits):
        raise InvalidInput(
            "some levels' reports are set_bits, which tell the mean size alone: ask for one level"
        )

    def made(make: Callable[[SetMechanism], Estimator]) -> list[Cohorts]:
        return [
            Cohorts([(make(m), t) for m, t in cohorts], cohorts.repeats)  # type: ignore[arg-type]
            for cohorts in groups
        ]

    mean = weighted(made(lambda m: MeanSize(m, domain.most)), weights).estimate
    if any(bits):
        return {}, tables.columns_of(mean, confidence)
    shares = weighted(made(SetSizes.of), weights).estimate
    sizes, one = confidence, confidence
    if question.simultaneous:
        sizes = sets_of.each_at(confidence, domain, len(shares.value))
        one = sets_of.each_at(confidence, domain)
    each = tables.columns_of(shares, sizes, question.simultaneous)
    return each, tables.columns_of(mean, one)
