"""From tallies to answers: estimation, pooling, consistency and errors.

Nothing here reads a store or a clock, so that the same tallies give the same answers anywhere.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hearsay import asking
from hearsay.asking import cautions, roles
from hearsay.asking.columns import DIFFERENCE_COLUMNS, NO_MAP
from hearsay.plans.kinds import ByKind, Domain, Grid, Ratings, Strings
from hearsay.plans.plan import Plan
from hearsay.plans.views import View
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import sets as sets_of
from hearsay_server.answers import tables
from hearsay_server.answers.repeats import of_levels
from hearsay_server.ingest.intake import Cohort
from ldp import Estimate, FrequencyOracle, InvalidInput, Tally
from ldp.assurance.poisoning import largest_shift
from ldp.core.estimation import Cohorts
from ldp.core.estimator import Estimator
from ldp.core.mechanism import Categorical as CategoricalMechanism
from ldp.core.tally import add_up
from ldp.errors import NotReady
from ldp.estimating import pooling, strata
from ldp.estimating import sums as summing
from ldp.estimating.consistency import make_consistent
from ldp.estimating.differences import differences
from ldp.estimating.marginals import Marginal, Part
from ldp.estimating.pooling import Method
from ldp.estimating.ratings import mean_ratings
from ldp.estimating.recovery import ldp_recover
from ldp.estimating.strata import Answer
from ldp.mechanisms.ranges.waves import Waves

_QUICK = 256
"""Values up to which levels are tested and pooled by maximum likelihood unless a method is asked
for: the cost grows with their cube."""

_CONFIDENCE = 0.95
"""Of intervals, unless a question says otherwise."""

NOT_TESTED = {"homogeneity": None, "detectable_difference": None}
"""Figures of an answer whose levels were not tested."""

STRATIFIED = "stratified"
"""The method that assumes nothing about how people of different levels and maps differ."""

Tallies = Mapping[Cohort, Tally]
Floats = NDArray[np.float64]


Confident = (
    analyst_pb2.EstimateRequest
    | analyst_pb2.CompareRequest
    | analyst_pb2.DistributionRequest
    | analyst_pb2.PairsRequest
    | analyst_pb2.CrosstabRequest
    | analyst_pb2.CompareGroupsRequest
    | analyst_pb2.FitRequest
    | analyst_pb2.ChangeRequest
    | analyst_pb2.WordsRequest
)
"""Questions that are answered with intervals."""


def confidence_of(question: Confident) -> float:
    """Return the probability with which a question's intervals are to cover, as it was given."""
    return question.confidence if question.HasField("confidence") else _CONFIDENCE


class NoReports(NotReady):
    """There is nothing to estimate from."""


def answered(
    plan: Plan, attribute: str, tallies: Tallies, method: str = "", *, forgeable: bool = False
) -> Answer:
    """Estimate an attribute from its cohorts, in the mechanism's units: a level's periods add up.

    Errors allow for the same people in several periods. Without a method the estimate is
    stratified by level and map, unless the survey says how much these differ; a method of `pool`
    names how they are pooled as if their people answered alike. If `forgeable` it is a method for
    which the effect of forged reports is known. Raises `NoReports` where there are none,
    `InvalidInput` for a method that does not apply.
    """
    return _answered(plan, attribute, by_level(plan, attribute, tallies), method, forgeable)


def _answered(plan: Plan, attribute: str, cohorts: Cohorts, method: str, forgeable: bool) -> Answer:
    """Do as `answered`, from the sums of each level and map."""
    if forgeable:
        method = _forgeable(method)
    pooling_method, most = _pooled_how(plan, attribute, cohorts, method)
    tested = not _many(plan, attribute)
    return strata.answer(cohorts, pooling_method, most=most, tested=tested)


def doubts(plan: Plan, attribute: str, answer: Answer) -> list[asking.Note]:
    """Return the notes on an answer that is pooled, and may describe nobody."""
    groups: cautions.Pooled = "levels or maps" if plan.maps(attribute) else "levels"
    if answer.doubt == "untested":
        return [asking.Note.of(cautions.groups_not_tested, groups=groups)]
    if answer.doubt == "differ" and (test := answer.homogeneity):
        return [
            asking.Note.of(
                cautions.groups_differ,
                groups=groups,
                statistic=test.statistic,
                degrees=test.degrees,
                p_value=test.p_value,
            )
        ]
    return []


def _many(plan: Plan, attribute: str) -> bool:
    domain = plan.asked(attribute).domain
    return domain.joins and len(domain.labels) > _QUICK


def _pooled_how(
    plan: Plan, attribute: str, cohorts: Cohorts, method: str
) -> tuple[Method | None, float]:
    """Return the method of `strata.answer`, and by how much levels differ at most."""
    if method and method != STRATIFIED:
        return pooling.named(method), 0.0
    most = math.inf
    if not method and plan.levels_differ_at_most is not None:
        low, high = cohorts.bounds
        most = plan.levels_differ_at_most * (high - low)
    return (pooling.named("inverse_variance") if _many(plan, attribute) else None), most


IN_WORDS = (
    "is answered in words: ask for those that are frequent, or for the shares of listed ones "
    "(`hearsay ask words`, Analyst.heavy_hitters, Analyst.frequencies_of)"
)
"""What to ask instead of a question about values, where answers are words."""


def by_level(
    plan: Plan, attribute: str, tallies: Tallies, others: Tallies | None = None
) -> Cohorts:
    """Return the mechanism of each level and map and the sum of its periods' tallies, as cohorts.

    Of an attribute in views, or of a view that others contain, a level has one estimator of the
    reports of all these views. `others` are reports that the cohorts are compared with
    (`repeats.of_levels`). Raises `NoReports` where there are no tallies.
    """
    return of_attributes(plan, plan.parts(attribute), tallies, others)


def of_attributes(
    plan: Plan, attributes: Sequence[str], tallies: Tallies, others: Tallies | None = None
) -> Cohorts:
    """Do as `by_level` for the combinations of some attributes' values, in the order of a view.

    The tallies are of questions that ask all of them.
    """
    each = of_strata(plan, attributes, tallies)
    return Cohorts(list(each.values()), of_levels(plan, tallies, others))


def of_strata(
    plan: Plan, attributes: Sequence[str], tallies: Tallies
) -> dict[tuple[str, str], tuple[Estimator, Tally]]:
    """Return the estimator and the sum of the tallies of each level and map with reports of some
    attributes, by (level, map). Raises `NoReports` where there are none."""
    for name in attributes:
        if isinstance(plan.attributes[name].domain, Strings):
            raise InvalidInput(f"{name!r} {IN_WORDS}")
    if not tallies:
        names = " and ".join(map(repr, attributes))
        raise NoReports(f"there are no such reports of {names} yet")
    sums: dict[tuple[str, str], dict[str, Tally]] = {}
    for cohort, tally in tallies.items():
        add_up(sums.setdefault((cohort.level, cohort.map), {}), [(cohort.attribute, tally)])
    return {chosen: _cohort_of(plan, attributes, *chosen, asked) for chosen, asked in sums.items()}


def _cohort_of(
    plan: Plan, attributes: Sequence[str], level: str, chosen: str, asked: Mapping[str, Tally]
) -> tuple[Estimator, Tally]:
    """Return the estimator of some attributes at one level and map, and the tally that it reads."""
    mechanisms = plan.levels[level].mechanisms
    (question, tally), *more = asked.items()
    if not more and plan.parts(question) == tuple(attributes):
        mechanism = plan.levels[level].by_map[question][chosen]
        return sets_of.ESTIMATORS[plan.questions[question].domain](mechanism), tally
    parts = []
    for question, tally in asked.items():  # attributes of views have no maps
        mechanism, view = mechanisms[question], plan.views[question]
        assert isinstance(mechanism, CategoricalMechanism)  # as the plan was checked
        parts.append(Part(mechanism, tally, _wanted(view, attributes)))
    size = math.prod(len(plan.attributes[name].domain.labels) for name in attributes)
    found = Marginal(parts, size)
    return found, found.tally


def _wanted(view: View, attributes: Sequence[str]) -> NDArray[np.intp]:
    """Return for each combination of a view that of some of its attributes."""
    each = np.unravel_index(np.arange(view.combinations), view.sizes)
    places = [view.attributes.index(name) for name in attributes]
    sizes = tuple(view.sizes[place] for place in places)
    return np.asarray(np.ravel_multi_index(tuple(each[place] for place in places), sizes))


def repeats_memos(plan: Plan, attribute: str, tallies: Tallies) -> bool:
    """Tell whether devices may have sent the same codes in several of the cohorts' periods."""
    memo = bool(plan.asked(attribute).memo)
    return memo and len({cohort.period for cohort in tallies}) > 1


def _forgeable(method: str) -> str:
    """Return a pooling method for which the effect of forged reports is known."""
    if method not in ("", "inverse_variance", "scalar"):
        raise InvalidInput(
            "what forged reports can do is known for the methods inverse_variance and scalar, "
            f"not for {method!r}"
        )
    return method or "inverse_variance"


def estimate(plan: Plan, question: analyst_pb2.EstimateRequest, tallies: Tallies) -> asking.Answer:
    """Answer an `EstimateRequest` from the tallies of its cohorts.

    Raises `NoReports` where there are none, `InvalidInput` for what cannot be asked.
    """
    asked = plan.asked(question.attribute)
    domain = asked.domain
    sets_of.check(asked, question)
    sets = sets_to_sum(plan, question)
    cohorts = by_level(plan, question.attribute, tallies)
    if question.sizes:
        return _sizes(plan, question, cohorts, tallies)
    answer = _answered(
        plan, question.attribute, cohorts, question.method, question.HasField("forged")
    )
    raw = _bounded(plan, question, answer, domain.in_units(answer.estimate))
    value, tag = _processed(question, [mechanism for mechanism, _ in cohorts], raw)
    if sets is None:
        found, notes = _rows(plan, question, cohorts, answer, value if tag else None)
    else:
        found, notes = _sums(plan, question, cohorts, sets, value if tag else None), []
    seen = None
    if answer.detectable is not None:
        seen = min(domain.units * answer.detectable, raw.bounds[1] - raw.bounds[0])
    return asking.Answer(
        "estimate" if sets is None else "sums",
        plan.survey,
        (asking.Subject(question.attribute, asked.title),),
        domain.statistic,
        tuple(found),
        confidence_of(question),
        question.simultaneous,
        raw.n,
        repeats=cohorts.most_repeated,
        method=raw.method + tag,
        notes=(*doubts(plan, question.attribute, answer), *notes),
        figures={
            "homogeneity": answer.homogeneity.p_value if answer.homogeneity else None,
            "detectable_difference": seen,
        },
        cohorts=cohorts_of(plan, tallies),
    )


def _rows(
    plan: Plan,
    question: analyst_pb2.EstimateRequest,
    cohorts: Cohorts,
    answer: Answer,
    processed: Floats | None,
) -> tuple[list[asking.Table], list[asking.Note]]:
    """Return a row for each label that is shown, with the processed estimates where there are any,
    and what to note of them."""
    domain, confidence = plan.asked(question.attribute).domain, confidence_of(question)
    raw = domain.in_units(answer.estimate)
    columns = tables.columns_of(raw, confidence, question.simultaneous)
    notes: list[asking.Note] = []
    if processed is not None:
        columns |= {"estimate": processed, "raw": raw.value}
    if domain.statistic == "frequency":
        columns["effective_sample_size"] = effective_sample_size(raw)
    if isinstance(domain, Ratings):
        columns, notes = sets_of.rating_columns(
            domain,
            mean_ratings(cohorts, alike=answer.alike is None and len(cohorts) > 1),
            raw,
            confidence=confidence,
            simultaneous=question.simultaneous,
        )
    elif answer.alike:
        alike = domain.in_units(answer.alike)
        low, high = alike.interval(confidence, simultaneous=question.simultaneous)
        columns |= {"alike": alike.value, "alike_low": low, "alike_high": high}
    if question.HasField("forged"):
        sets_of.check_forged(cohorts)
        shift = largest_shift(cohorts, question.forged, question.method or "inverse_variance")
        columns |= {"shift_down": domain.units * shift.down, "shift_up": domain.units * shift.up}
        if not question.method and len(cohorts) > 1:
            notes.append(asking.Note.of(cautions.pooled_for_forged))
    places = shown(question, domain, np.nan_to_num(columns["estimate"], nan=-math.inf))
    rows = tables.estimates(
        "rows",
        (question.attribute, [domain.labels[place] for place in places.tolist()]),
        {name: column[places] for name, column in columns.items()},
        roles.unit_of(domain.statistic),
        len(domain.labels) - len(places),
    )
    return [rows, tables.rated(rows)] if "share" in columns else [rows], notes


def _sums(
    plan: Plan,
    question: analyst_pb2.EstimateRequest,
    cohorts: Cohorts,
    sets: Floats,
    processed: Floats | None,
) -> list[asking.Table]:
    """Return a row for each sum, of the processed estimates where there are any."""
    method, most = _pooled_how(plan, question.attribute, cohorts, question.method)
    summed = summing.sums(cohorts, sets, method, most=most)
    columns = tables.columns_of(summed, confidence_of(question), question.simultaneous)
    columns["effective_sample_size"] = effective_sample_size(summed)
    if processed is not None:
        columns |= {"raw": summed.value, "estimate": sets @ processed}
    return [tables.estimates("sums", sums_of(question), columns, "share")]


def _bounded(
    plan: Plan, question: analyst_pb2.EstimateRequest, answer: Answer, found: Estimate
) -> Estimate:
    """Return an estimate whose method names the bound on levels in the unit of the answer."""
    most = plan.levels_differ_at_most
    if answer.alike is None or question.method or most is None:
        return found
    low, high = found.bounds
    return replace(found, method=strata.bounded_name(most * (high - low)))


def sums_of(question: analyst_pb2.EstimateRequest) -> tuple[str, list[str]]:
    """Return the index of a table of sums: its name, and the values of each."""
    return question.attribute, [" + ".join(chosen.values) for chosen in question.sums]


def _sizes(
    plan: Plan,
    question: analyst_pb2.EstimateRequest,
    cohorts: Cohorts,
    tallies: Tallies,
) -> asking.Answer:
    """Answer with the sizes of sets."""
    asked = plan.asked(question.attribute)
    domain = sets_of.items_of(asked, "sizes")
    if question.top or question.values:
        raise InvalidInput("sizes are answered with all their rows: leave out top and values")
    confidence = confidence_of(question)

    def answered(some: Cohorts) -> Answer:
        return _answered(plan, question.attribute, some, question.method, False)

    mean, each, of_mean, notes = sets_of.sizes(
        domain, cohorts, answered, confidence, question.simultaneous
    )
    notes += doubts(plan, question.attribute, mean)
    return asking.Answer(
        "sizes",
        plan.survey,
        (asking.Subject(question.attribute, asked.title),),
        "share",
        tables.of_sizes(question.attribute, domain.sizes, each, of_mean),
        confidence,
        question.simultaneous,
        mean.estimate.n,
        repeats=cohorts.most_repeated,
        method=_bounded(plan, question, mean, replace(mean.estimate, bounds=(0.0, 1.0))).method,
        notes=tuple(notes),
        figures=NOT_TESTED,
        cohorts=cohorts_of(plan, tallies),
    )


def sets_to_sum(plan: Plan, question: analyst_pb2.EstimateRequest) -> Floats | None:
    """Return the sets of values to sum, shape (sets, k), as ones among zeros; None without any."""
    if not question.sums:
        return None
    sets = value_sets(plan, question.attribute, question.sums)
    if question.HasField("forged"):
        raise InvalidInput("what forged reports can do to a sum is not known: ask for values")
    return sets


_OF_A_NUMBER = "is a number, and has no values to sum: ask how it is distributed"

_NO_SUMS = ByKind.otherwise(
    "has no values to sum",
    category="",
    number=_OF_A_NUMBER,
    bins=_OF_A_NUMBER,
    set="is a set of items: people may have several, so shares do not add up to a share of people",
    ratings="are ratings: they have no values to sum",
    words=IN_WORDS,
)
"""Why values cannot be summed, "" of what has such values."""


def check_sums(plan: Plan, attribute: str) -> None:
    """Raise `InvalidInput` for an attribute whose values cannot be summed."""
    if why := _NO_SUMS[plan.asked(attribute).domain]:
        raise InvalidInput(f"{attribute!r} {why}")


MOST_SUMS = 1024
"""Sums, or ranges over time, that one question may ask for: each takes as much as all values do."""


def value_sets(plan: Plan, attribute: str, sums: Sequence[analyst_pb2.ValueSet]) -> Floats:
    """Return sets of an attribute's values, shape (sets, k), as ones among zeros.

    Raises `InvalidInput` as `check_sums`, and for sets that have other values, or none.
    """
    check_sums(plan, attribute)
    if len(sums) > MOST_SUMS:
        raise InvalidInput(f"a question has at most {MOST_SUMS} sums, got {len(sums)}")
    domain = plan.asked(attribute).domain
    places = {value: place for place, value in enumerate(domain.labels)}
    sets = np.zeros((len(sums), len(places)))
    for row, chosen in zip(sets, sums, strict=True):
        for value in chosen.values:
            if value not in places:
                raise InvalidInput(f"{value!r} is no value of {attribute!r}: expected {domain}")
            if row[places[value]]:
                raise InvalidInput(f"a sum has each value once, got {value!r} twice")
            row[places[value]] = 1
        if not chosen.values:
            raise InvalidInput("a sum is of one value at least, got none")
    return sets


_SHIFTED = 0.05
"""The change of a level's share of the reports from which an analyst is told of it."""


def compare(
    plan: Plan, question: analyst_pb2.CompareRequest, first: Tallies, second: Tallies
) -> asking.Answer:
    """Answer a `CompareRequest` from the tallies of both parts' cohorts, which differ.

    Each part's estimate is stratified by level and map. Errors allow for people who are in both
    parts. Raises `NoReports` where a part has none, `InvalidInput` for what cannot be asked.
    """
    attribute = question.attribute
    if not (first and second):
        part = "second" if first else "first"
        raise NoReports(f"there are no reports of {attribute!r} in the {part} part yet")
    parts = by_level(plan, attribute, first, second), by_level(plan, attribute, second, first)
    found = differences(*parts)
    confidence = confidence_of(question)
    low, high = found.interval(confidence, simultaneous=question.simultaneous)
    domain = plan.asked(attribute).domain
    columns = (
        domain.in_units(found.first).value,
        domain.in_units(found.second).value,
        domain.units * found.value,
        domain.units * found.standard_error,
        domain.units * low,
        domain.units * high,
        found.p_value,
        found.adjusted_p_value,
    )
    unit = roles.unit_of(domain.compared)
    each = zip(DIFFERENCE_COLUMNS, columns, strict=True)
    rows = asking.Table(
        "rows",
        roles.index((attribute, domain.labels)),
        tuple(roles.column(*named, unit) for named in each),
    )
    return asking.Answer(
        "compare",
        plan.survey,
        (asking.Subject(attribute, plan.asked(attribute).title),),
        domain.compared,
        (rows,),
        confidence=confidence,
        simultaneous=question.simultaneous,
        reports=found.first.n + found.second.n,
        parts={"first": found.first.n, "second": found.second.n},
        repeats=max(part.most_repeated for part in parts),
        notes=tuple(_shifted(first, second)),
    )


def _shifted(first: Tallies, second: Tallies) -> Iterator[asking.Note]:
    """Yield a note where parts of several levels or maps differ in their shares of the reports."""
    yield from _moved("level", first, second, lambda cohort: cohort.level)
    yield from _moved("map", first, second, lambda cohort: cohort.map or NO_MAP)


def _moved(
    kind: cautions.Chosen, first: Tallies, second: Tallies, name: Callable[[Cohort], str]
) -> Iterator[asking.Note]:
    shares = []
    for part in (first, second):
        n = sum(tally.n for tally in part.values())
        counts: Counter[str] = Counter()
        for cohort, tally in part.items():
            counts[name(cohort)] += tally.n
        shares.append({level: count / n for level, count in counts.items()})
    if min(map(len, shares)) < 2:
        return  # two of them, or one of several, were asked for
    one, other = shares
    moved = {level: abs(other.get(level, 0) - one.get(level, 0)) for level in one | other}
    level = max(moved, key=lambda name: moved[name])
    if moved[level] > _SHIFTED:
        yield asking.Note.of(
            cautions.share_moved,
            kind=kind,
            name=level,
            first=one.get(level, 0.0),
            second=other.get(level, 0.0),
        )


def shown(
    question: analyst_pb2.EstimateRequest, domain: Domain | Grid, estimates: Floats
) -> NDArray[np.intp]:
    """Return the positions of the rows to answer with: of `values`, of `top`, or of all."""
    if question.top and question.values:
        raise InvalidInput("ask for the top rows or for the rows of some values, not both")
    if question.top:
        return np.argsort(-estimates, kind="stable")[: question.top]
    if not question.values:
        return np.arange(estimates.size)
    if domain.statistic == "mean":
        raise InvalidInput(f"{question.attribute!r} is a number: it has no values to choose from")
    codes = {value: code for code, value in enumerate(domain.labels)}
    if unknown := [value for value in question.values if value not in codes]:
        raise InvalidInput(
            f"{question.attribute!r} has no value {unknown[0]!r}; its values are {domain}"
        )
    return np.array([codes[value] for value in dict.fromkeys(question.values)])


def effective_sample_size(raw: Estimate) -> Floats:
    """Return f (1 - f) / standard_error**2 for frequencies, 0 outside (0, 1) and without an error.

    So many people asked without any privacy would have given an estimate with this error.
    """
    f = np.clip(raw.value, 0, 1)
    variance = raw.standard_error**2
    return np.divide(f * (1 - f), variance, out=np.zeros_like(f), where=variance > 0)


def _processed(
    question: analyst_pb2.EstimateRequest, mechanisms: Sequence[Estimator], raw: Estimate
) -> tuple[Floats, str]:
    """Return the values to show, and a suffix for the method's name: "" if they are raw."""
    if question.consistency and question.HasField("recover"):
        raise InvalidInput("ask for a consistency or for recovery, not both: recovery has its own")
    if question.consistency and any(isinstance(each, Waves) for each in mechanisms):
        raise InvalidInput(
            "the errors of bins are correlated, and a consistency would make those of ranges "
            "several times as large: ask for the distribution, whose shares are not negative"
        )
    if question.consistency:
        return make_consistent(raw, question.consistency).value, f" + {question.consistency}"
    if not question.HasField("recover"):
        return raw.value, ""
    if len(mechanisms) > 1 or not isinstance(mechanisms[0], FrequencyOracle):
        names = ", ".join(mechanism.name for mechanism in mechanisms)
        raise InvalidInput(
            f"recovery is for the reports of one frequency oracle, got {names}: ask for one level"
        )
    recovered = ldp_recover(mechanisms[0], raw, question.recover)
    return recovered.value, f" + ldp-recover({question.recover:g})"


def cohorts_of(plan: Plan, tallies: Tallies) -> tuple[asking.Cohort, ...]:
    """Return the cohorts that went into an answer."""
    found = []
    for cohort, tally in tallies.items():
        mechanism = plan.levels[cohort.level].by_map[cohort.attribute][cohort.map]
        found.append(
            asking.Cohort(
                cohort.revision,
                cohort.level,
                cohort.period,
                cohort.map,
                mechanism.realised_epsilon,
                mechanism.name,
                tally.n,
            )
        )
    return tuple(found)
