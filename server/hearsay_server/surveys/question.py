"""A question as it is budgeted for: the mechanism of each kind of answers, and its variance."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from hearsay.plans.kinds import (
    Binned,
    ByKind,
    Categorical,
    Domain,
    Grid,
    Numeric,
    Ratings,
    SetOf,
    Strings,
)
from hearsay_server.surveys import catalogue, graded
from ldp import (
    RAPPOR,
    InvalidInput,
    Mechanism,
    PolicyMeanTable,
    PolicyUnary,
    PrefixHashing,
    SetSelection,
)
from ldp.core.exact import ONE, float_below
from ldp.estimating.ratings import RatedShares
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.mechanisms.ranges.wave_design import predicted_variance
from ldp.mechanisms.ranges.waves import Waves
from ldp.planning.choice import minimax_constant
from ldp.planning.design import design

_NOISE_ANCHORS = tuple(math.log(2.0) * step for step in (-7, -5, -3, -2, -1, 0, 1, 2, 3, 4, 5))

SPREAD = 1 / 3
"""The variance of numbers spread evenly over [-1, 1], which is added to the noise's variance."""

_ANCHORS = tuple(math.log(epsilon) for epsilon in (0.25, 0.5, 1.0, 2.0, 4.0))

_PLAIN = [0.0] * len(_ANCHORS)
"""Log factors where no policy changes the variance."""


@dataclass(frozen=True)
class Question:
    """An attribute or a view as it is budgeted for and resolved."""

    name: str
    domain: Domain | Grid
    weight: float
    cap: float
    asked_for: str
    """The mechanism that the survey names; "" or "auto" for the best."""
    memo: float = 0.0
    """The ratio of a memo's epsilon to a report's; 0 without memos."""

    def mechanism(self, epsilon: float) -> Mechanism:
        """Calibrate the mechanism to a share of a record's epsilon."""
        return _CALIBRATED[self.domain](self, self.domain, epsilon)

    def lasting(self, epsilon: float) -> float:
        """Return the epsilon of a memo, rounded down, for reports of this epsilon."""
        return float_below(Fraction(self.memo) * Fraction(epsilon)) if self.memo else 0.0

    def must_be(self, name: str, where: str) -> None:
        """Raise `InvalidInput` unless the survey names no mechanism, "auto" or this one."""
        if self.asked_for not in ("", "auto", name):
            raise InvalidInput(f"mechanism must be auto or {name} {where}, got {self.asked_for!r}")

    def mapped(self, epsilon: float) -> list[Mechanism]:
        """Return the mechanism of each of the domain's maps, in order, at a share of epsilon."""
        return [
            replace(self, domain=self.domain.chosen(name), asked_for="").mechanism(epsilon)
            for name in self.domain.map_names
        ]

    def variance(self, epsilon: float) -> float:
        """Predict the variance of one report: of a value's frequency on average, or of a number.

        For numbers, that of the worst one, in a population spread evenly over the range; where
        they have regions or a resolution, of all on average. For categories the least possible for
        a uniform population, also where there are maps, as a person may choose none. Where values
        or numbers are protected differently, as much more or less than without as it is at the
        nearest epsilons for which a channel was designed.
        For bins that of a range, on average over the ranges. For sets that of an item's share, for
        ratings that of the share who rate a key, if half as many apply as may, for words that of a
        rare one: `planned`.
        """
        return _VARIANCES[self.domain](self, self.domain, epsilon)

    @cached_property
    def log_factors(self) -> list[float]:
        """Log factors by which a policy, or graded numbers, change the variance at `_ANCHORS`."""
        return _FACTORS[self.domain](self.domain)


def _of_category(question: Question, domain: Categorical, epsilon: float) -> Mechanism:
    policy = domain.policy(epsilon)
    if policy is None:
        k, name = len(domain.values), question.asked_for or "auto"
        if question.memo > 1:
            return catalogue.chain(name, k, epsilon, question.lasting(epsilon))
        return catalogue.categorical(name, k, epsilon)
    if question.asked_for == PolicyUnary.name and domain.sensitive:
        sensitive = map(domain.encode, domain.sensitive)
        return PolicyUnary.utility_optimised(policy.k, sensitive, epsilon)
    if question.asked_for not in ("", "auto"):
        raise InvalidInput(
            "mechanism must be auto where values are sensitive or have classes, or "
            f"policy_unary where they are sensitive, got {question.asked_for!r}"
        )
    # The policy's largest distance may be less than epsilon, by way of a third value.
    return replace(design(policy).mechanism, epsilon=epsilon)


def _of_number(question: Question, domain: Numeric, epsilon: float) -> Mechanism:
    if question.asked_for == Waves.name:
        raise InvalidInput("waves are for numbers in bins: declare them, such as bins = 64")
    if domain.is_graded:
        question.must_be("mean_table", "where numbers are sensitive or have a resolution")
        return graded.table(domain, epsilon)
    steps = len(domain.points) - 1 if domain.points else 0
    return catalogue.numeric(question.asked_for or "auto", epsilon, steps)


def _of_ranges(question: Question, domain: Binned | Grid, epsilon: float) -> Mechanism:
    return catalogue.binned(question.asked_for or "auto", domain.sides, epsilon)


def _of_set(question: Question, domain: SetOf, epsilon: float) -> Mechanism:
    name = question.asked_for or "auto"
    return catalogue.sets(name, len(domain.values), domain.most, epsilon)


def _of_ratings(question: Question, domain: Ratings, epsilon: float) -> Mechanism:
    question.must_be("set_selection", "for ratings")
    return SetSelection(2 * len(domain.keys), epsilon, domain.most)


def _of_words(question: Question, domain: Strings, epsilon: float) -> Mechanism:
    name = question.asked_for or "auto"
    return catalogue.strings(name, domain, epsilon, question.lasting(epsilon))


_CALIBRATED: ByKind[Callable[[Question, Any, float], Mechanism]] = ByKind(
    category=_of_category,
    number=_of_number,
    bins=_of_ranges,
    set=_of_set,
    ratings=_of_ratings,
    words=_of_words,
    grid=_of_ranges,
)
"""The mechanism of a question, calibrated to an epsilon."""


def _category_variance(question: Question, domain: Categorical, epsilon: float) -> float:
    k = len(domain.values)
    return _factor(question, epsilon) * minimax_constant(k, epsilon) / k


def _number_variance(question: Question, domain: Numeric, epsilon: float) -> float:
    noise = np.interp(math.log(epsilon), _NOISE_ANCHORS, _log_noise())
    return _factor(question, epsilon) * math.exp(noise) + SPREAD


def _range_variance(question: Question, domain: Binned | Grid, epsilon: float) -> float:
    logs = _log_range_variances(domain.sides)
    return math.exp(np.interp(math.log(epsilon), _ANCHORS, logs))


def _planned_variance(question: Question, domain: Any, epsilon: float) -> float:
    return planned(domain, question.mechanism(epsilon))


_VARIANCES: ByKind[Callable[[Question, Any, float], float]] = ByKind(
    category=_category_variance,
    number=_number_variance,
    bins=_range_variance,
    set=_planned_variance,
    ratings=_planned_variance,
    words=_planned_variance,
    grid=_range_variance,
)
"""The variance of one report, as `Question.variance` predicts it."""


def _factor(question: Question, epsilon: float) -> float:
    return math.exp(np.interp(math.log(epsilon), _ANCHORS, question.log_factors))


def _category_factors(domain: Categorical) -> list[float]:
    found = []
    for epsilon in map(math.exp, _ANCHORS):
        policy = domain.policy(epsilon)
        if policy is None:
            return _PLAIN
        least = minimax_constant(policy.k, epsilon)
        found.append(math.log(design(policy, gap=1e-3).variance / least))
    return found


def _number_factors(domain: Numeric) -> list[float]:
    if not domain.is_graded:
        return _PLAIN
    plain = np.interp(_ANCHORS, _NOISE_ANCHORS, _log_noise()).tolist()
    noises = [graded.predicted_noise(domain, math.exp(anchor)) for anchor in _ANCHORS]
    return [math.log(noise) - log for noise, log in zip(noises, plain, strict=True)]


def _unchanged(domain: Any) -> list[float]:
    return _PLAIN


_FACTORS: ByKind[Callable[[Any], list[float]]] = ByKind(
    category=_category_factors,
    number=_number_factors,
    bins=_unchanged,
    set=_unchanged,
    ratings=_unchanged,
    words=_unchanged,
    grid=_unchanged,
)
"""The log factors of a question, as `Question.log_factors`."""


def planned(domain: Domain | Grid, mechanism: Mechanism) -> float:
    """Predict the variance of one report: on average over the values or ranges, or at the worst
    number. Of a set's item, or of the share who rate a key, where people have half as many items,
    or rate half as many keys, as they may, and all are alike; of a rare word of the longest length.
    """
    return _PLANNED[domain](domain, mechanism)


def half_as_many(domain: SetOf | Ratings) -> float:
    """Return an item's share, or that of those who rate a key, if half as many apply as may."""
    return domain.most / (2 * len(domain.labels))


def _of_a_value(domain: Categorical, mechanism: Mechanism) -> float:
    uniform = np.full(mechanism.parameters, 1 / mechanism.parameters)
    return float(np.mean(mechanism.variance(uniform, 1)))


def _of_the_worst(domain: Numeric, mechanism: Mechanism) -> float:
    if isinstance(mechanism, PolicyMeanTable):
        return graded.noise(mechanism) + SPREAD
    assert isinstance(mechanism, MeanMechanism)  # as the plan was checked
    return mechanism.largest_report_variance + SPREAD


def _of_a_range(domain: Binned | Grid, mechanism: Mechanism) -> float:
    assert isinstance(mechanism, Waves)  # as the plan was checked
    return mechanism.range_variance


def _of_an_item(domain: SetOf, mechanism: Mechanism) -> float:
    return float(np.mean(mechanism.variance(half_as_many(domain), 1)))


def _of_a_key(domain: Ratings, mechanism: Mechanism) -> float:
    assert isinstance(mechanism, SetSelection)  # as the plan was checked
    return float(np.mean(RatedShares.of(mechanism).variance(half_as_many(domain), 1)))


def _of_a_word(domain: Strings, mechanism: Mechanism) -> float:
    return word_variance(mechanism, domain.longest)


_PLANNED: ByKind[Callable[[Any, Mechanism], float]] = ByKind(
    category=_of_a_value,
    number=_of_the_worst,
    bins=_of_a_range,
    set=_of_an_item,
    ratings=_of_a_key,
    words=_of_a_word,
    grid=_of_a_range,
)
"""The variance of one report, as `planned` predicts it."""


def word_variance(mechanism: Mechanism, letters: int) -> float:
    """Predict the variance of one report, of whatever group, of the share of a rare word."""
    assert isinstance(mechanism, PrefixHashing | RAPPOR)  # as the plan was checked
    p, q = map(float, mechanism.support)
    one = q * (1 - q) / (p - q) ** 2
    if isinstance(mechanism, RAPPOR):
        return one / mechanism.hashes
    # Nobody knows of a beginning of so many letters whether the word goes on, but of the longest.
    last = mechanism.lengths[-1]
    seen = zip(mechanism.lengths, mechanism.chances, strict=True)
    return one * ONE / sum(chance for length, chance in seen if length > letters or length == last)


@lru_cache(maxsize=64)
def _log_range_variances(sides: tuple[int, ...]) -> tuple[float, ...]:
    """The log variance of a range from one report, at the epsilons of `_ANCHORS`."""
    found = (predicted_variance(sides, math.exp(anchor)) for anchor in _ANCHORS)
    return tuple(math.log(variance) for variance in found)


@lru_cache(maxsize=1)
def _log_noise() -> tuple[float, ...]:
    """The log variance of one report of the worst number, at the epsilons of `_NOISE_ANCHORS`."""
    found = (catalogue.numeric("auto", math.exp(anchor)) for anchor in _NOISE_ANCHORS)
    return tuple(math.log(mechanism.largest_report_variance) for mechanism in found)
