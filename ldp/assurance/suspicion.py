"""Statistical tests for forged reports, which honest reports pass at a stated level.

A report supports a set of categories. Forged reports that support all targets of an attack at
once make the estimates sum to more than one, make sets of unlikely sizes, or have the targets
together too often. The tests' counts add up over batches: reports by the number
of categories they support, and reports that support all of some targets. None of the tests knows
the truth; an attacker who keeps to the law of honest reports, or forges few, passes all of them.

For unary encodings and local hashing, whose sets vary; under k-RR, subsets or Hadamard response a
forged report looks like an honest one of the target.
Source: Cao, Jia and Gong, "Data poisoning attacks to local differential privacy protocols",
USENIX Security 2021, section 5 (frequent itemsets); Wang et al., "Locally differentially private
frequency estimation with consistency", NDSS 2020, for the sum of raw estimates (what Norm-Sub
takes away). The laws of the sizes and of the hash collisions are exact here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, chdtrc, ndtr

from ldp.core.mechanism import Codes, FrequencyOracle, Mechanism
from ldp.errors import InvalidInput
from ldp.mechanisms.frequency.local_hashing import LocalHashing
from ldp.mechanisms.frequency.unary import UnaryEncoding
from ldp.mechanisms.lasting.chains import UnaryChain
from ldp.mechanisms.lasting.loloha import LOLOHA

_EXPECTED = 5.0
"""The least expected reports of a size, or group of sizes, in chi-squared (Cochran's rule)."""

_NORMAL_REPORTS = 100
_NORMAL_VARIANCE = 25.0
"""The least reports, and the least variance of all their support sizes, for a normal test."""


@dataclass(frozen=True, eq=False)
class Supports:
    """Support counts: `sizes[j]` reports support j categories, shape (k + 1,), and `together`
    reports support all of the `targets`."""

    sizes: NDArray[np.int64]
    targets: tuple[int, ...]
    together: int

    @property
    def n(self) -> int:
        """The number of reports."""
        return int(self.sizes.sum())

    def __add__(self, other: "Supports") -> "Supports":
        if self.targets != other.targets or self.sizes.shape != other.sizes.shape:
            raise InvalidInput("supports of different targets or categories do not add up")
        return Supports(self.sizes + other.sizes, self.targets, self.together + other.together)


@dataclass(frozen=True)
class Suspicion:
    """One test's result: `p_value` is the chance of as extreme a statistic if all were honest.

    For honest reports it is below alpha with a probability of alpha, or less.
    """

    test: str
    statistic: float
    p_value: float


def has_tests(mechanism: Mechanism) -> bool:
    """Tell whether the mechanism has tests: whether its reports' support sizes vary."""
    return isinstance(mechanism, UnaryEncoding | UnaryChain | LocalHashing | LOLOHA)


def supports(mechanism: Mechanism, codes: Codes, targets: Sequence[int]) -> Supports:
    """Count the categories that each code supports, and the codes that support all targets.

    Cost: O(n k) steps. Raises `InvalidInput` for a mechanism without tests, and unless the
    targets are two or more different categories.
    """
    oracle = _tested(mechanism)
    if len(set(targets)) != len(targets) or len(targets) < 2:
        raise InvalidInput(f"targets are two or more different categories, got {list(targets)}")
    sizes = np.zeros(len(codes), dtype=np.int64)
    together = np.ones(len(codes), dtype=np.bool_)
    for value in range(oracle.k):
        supported = oracle.evidence(codes, value)
        sizes += supported
        if value in targets:
            together &= supported.astype(np.bool_)
    counts = np.bincount(sizes, minlength=oracle.k + 1)
    return Supports(counts, tuple(targets), int(together.sum()))


def suspicions(mechanism: Mechanism, seen: Supports) -> tuple[Suspicion, ...]:
    """Run the mechanism's tests, and `norm_sub_gap` only where `has_gap` is true.

    Raises `InvalidInput` for a mechanism without tests, and where there is no report.
    """
    oracle = _tested(mechanism)
    if not seen.n:
        raise InvalidInput("there are no reports to test")
    tests = [norm_sub_gap(oracle, seen.sizes)] if has_gap(oracle, seen.n) else []
    if isinstance(oracle, UnaryEncoding | UnaryChain):
        tests.append(support_sizes(oracle, seen.sizes))
    return (*tests, together(oracle, seen))


def has_gap(mechanism: Mechanism, n: int) -> bool:
    """Tell whether n reports are enough for `norm_sub_gap` to hold its level."""
    oracle = _tested(mechanism)
    if not isinstance(oracle, UnaryEncoding | UnaryChain):
        return n >= 2
    return n >= _NORMAL_REPORTS and n * _size_variance(oracle) >= _NORMAL_VARIANCE


def norm_sub_gap(mechanism: FrequencyOracle, sizes: NDArray[np.int64]) -> Suspicion:
    """Test that the raw frequencies sum to one; the statistic is their sum minus one.

    The sum is decided by the mean number of supported categories, p + (k - 1) q for honest
    reports whatever the truth. Two-sided. Under unary encoding the test is normal, with the
    exact variance. Under hashing few functions put many categories into one bucket, so that
    sizes have a heavy tail which a normal test of a thousand reports does not cover yet: the
    p-value there is a bound for all distributions on 0..k, from the variance seen
    (Maurer and Pontil, "Empirical Bernstein bounds and sample-variance penalization", COLT 2009,
    theorem 4). Raises `InvalidInput` unless `has_gap`.
    """
    n, values = int(sizes.sum()), np.arange(sizes.size)
    if not has_gap(mechanism, n):
        raise InvalidInput(f"norm_sub_gap needs more reports than {n}")
    p, q = map(float, mechanism.support)
    mean = float(sizes @ values / n)
    excess = mean - p - (mechanism.k - 1) * q
    if isinstance(mechanism, UnaryEncoding | UnaryChain):
        p_value = 2 * ndtr(-abs(excess) / math.sqrt(_size_variance(mechanism) / n))
    else:
        seen = float(sizes @ (values - mean) ** 2 / (n - 1))
        p_value = _empirical_bernstein(abs(excess), seen, mechanism.k, n)
    return Suspicion("norm_sub_gap", excess / (p - q), float(p_value))


def _empirical_bernstein(distance: float, variance: float, width: float, n: int) -> float:
    """Bound the chance that a mean of n draws is `distance` or more from its expectation.

    The distance is a r + b r**2 at the chance 4 exp(-r**2).
    """
    a = math.sqrt(2 * variance / n)
    b = 7 * width / (3 * (n - 1))
    root = 2 * distance / (a + math.sqrt(a * a + 4 * b * distance)) if distance else 0.0
    return min(1.0, 4 * math.exp(-root * root))


def support_sizes(mechanism: FrequencyOracle, sizes: NDArray[np.int64]) -> Suspicion:
    """Test the sizes of the support sets of a unary encoding by chi-squared.

    An honest size is a Bernoulli(p) plus a Binomial(k - 1, q) number, whatever the truth. Forged
    reports padded to the mean size, which the gap does not see, are found by their lack of
    spread. Sizes are grouped until `_EXPECTED` reports are expected of each group.
    """
    n = int(sizes.sum())
    expected = n * _size_law(mechanism)
    groups: list[tuple[float, int]] = []
    want, have = 0.0, 0
    for chance, count in zip(expected.tolist(), sizes.tolist(), strict=True):
        want, have = want + chance, have + count
        if want >= _EXPECTED:
            groups.append((want, have))
            want, have = 0.0, 0
    if groups:  # the remaining sizes join the last group
        last = groups.pop()
        groups.append((last[0] + want, last[1] + have))
    statistic = sum((have - want) ** 2 / want for want, have in groups)
    degrees = len(groups) - 1
    p_value = float(chdtrc(degrees, statistic)) if degrees > 0 else 1.0
    return Suspicion("support_sizes", float(statistic), p_value)


def together(mechanism: FrequencyOracle, seen: Supports) -> Suspicion:
    """Test whether more reports support all targets than honest ones would.

    An honest report supports all z targets with a probability of at most p q**(z - 1) under
    unary encoding, and p times the exact chance that all of them share a bucket under hashing,
    so the binomial tail is a bound. It is multiplied by C(k, z): the targets may have been
    chosen because they looked suspicious.
    """
    p, q = mechanism.support
    z = len(seen.targets)
    if isinstance(mechanism, LocalHashing | LOLOHA):
        chance = p * shared_bucket(mechanism.prime, mechanism.buckets, seen.targets)
    else:
        chance = p * q ** (z - 1)
    tail = float(bdtrc(seen.together - 1, seen.n, float(chance))) if seen.together else 1.0
    return Suspicion("together", seen.together, min(1.0, tail * math.comb(mechanism.k, z)))


def shared_bucket(prime: int, buckets: int, values: Sequence[int]) -> Fraction:
    """Return the exact chance that all values have one bucket under a random hash function.

    The functions are only pairwise independent: three values that are evenly spaced share a
    bucket oftener than three that are not. For each slope a the values lie on a circle of
    `prime` residues, and a bucket of s residues holds all of them for max(0, s - span) shifts b,
    span being the length of the shortest arc around them. Cost: O(prime z).
    """
    points = np.arange(prime, dtype=np.int64)[:, None] * np.array(values, dtype=np.int64) % prime
    points.sort(axis=1)
    gaps = np.diff(points, axis=1, append=points[:, :1] + prime)
    spans = prime - gaps.max(axis=1)
    size, larger = divmod(prime, buckets)
    shifts = larger * np.maximum(size + 1 - spans, 0)
    shifts += (buckets - larger) * np.maximum(size - spans, 0)
    return Fraction(int(shifts.sum()), prime**2)


def _tested(mechanism: Mechanism) -> FrequencyOracle:
    if not isinstance(mechanism, FrequencyOracle) or not has_tests(mechanism):
        raise InvalidInput(
            f"forged {mechanism.name} reports look like honest ones: there are tests for unary "
            "encodings and local hashing"
        )
    return mechanism


def _size_variance(mechanism: FrequencyOracle) -> float:
    """Return the variance of the number of categories that an honest unary report supports."""
    p, q = map(float, mechanism.support)
    return p * (1 - p) + (mechanism.k - 1) * q * (1 - q)


def _size_law(mechanism: FrequencyOracle) -> NDArray[np.float64]:
    """Return the probabilities that an honest report supports 0..k categories, shape (k + 1,)."""
    p, q = map(float, mechanism.support)
    others = mechanism.k - 1
    j = np.arange(others + 1)
    logs = np.array([math.lgamma(others + 1) - math.lgamma(i + 1) - math.lgamma(others - i + 1)
                     for i in j.tolist()])  # fmt: skip
    binomial = np.exp(logs + j * math.log(q) + (others - j) * math.log1p(-q))
    law: NDArray[np.float64] = np.convolve(binomial, [1 - p, p])
    return law
