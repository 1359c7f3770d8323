"""Answers about words: which are frequent, and how frequent listed ones are."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from hearsay.plans.domains import Strings
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2, collector_pb2
from hearsay_server.answers.queries import CONFIDENCE, Tallies, cohort_message
from hearsay_server.answers.repeats import of_levels
from ldp import RAPPOR, Estimate, InvalidInput, Tally
from ldp.core.tally import add_up
from ldp.estimating.dictionary import estimate_strings
from ldp.estimating.strata import spread

_SHOWN = 20
"""Words that are found and shown, unless more are asked for."""

_MOST = 100_000
"""The most words that one question lists."""

OTHERS = "(all others)"
"""The row of those whose word is not listed. No word is written so: it has a space."""

ByLevel = Mapping[str, bytes]
"""The codes of an attribute's reports, by level."""


def from_tallies(plan: Plan, attribute: str) -> bool:
    """Tell whether the tallies tell of an attribute's words, and no reports need be read."""
    mechanisms = (level.mechanisms[attribute] for level in plan.levels.values())
    return all(isinstance(mechanism, RAPPOR) for mechanism in mechanisms)


def check(plan: Plan, question: analyst_pb2.WordsRequest) -> None:
    """Raise `InvalidInput` for what cannot be asked."""
    domain = plan.asked(question.attribute).domain
    if not isinstance(domain, Strings):
        raise InvalidInput(f"{question.attribute!r} is not answered in words: leave them out")
    confidence = question.confidence if question.HasField("confidence") else CONFIDENCE
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence must lie strictly between 0 and 1, got {confidence}")
    if question.discover:
        if question.candidates:
            raise InvalidInput("ask for the words that are frequent, or for listed ones, not both")
        if domain.candidates:
            raise InvalidInput(
                f"the survey lists the words of {question.attribute!r}, so that its reports tell "
                "of listed words alone: ask for the shares of words. A survey without candidates "
                "finds them"
            )
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


def collected(
    plan: Plan,
    attribute: str,
    levels: Collection[str],
    batches: Iterable[Sequence[collector_pb2.Batch]],
) -> dict[str, bytes]:
    """Return the codes of an attribute's reports at these levels, by level.

    The batches were checked before they were stored.
    """
    found: dict[str, list[bytes]] = {}
    for page in batches:
        for batch in page:
            for column in batch.columns:
                if column.attribute == attribute and column.level in levels:
                    found.setdefault(column.level, []).append(column.codes)
    return {name: b"".join(parts) for name, parts in found.items()}


def words(
    plan: Plan, question: analyst_pb2.WordsRequest, tallies: Tallies, parts: Sequence[ByLevel]
) -> analyst_pb2.EstimateResponse:
    """Answer a `WordsRequest` from the tallies of a selection and the codes of its reports.

    `parts` are not read where the tallies tell (`from_tallies`). Raises `NoReports` where there are
    none; the question was checked (`check`).
    """
    attribute = question.attribute
    domain = plan.asked(attribute).domain
    assert isinstance(domain, Strings)  # as `check` has checked
    confidence = question.confidence if question.HasField("confidence") else CONFIDENCE
    listed = list(question.candidates or domain.candidates)
    if from_tallies(plan, attribute):
        estimate = _regressed(plan, attribute, tallies, listed)
    else:
        raise NotImplementedError
    low, high = estimate.interval(confidence)
    labels = [*listed, OTHERS]
    order = np.arange(len(labels))
    if question.top:
        order = np.argsort(-estimate.value[:-1], kind="stable")[: question.top]
    return analyst_pb2.EstimateResponse(
        survey=plan.survey,
        attribute=attribute,
        statistic="share",
        confidence=confidence,
        reports=estimate.n,
        rows=[
            analyst_pb2.Row(
                label=labels[place],
                estimate=estimate.value[place],
                standard_error=estimate.standard_error[place],
                low=low[place],
                high=high[place],
            )
            for place in order.tolist()
        ],
        rows_left_out=len(labels) - order.size,
        cohorts=[cohort_message(plan, cohort, tally) for cohort, tally in tallies.items()],
        method=estimate.method,
        repeats=max(own.factor for own in of_levels(plan, tallies)),
        title=plan.asked(attribute).title,
    )


def _regressed(plan: Plan, attribute: str, tallies: Tallies, listed: Sequence[str]) -> Estimate:
    """Estimate the shares of listed words and of all others from RAPPOR's tallies.

    Of the mix of those who answered, whatever their levels, as `strata.stratified`.
    """
    sums: dict[str, dict[str, Tally]] = {}
    for cohort, tally in tallies.items():
        add_up(sums.setdefault(cohort.level, {}), [(attribute, tally)])
    values, variances, weights = [], [], []
    each = zip(sums.items(), of_levels(plan, tallies), strict=True)
    for (level, found), repeats in each:
        mechanism, tally = plan.levels[level].mechanisms[attribute], found[attribute]
        assert isinstance(mechanism, RAPPOR)  # as `from_tallies` has found
        one = estimate_strings(mechanism, tally, listed)
        truth = np.clip(one.value, 0, 1)
        variance = one.standard_error**2
        values.append(one.value)
        variances.append(variance + repeats.more(variance, truth * (1 - truth) / tally.n))
        weights.append(tally.n)
    n = sum(weights)
    w = np.array(weights)[:, np.newaxis] / n
    most = max(own.factor for own in of_levels(plan, tallies))
    between = most * spread(w, np.array(values), np.array(variances)) / n
    return Estimate(
        value=(w * values).sum(axis=0),
        standard_error=np.sqrt((w**2 * variances).sum(axis=0) + between),
        n=n,
        bounds=(0.0, 1.0),
        method="regression" if len(values) == 1 else "regression, stratified",
    )
