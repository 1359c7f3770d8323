"""Answers about words: which are frequent, and how frequent listed ones are."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from hearsay.asking.answer import Answer, Subject
from hearsay.asking.columns import COLUMNS
from hearsay.plans.kinds import Strings
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2, collector_pb2
from hearsay_server.answers import tables
from hearsay_server.answers.queries import (
    NOT_TESTED,
    NoReports,
    Tallies,
    cohorts_of,
    confidence_of,
)
from hearsay_server.answers.repeats import of_levels
from hearsay_server.storage.selection import Selected
from ldp import RAPPOR, Estimate, InvalidInput, PrefixHashing, Tally
from ldp.core.intervals import check_confidence
from ldp.core.tally import add_up
from ldp.estimating.dictionary import estimate_strings
from ldp.estimating.discovery import discover, smallest_shares
from ldp.estimating.words import WordReports, estimate_words

_SHOWN = 20
"""Words that are found and shown, unless more are asked for."""

_MOST = 100_000
"""The most words that one question lists."""

ByLevel = Mapping[str, bytes]
"""The codes of an attribute's reports, by level."""


def from_tallies(plan: Plan, attribute: str) -> bool:
    """Tell whether the tallies tell of an attribute's words, and no reports need be read."""
    mechanisms = (level.mechanisms[attribute] for level in plan.levels.values())
    return all(isinstance(mechanism, RAPPOR) for mechanism in mechanisms)


def check(plan: Plan, question: analyst_pb2.WordsRequest) -> None:
    """Raise `InvalidInput` for what cannot be asked."""
    domain = _domain(plan, question.attribute)
    check_confidence(confidence_of(question))
    if question.discover:
        if question.candidates:
            raise InvalidInput("ask for the words that are frequent, or for listed ones, not both")
        return
    if len(question.candidates) > _MOST:
        raise InvalidInput(
            f"a question lists at most {_MOST} words, got {len(question.candidates)}"
        )
    if not question.candidates and not domain.candidates:
        raise InvalidInput(
            f"the survey lists no words of {question.attribute!r}: list some, or ask for those "
            "that are frequent"
        )
    domain.check_words("words", question.candidates)


def _domain(plan: Plan, attribute: str) -> Strings:
    domain = plan.asked(attribute).domain
    only = f"words are of answers in words: {attribute!r} is answered by {domain}"
    return Strings.expected(domain, only)


def collected(
    plan: Plan,
    attribute: str,
    selected: Selected,
    batches: Iterable[Sequence[collector_pb2.Batch]],
) -> dict[str, bytes]:
    """Return the codes of an attribute's reports that are selected, by level.

    The batches are of the periods selected, and were checked before they were stored.
    """
    found: dict[str, list[bytes]] = {}
    for page in batches:
        for batch in page:
            if selected.panels and batch.panel not in selected.panels:
                continue
            if selected.groups and plan.properties.group(batch.properties) not in selected.groups:
                continue
            for column in batch.columns:
                if column.attribute == attribute and column.level in selected.levels:
                    found.setdefault(column.level, []).append(column.codes)
    return {name: b"".join(parts) for name, parts in found.items()}


def words(
    plan: Plan, question: analyst_pb2.WordsRequest, tallies: Tallies, parts: Sequence[ByLevel]
) -> Answer:
    """Answer a `WordsRequest` from the tallies of a selection and the codes of its reports.

    `parts` are not read where the tallies tell (`from_tallies`). Levels are pooled, as if people of
    all levels used the same words: few would be found otherwise. Frequent words are those of the
    survey's own list where it has one, whose reports tell of no others. Where rows are left out,
    intervals cover all words at once, of which those with the largest estimates are shown. Raises
    `NoReports` where there are no reports; the question was checked (`check`).
    """
    attribute = question.attribute
    confidence = confidence_of(question)
    listed: Sequence[str] = question.candidates or _domain(plan, attribute).candidates
    shares: Sequence[float] = []
    if from_tallies(plan, attribute):
        estimate = _regressed(plan, attribute, tallies, listed)
    else:
        cohorts = _cohorts(plan, attribute, tallies, parts)
        if not listed:
            found = discover(cohorts, 1 - confidence)
            listed, estimate = found.words, found.estimate
            each = [(mechanism, len(codes)) for mechanism, codes, _ in cohorts]
            shares = smallest_shares(each, 1 - confidence).tolist()
        else:
            estimate = estimate_words(cohorts, listed)
    order = np.argsort(-estimate.value, kind="stable")
    if question.discover:
        order = order[: question.top or _SHOWN]
    elif question.top:
        order = order[: question.top]
    else:
        order = np.sort(order)
    # Rows that are shown because their estimates are the largest ones are covered as all are.
    simultaneous = order.size < len(listed)
    low, high = estimate.interval(confidence, simultaneous=simultaneous)
    numbers = (estimate.value, estimate.standard_error, low, high)
    rows = tables.estimates(
        "rows",
        (attribute, [listed[place] for place in order.tolist()]),
        {name: column[order] for name, column in zip(COLUMNS, numbers, strict=True)},
        "share",
        len(listed) - order.size,
    )
    return Answer(
        "words",
        plan.survey,
        (Subject(attribute, plan.asked(attribute).title),),
        "share",
        (rows,),
        confidence,
        simultaneous,
        sum(tally.n for tally in tallies.values()),
        repeats=max(own.factor for own in of_levels(plan, tallies)),
        method=estimate.method,
        figures={**NOT_TESTED, **({"findable": shares} if shares else {})},
        cohorts=cohorts_of(plan, tallies),
    )


def _cohorts(
    plan: Plan, attribute: str, tallies: Tallies, parts: Sequence[ByLevel]
) -> list[WordReports]:
    """Return the reports of each level, whatever their period."""
    found = []
    levels = list(dict.fromkeys(cohort.level for cohort in tallies))
    for level, repeats in zip(levels, of_levels(plan, tallies), strict=True):
        mechanism = plan.levels[level].mechanisms[attribute]
        assert isinstance(mechanism, PrefixHashing)  # as the plan was checked
        data = b"".join(part[level] for part in parts if level in part)
        if data:
            codes = mechanism.decode(data, len(data) // mechanism.code_bytes)
            found.append((mechanism, codes, repeats))
    if not found:
        raise NoReports(f"there are no stored reports of {attribute!r}")
    return found


def _regressed(plan: Plan, attribute: str, tallies: Tallies, listed: Sequence[str]) -> Estimate:
    """Estimate the shares of listed words from RAPPOR's tallies, levels by inverse variance."""
    sums: dict[str, dict[str, Tally]] = {}
    for cohort, tally in tallies.items():
        add_up(sums.setdefault(cohort.level, {}), [(attribute, tally)])
    n, values, variances = 0, [], []
    for (level, found), repeats in zip(sums.items(), of_levels(plan, tallies), strict=True):
        mechanism, tally = plan.levels[level].mechanisms[attribute], found[attribute]
        assert isinstance(mechanism, RAPPOR)  # as `from_tallies` has found
        one = estimate_strings(mechanism, tally, listed)
        variance, truth = one.standard_error**2, np.clip(one.value, 0, 1)
        values.append(one.value[:-1])  # without all other words
        more = repeats.more(variance, truth * (1 - truth) / tally.n)
        variances.append((variance + more)[:-1])
        n += tally.n
    weights = np.mean(variances, axis=1, keepdims=True) ** -1
    weights /= weights.sum()
    return Estimate(
        value=(weights * values).sum(axis=0),
        standard_error=np.sqrt((weights**2 * variances).sum(axis=0)),
        n=n,
        bounds=(0.0, 1.0),
        method="regression" if len(values) == 1 else "regression, inverse_variance",
    )
