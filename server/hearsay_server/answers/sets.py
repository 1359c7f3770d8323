"""Answers about sets of items and ratings that other questions have no place for."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hearsay.asking import cautions
from hearsay.asking.answer import Note
from hearsay.plans.attributes import Question
from hearsay.plans.kinds import ByKind, Ratings, SetOf
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import tables
from ldp import InvalidInput, SetBits
from ldp.core.estimation import Cohorts, Estimate
from ldp.core.estimator import Estimator
from ldp.core.intervals import critical_value
from ldp.estimating.ratings import MeanRatings, RatedShares
from ldp.estimating.sets import MeanSize, SetSizes
from ldp.estimating.strata import Answer
from ldp.mechanisms import SetMechanism

Floats = NDArray[np.float64]


def _of_ratings(mechanism: Estimator) -> Estimator:
    assert isinstance(mechanism, SetMechanism)  # as the plan was checked
    return RatedShares.of(mechanism)


def _itself(mechanism: Estimator) -> Estimator:
    return mechanism


ESTIMATORS = ByKind.otherwise(_itself, ratings=_of_ratings)
"""What estimates a kind's labels from a mechanism's reports: of ratings the shares who rated each
key, else the mechanism."""


def items_of(asked: Question, what: str) -> SetOf:
    """Return the domain of a set, which has what is asked; raise `InvalidInput` for another one."""
    return SetOf.expected(asked.domain, f"{asked.name!r} is no set of items: it has no {what}")


def check(asked: Question, question: analyst_pb2.EstimateRequest) -> None:
    """Raise `InvalidInput` for what cannot be asked of sets and ratings, or of anything else."""
    domain, attribute = asked.domain, asked.name
    if not domain.item:
        if question.sizes:
            items_of(asked, "sizes")
        return
    if question.sums:
        raise InvalidInput(
            f"people may have several of {attribute!r}, so shares do not add up to a share of "
            "people: ask for pairs of items, or for sizes"
        )
    if question.consistency or question.HasField("recover"):
        raise InvalidInput(
            f"shares of {attribute!r} need not sum to one: leave out consistency and recovery"
        )
    if isinstance(domain, Ratings) and (question.sizes or question.HasField("forged")):
        raise InvalidInput(
            f"{attribute!r} are ratings: neither their number nor what forged reports can do to "
            "them can be asked"
        )
    if question.sizes and question.HasField("forged"):
        raise InvalidInput("what forged reports can do to sizes is not known")


def check_forged(cohorts: Cohorts) -> None:
    """Raise `InvalidInput` where what forged reports can do is not known."""
    if any(isinstance(mechanism, SetBits) for mechanism, _ in cohorts):
        raise InvalidInput(
            "what forged reports can do to set_bits is not known: it depends on how many people "
            "are asked about an item"
        )


def sizes(
    domain: SetOf,
    cohorts: Cohorts,
    answered: Callable[[Cohorts], Answer],
    confidence: float,
    simultaneous: bool,
) -> tuple[Answer, dict[str, Floats], dict[str, Floats], list[Note]]:
    """Return the answer on the mean size, the columns of the shares of each size, where there are
    any, those of the mean, and what to note of them.

    `answered` estimates cohorts. Sizes are those of the people at levels that tell them.
    """
    each: dict[str, Floats] = {}
    notes: list[Note] = []
    telling = [
        (SetSizes.of(m), tally, own)
        for (m, tally), own in zip(cohorts, cohorts.repeats, strict=True)
        if isinstance(m, SetMechanism) and not isinstance(m, SetBits)
    ]
    if telling:
        told = Cohorts([(m, t) for m, t, _ in telling], [own for *_, own in telling])
        shares = answered(told).estimate
        own = each_at(confidence, domain, len(shares.value)) if simultaneous else confidence
        each = tables.columns_of(shares, own, simultaneous)
        if domain.clamp:
            notes.append(larger(domain, float(shares.value[-1])))
    if len(telling) < len(cohorts):
        notes.append(Note.of(cautions.mean_size_alone, of_all=not telling))
    mean = answered(
        Cohorts([(MeanSize(_sets(m), domain.most), t) for m, t in cohorts], cohorts.repeats)
    )
    own = each_at(confidence, domain) if simultaneous and telling else confidence
    return mean, each, tables.columns_of(mean.estimate, own), notes


def larger(domain: SetOf, share: float) -> Note:
    """Return the note that larger sets count as smaller ones, of this share of people's."""
    return Note.of(cautions.larger_sets, most=domain.most, share=share)


def _sets(mechanism: Estimator) -> SetMechanism:
    assert isinstance(mechanism, SetMechanism)  # as the plan was checked
    return mechanism


def each_at(confidence: float, domain: SetOf, rows: int = 1) -> float:
    """Return the confidence of some rows for the intervals of all sizes and their mean to cover at
    once (Bonferroni)."""
    return 1 - (1 - confidence) * rows / (len(domain.sizes) + 1)


def rating_columns(
    domain: Ratings,
    means: MeanRatings,
    shares: Estimate,
    *,
    confidence: float,
    simultaneous: bool,
) -> tuple[dict[str, Floats], list[Note]]:
    """Return the columns of ratings: the mean ratings on their scale, nan where they are unknown,
    and the shares who rated; and what to note of them."""
    scale = (domain.high - domain.low) / 2
    low, high = means.ends(critical_value(confidence, len(domain.keys) if simultaneous else 1))
    share_low, share_high = shares.interval(confidence, simultaneous=simultaneous)

    def on_scale(values: Floats) -> Floats:
        return np.where(means.known, domain.low + (values + 1) * scale, math.nan)

    columns = {
        "estimate": on_scale(means.value),
        "standard_error": scale * means.standard_error,
        "low": on_scale(low),
        "high": on_scale(high),
        "share": shares.value,
        "share_standard_error": shares.standard_error,
        "share_low": share_low,
        "share_high": share_high,
    }
    unknown = [key for key, known in zip(domain.keys, means.known, strict=True) if not known]
    return columns, [Note.of(cautions.ratings_unknown, keys=unknown)] if unknown else []
