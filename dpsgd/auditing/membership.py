"""Membership inference: how well an attacker tells a model's training records from others.

`lira` scores records by what their loss is in models that were trained with and without them;
`membership` says what the scores of one's own attack give away, beside what epsilon allows.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv
from scipy.stats import binom, mannwhitneyu

from ldp import InvalidInput

_RATES = (0.01, 0.1)
"""The false positive rates at which true positives are counted."""


@dataclass(frozen=True)
class PointOnCurve:
    """The share of members found where at most `false_positives` of the others are accused.

    `low` and `high` are limits of that share for the threshold that accuses so many of all others,
    which few others' scores leave uncertain; `limit` is the largest that the claim allows there.
    """

    false_positives: float
    true_positives: float
    low: float
    high: float
    limit: float


@dataclass(frozen=True)
class Membership:
    """What an attack's scores tell of membership: the area under the curve, and points on it.

    `auc` is the probability that a member scores higher than another, ties counting half.
    """

    members: int
    others: int
    auc: float
    points: tuple[PointOnCurve, ...]
    epsilon: float
    delta: float

    def __str__(self) -> str:
        points = []
        for p in self.points:
            low, high = f"{100 * p.low:.1f}", f"{100 * p.high:.1f}"
            found = f"{100 * p.true_positives:.1f}% ({low} to {high}) found"
            points.append(f"at {100 * p.false_positives:g}% false positives {found}")
            if math.isfinite(self.epsilon):
                points[-1] += (
                    f", ({self.epsilon:.4g}, {self.delta:g})-DP allows {100 * p.limit:.1f}%"
                )
        sizes = f"{self.members} members and {self.others} others"
        return "; ".join([f"AUC {self.auc:.3f} of {sizes}", *points])


def membership(
    scores_in: ArrayLike,
    scores_out: ArrayLike,
    *,
    epsilon: float = math.inf,
    delta: float = 0.0,
    confidence: float = 0.95,
) -> Membership:
    """Return how well scores tell members, (n,), from others, (m,); larger means a member.

    Points are at 1% and 10% false positives: the threshold is the least that so many of
    `scores_out` at most exceed. Their limits are those of the (epsilon, delta) that is claimed for
    adding and removing a record, by default none.

    An interval covers the share at exactly that rate with the probability `confidence` at least.
    Half of the error is for the threshold: two scores of others lie on its two sides, by the
    binomial distribution of how many exceed it (W. R. Thompson, Annals of Mathematical Statistics
    7, 1936). The other half is for the shares of members above these two, by Clopper and Pearson.
    So each `low` of a training that keeps its claim is above `limit` with probability
    (1 - confidence) / 2 at most. Few others tell little: at 95% and with fewer than 437 of them,
    the interval at 1% begins at 0.

    The scores count as independent; those of one model, or of one record in several models, are not
    quite. Raises `InvalidInput` for scores that are none or not finite, and for epsilon, delta or
    confidence out of range.
    """
    inside, outside = (np.asarray(each, dtype=np.float64) for each in (scores_in, scores_out))
    for name, values in (("scores_in", inside), ("scores_out", outside)):
        if values.ndim != 1 or not values.size or not np.isfinite(values).all():
            raise InvalidInput(f"{name} must be (n,) finite numbers, one at least: {values.shape}")
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence must lie strictly between 0 and 1, got {confidence}")
    most_found(epsilon, delta, 0.5)
    n, descending, miss = inside.size, -np.sort(-outside), (1 - confidence) / 4
    points = []
    for rate in _RATES:
        found = _above(inside, descending, int(rate * outside.size))
        exceed = binom(outside.size, rate)  # how many others exceed the true threshold
        fewest = int(exceed.ppf(miss))
        fewest -= exceed.cdf(fewest) > miss
        fewer, more = (
            _above(inside, descending, place) for place in (fewest, int(exceed.ppf(1 - miss)))
        )
        low = betaincinv(fewer, n - fewer + 1, miss) if fewer else 0.0
        high = betaincinv(more + 1, n - more, 1 - miss) if more < n else 1.0
        limit = most_found(epsilon, delta, rate)
        points.append(PointOnCurve(rate, found / n, float(low), float(high), limit))
    auc = float(mannwhitneyu(inside, outside, method="asymptotic").statistic) / (n * outside.size)
    return Membership(n, outside.size, auc, tuple(points), epsilon, delta)


def most_found(epsilon: float, delta: float, false_positives: float) -> float:
    """Return the largest true positive rate at a false positive rate under (epsilon, delta)-DP.

    min(e^epsilon f + delta, 1 - e^-epsilon (1 - f - delta)). Raises `InvalidInput` unless
    epsilon >= 0 (infinity too) and delta and false_positives lie in [0, 1]. Source: Kairouz, Oh and
    Viswanath, "The composition theorem for differential privacy", ICML 2015, theorem 2.1.
    """
    if not (epsilon >= 0 and 0 <= delta <= 1 and 0 <= false_positives <= 1):
        raise InvalidInput(
            "expected epsilon >= 0 and delta and false_positives in [0, 1], got "
            f"{epsilon}, {delta}, {false_positives}"
        )
    if epsilon > 700:  # its exponential overflows
        return 1.0
    grown = math.exp(epsilon) * false_positives + delta
    return min(1.0, grown, 1 - math.exp(-epsilon) * max(0.0, 1 - false_positives - delta))


def lira(confidences: ArrayLike, included: ArrayLike) -> NDArray[np.float64]:
    """Return the likelihood-ratio attack's score of each record in each model, (models, records).

    confidences: (models, records), the probability, from 0 to 1, that a model gives to a record's
    true label; included: of the same shape, whether the record was in the model's training. For
    each model in turn all others are the attacker's shadow models: of a record's logit-scaled
    confidences, ln(p / (1 - p)), one mean with it and one without, and one variance each, pooled
    over records. The score is the log-likelihood of the model's own value with the record, less
    that without. Feed scores[included] and scores[~included] to `membership`.

    Raises `InvalidInput` for other shapes, confidences outside [0, 1], and where a record has not
    two models with it and two without, or no variance is left. Cost: models times records.
    Source: Carlini et al., "Membership inference attacks from first principles", IEEE S&P 2022,
    algorithm 1, with the global variance of section VI-B.
    """
    p, member = np.asarray(confidences, dtype=np.float64), np.asarray(included)
    if p.ndim != 2 or member.shape != p.shape or member.dtype != np.bool_:
        raise InvalidInput(
            "confidences are (models, records) numbers and `included` booleans of that shape, got "
            f"{p.shape} and {member.dtype} of shape {member.shape}"
        )
    if not ((p >= 0) & (p <= 1)).all():
        raise InvalidInput("confidences must be probabilities, from 0 to 1")
    with_it = member.sum(0)
    if with_it.min(initial=2) < 2 or (len(p) - with_it).min(initial=2) < 2:
        raise InvalidInput("every record must be in two models at least, and left out of two")
    least = np.finfo(np.float64).eps
    values = np.log(np.clip(p, least, 1)) - np.log(np.clip(1 - p, least, 1))
    scores = np.zeros_like(values)
    for model in range(len(values)):
        shadows = np.arange(len(values)) != model
        for sign, group in ((1, member), (-1, ~member)):
            weights = group[shadows]
            counts = weights.sum(0)
            mean = (values[shadows] * weights).sum(0) / counts
            squares = ((values[shadows] - mean) ** 2 * weights).sum()
            freedom = (counts - 1).sum()
            if not (freedom and squares):
                raise InvalidInput("the models' confidences leave no variance to fit")
            variance = squares / freedom
            density = -((values[model] - mean) ** 2) / (2 * variance) - np.log(variance) / 2
            scores[model] += sign * density
    return scores


def _above(inside: NDArray[np.float64], descending: NDArray[np.float64], place: int) -> int:
    """Return how many scores exceed that at a place of the others': none before, all after."""
    if place < 0:
        return 0
    return int((inside > descending[place]).sum()) if place < descending.size else inside.size
