"""What the reports of two attributes tell together, where each record reports both.

The two reports of a record are drawn independently given the record, so products of what they say
are unbiased for products of what is true: a code's estimate of one attribute's values times
another code's of the other's is an unbiased estimate of the record's cell in the joint table. All
questions about two attributes need but the sums of these products, and those need only the sums of
the products of the two reports' counts: `PairTally`, which adds up as tallies do.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ldp.core.estimator import MAX_MATRIX
from ldp.core.mechanism import Categorical, Codes, Counted, Mechanism
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.frequency.count_mean_sketch import CountMeanSketch, HadamardCountMeanSketch
from ldp.mechanisms.numbers.mean import MeanMechanism

Floats = NDArray[np.float64]

MAX_PRODUCTS = 1 << 22
"""The most sums of products of counts in a `PairTally`."""

MAX_VALUES = 128
"""The most values of an attribute in a joint table: errors take the cube of them, and more."""

_BLOCK = 1 << 14
"""Records whose counts are unpacked at once."""


@dataclass(frozen=True, eq=False)
class PairTally:
    """The sums over n records of their two reports' counts, and of the products of these.

    `first` and `second` are the tallies of the two attributes' reports in these records, and
    `products`, shape (first.counts.size, second.counts.size), sums the products of their counts:
    of two mechanisms whose tallies count codes it is the table of the pairs of codes. Pair
    tallies add. Raises `InvalidInput` where the shapes or the numbers of records differ.
    """

    first: Tally
    second: Tally
    products: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.first.n != self.second.n:
            raise InvalidInput(
                f"a pair tally is of records with both reports, got {self.first.n} of the first "
                f"and {self.second.n} of the second"
            )
        shape = self.first.counts.size, self.second.counts.size
        if self.products.shape != shape:
            raise InvalidInput(f"products have the shape {shape}, got {self.products.shape}")

    @property
    def n(self) -> int:
        """The number of records."""
        return self.first.n

    def __add__(self, other: "PairTally") -> "PairTally":
        return PairTally(
            self.first + other.first, self.second + other.second, self.products + other.products
        )


def check_pair(first: Mechanism, second: Mechanism) -> None:
    """Raise `InvalidInput` unless a pair tally of the two mechanisms is small enough."""
    if first.tally_size * second.tally_size > MAX_PRODUCTS:
        raise InvalidInput(
            f"the reports of {first.name} and {second.name} make {first.tally_size} x "
            f"{second.tally_size} counts together, more than {MAX_PRODUCTS}"
        )


def count_pairs(
    first: Mechanism, first_codes: Codes, second: Mechanism, second_codes: Codes
) -> PairTally:
    """Count the reports of n records, of which code i of both is of record i.

    Codes have the form of `Mechanism.decode`, and are not checked again. Cost: one count per
    record where both tallies count codes, else a product of counts for each pair of them.
    Raises `InvalidInput` where the codes differ in number, and as `check_pair`.
    """
    check_pair(first, second)
    n, sizes = len(first_codes), (first.tally_size, second.tally_size)
    if len(second_codes) != n:
        raise InvalidInput(
            f"each record has two codes, got {n} of the first and {len(second_codes)} of the second"
        )
    one, other = (
        m.tally(codes) if n else Tally.empty(m.tally_size)
        for m, codes in ((first, first_codes), (second, second_codes))
    )
    if isinstance(first, Counted) and isinstance(second, Counted):
        places = first_codes.astype(np.intp) * sizes[1] + second_codes
        products = np.bincount(places, minlength=sizes[0] * sizes[1]).reshape(sizes)
        return PairTally(one, other, products)
    sums = np.zeros(sizes)
    for start in range(0, n, _BLOCK):
        block = slice(start, start + _BLOCK)
        one_by_one = first.each_counted(first_codes[block]).astype(float)  # BLAS, and still exact
        sums += one_by_one.T @ second.each_counted(second_codes[block]).astype(float)
    return PairTally(one, other, np.rint(sums).astype(np.int64))


@dataclass(frozen=True, eq=False)
class Reading:
    """How one report tells of its attribute: an unbiased estimate for each of its features.

    A report with the counts c estimates the features by c @ slope + constant, of shapes
    (counts, features) and (features,). The features of a categorical attribute are its values'
    indicators; those of a number are 1 and the number, on the mechanism's scale [-1, 1].
    """

    slope: Floats
    constant: Floats

    def of(self, counts: Floats) -> Floats:
        """Return the estimates of single reports, shape (n, features), of their counts."""
        estimates: Floats = counts @ self.slope + self.constant
        return estimates


@lru_cache(maxsize=256)
def reading(mechanism: Mechanism) -> Reading:
    """Return the reading of a mechanism; raise `InvalidInput` where it has none."""
    if isinstance(mechanism, MeanMechanism):
        scores = np.array([float(score) for score in mechanism.scores])
        return Reading(np.stack([np.ones_like(scores), scores], axis=1), np.zeros(2))
    if not isinstance(mechanism, Categorical):
        raise InvalidInput(f"{mechanism.name} reports tell of neither values nor a mean")
    if isinstance(mechanism, CountMeanSketch | HadamardCountMeanSketch):
        raise InvalidInput(
            f"{mechanism.name} reports are unbiased over the choice of its hash functions, not for "
            "the ones at hand: they tell nothing of two attributes together"
        )
    size = mechanism.tally_size
    if size * mechanism.k > MAX_MATRIX:
        raise InvalidInput(
            f"{mechanism.name} has {size} counts for {mechanism.k} values, too many for a question "
            "about two attributes"
        )
    units = np.eye(size, dtype=np.int64)
    if isinstance(mechanism, Counted):
        codes = np.array([mechanism.debias(Tally(1, unit)) for unit in units])
        return Reading(codes, np.zeros(mechanism.k))
    constant = mechanism.debias(Tally(1, np.zeros(size, dtype=np.int64)))
    slope = np.array([mechanism.debias(Tally(1, unit)) for unit in units]) - constant
    return Reading(slope, constant)


def product_means(first: Mechanism, second: Mechanism, tally: PairTally) -> Floats:
    """Return the means of the products of both reports' estimates, (features, features).

    Of two categorical attributes they are the joint table: unbiased, and neither non-negative
    nor of a sum of one.
    """
    one, other = reading(first), reading(second)
    half = one.slope.T @ tally.products + np.outer(one.constant, tally.second.counts)
    totals = one.slope.T @ tally.first.counts + tally.n * one.constant
    means: Floats = (half @ other.slope + np.outer(totals, other.constant)) / tally.n
    return means


@lru_cache(maxsize=64)
def second_moments(mechanism: Categorical) -> Floats:
    """Return E[u u' | value] of a report's estimates u of the values, shape (k, k, k).

    As exact as `Categorical.covariance`. Raises `InvalidInput` for more than `MAX_VALUES` values.
    """
    k = mechanism.k
    if k > MAX_VALUES:
        raise InvalidInput(
            f"a question about two attributes has {MAX_VALUES} values of each at most, got {k}"
        )
    matrix = mechanism.matrix() if k * mechanism.tally_size <= MAX_MATRIX else None
    if matrix is not None:
        slope = reading(mechanism).slope
        squares = (slope[:, :, None] * slope[:, None, :]).reshape(len(slope), k * k)
        return np.asarray(matrix @ squares).reshape(k, k, k)
    units = np.eye(k)
    return np.array([mechanism.covariance(unit, 1) + np.outer(unit, unit) for unit in units])
