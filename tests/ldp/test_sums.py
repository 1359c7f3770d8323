"""Sums of frequencies, against the values grouped by hand and against simulation."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from populations import tallies, zipf

from ldp import (
    HRR,
    KRR,
    HadamardResponse,
    InvalidInput,
    LocalHashing,
    OneBitMean,
    SubsetSelection,
    Tally,
    UnaryEncoding,
)
from ldp.core.estimation import Cohorts, Estimate
from ldp.core.mechanism import Categorical
from ldp.core.repeated import Repeats
from ldp.estimating import strata
from ldp.estimating.pooling import pool
from ldp.estimating.sums import sums
from ldp.testing import SeededCoins

Floats = NDArray[np.float64]

K = 12
TRUTH = zipf(K, 1.0)
SETS = np.zeros((5, K), dtype=np.bool_)
SETS[0, 0] = True
SETS[1, [1, 2, 3]] = True
SETS[2, ::2] = True
SETS[3, 1:] = True
SETS[4, [10, 11]] = True
SHARES = SETS @ TRUTH


def grouped(
    n: int, epsilon: float, counts: NDArray[np.int64], members: NDArray[np.bool_]
) -> Floats:
    """The share of a set and its standard error, from reports that say only whether they are in it.

    k-RR on k values, looked at so, supports the set with P where the answer is in it, else with Q.
    """
    matrix = KRR(K, epsilon).matrix()
    assert matrix is not None
    own, other = matrix[0, 0], matrix[0, 1]
    size = int(members.sum())
    P, Q = own + (size - 1) * other, size * other
    seen = counts[members].sum() / n
    share = (seen - Q) / (P - Q)
    s = np.clip(share, 0, 1) * (P - Q) + Q
    return np.array([share, math.sqrt(s * (1 - s) / n) / (P - Q)])


def krr(epsilon: float, n: int, truth: Floats = TRUTH) -> tuple[KRR, Tally]:
    mechanism = KRR(K, epsilon)
    matrix = mechanism.matrix()
    assert matrix is not None
    counts = np.random.default_rng(n).multinomial(n, truth @ matrix)
    return mechanism, Tally(n, counts)


def test_a_sum_is_that_of_the_values_grouped_by_hand() -> None:
    n, epsilon = 3000, 1.5
    mechanism, tally = krr(epsilon, n)
    for method in (None, "mle", "gls", "inverse_variance"):
        found = sums(Cohorts([(mechanism, tally)]), SETS, method)  # type: ignore[arg-type]
        for row, members in enumerate(SETS):
            value, error = grouped(n, epsilon, tally.counts, members)
            assert found.value[row] == pytest.approx(value)
            assert found.standard_error[row] == pytest.approx(error, rel=0.01)


def test_a_stratified_sum_is_that_of_each_level_grouped_by_hand() -> None:
    each = [(1.0, *krr(1.0, 4000)), (3.0, *krr(3.0, 2000, TRUTH[::-1]))]
    cohorts = Cohorts([(mechanism, tally) for _, mechanism, tally in each])
    found = sums(cohorts, SETS)
    assert found.method == "stratified"
    assert found.value == pytest.approx(SETS @ strata.stratified(cohorts).value)
    for row, members in enumerate(SETS):
        own = np.array([grouped(t.n, epsilon, t.counts, members) for epsilon, _, t in each])
        w = np.array([2 / 3, 1 / 3])
        value = w @ own[:, 0]
        between = w @ (own[:, 0] - value) ** 2 - (w * (1 - w)) @ own[:, 1] ** 2
        variance = w**2 @ own[:, 1] ** 2 + max(0, between) / 6000
        assert found.value[row] == pytest.approx(value)
        assert found.standard_error[row] == pytest.approx(math.sqrt(variance), rel=0.01)


@pytest.mark.parametrize("most", [math.inf, 0.05, 0.0])
def test_the_sum_of_one_value_is_that_value(most: float) -> None:
    cohorts = Cohorts([krr(1.0, 4000), krr(3.0, 2000)])
    alone = strata.answer(cohorts, most=most).estimate
    found = sums(cohorts, np.eye(K), most=most)
    assert found.method == alone.method
    assert found.value == pytest.approx(alone.value, abs=0.25 * alone.standard_error.min())
    assert found.standard_error == pytest.approx(alone.standard_error, rel=0.03)
    for own, other in zip(found.interval(), alone.interval(), strict=True):
        assert own == pytest.approx(other, abs=0.25 * alone.standard_error.max())


def test_pooled_sums_are_sums_of_the_pooled_values() -> None:
    cohorts = Cohorts([krr(1.0, 4000), (UnaryEncoding(K, 2.0), Tally(900, np.full(K, 300)))])
    for method in ("mle", "gls"):
        found = sums(cohorts, SETS, method, most=0.0)  # type: ignore[arg-type]
        assert found.value == pytest.approx(SETS @ pool(cohorts, method).value)  # type: ignore[arg-type]
    whole = sums(cohorts, np.ones((1, K)), most=0.0)
    assert whole.value == pytest.approx([1.0])
    assert whole.standard_error == pytest.approx([0.0], abs=1e-6)


def test_repeats_widen_a_sum_as_they_widen_a_value() -> None:
    cohort = krr(2.0, 4000)
    once, fresh, memo = (
        sums(Cohorts([cohort], [own]), SETS, "inverse_variance")
        for own in (Repeats(), Repeats(3.0), Repeats(3.0, codes=True))
    )
    assert memo.standard_error == pytest.approx(math.sqrt(3) * once.standard_error, rel=2e-3)
    share = np.clip(once.value, 0, 1)
    more = 2 * share * (1 - share) / 4000
    assert fresh.standard_error**2 == pytest.approx(once.standard_error**2 + more, rel=4e-3)
    low, high = memo.interval()
    narrow, wide = once.interval()
    assert (low <= narrow).all()
    assert (high >= wide).all()


@pytest.mark.parametrize(
    ("cohorts", "sets", "message"),
    [
        (Cohorts([krr(1.0, 9)]), np.eye(3), "sets of 12 values have shape"),
        (Cohorts([krr(1.0, 9)]), np.zeros((1, K)), "each with a value"),
        (
            Cohorts([(OneBitMean(1.0), Tally(9, np.array([4, 5])))]),
            [[True]],
            "not of numbers|up to",
        ),
    ],
    ids=["shape", "empty", "number"],
)
def test_what_has_no_sums_is_refused(cohorts: Cohorts, sets: Floats, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        sums(cohorts, sets)


MECHANISMS = {
    "krr": KRR(K, 1.0),
    "oue": UnaryEncoding(K, 1.0),
    "olh": LocalHashing(K, 1.0),
    "subset": SubsetSelection(K, 1.0),
    "hrr": HRR(K, 1.0),
    "hr": HadamardResponse(K, 1.0),
}


def runs_of(mechanism: Categorical, n: int, runs: int, seed: int) -> list[Tally]:
    values = np.random.default_rng(seed).choice(K, size=(runs, n), p=TRUTH)
    return tallies(mechanism, values, SeededCoins(seed))


def check_covered(found: list[Estimate], rows: slice = slice(None)) -> None:
    """Check that intervals cover, and standard errors are those of the simulated spread."""
    runs = len(found)
    truth = SHARES[rows]
    values = np.array([one.value[rows] for one in found])
    errors = np.sqrt(np.mean([one.standard_error[rows] ** 2 for one in found], axis=0))
    tolerance = 4 / math.sqrt(2 * runs)
    assert values.std(axis=0) == pytest.approx(errors, rel=tolerance)
    assert np.abs(values.mean(axis=0) - truth).max() < 4 * errors.max() / math.sqrt(runs)
    covered = np.mean(
        [
            (low[rows] <= truth) & (truth <= high[rows])
            for low, high in (o.interval() for o in found)
        ],
        axis=0,
    )
    # Clipped at 0 or 1 an interval may cover more often.
    assert covered.min() > 0.95 - max(0.015, 4 * math.sqrt(0.0475 / runs))
    assert covered.mean() < 0.95 + 0.03


@pytest.mark.parametrize("name", MECHANISMS)
def test_sums_of_one_level_cover(name: str) -> None:
    mechanism = MECHANISMS[name]
    found = [
        sums(Cohorts([(mechanism, tally)]), SETS) for tally in runs_of(mechanism, 1000, 300, 1)
    ]
    check_covered(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("most", [math.inf, 0.0], ids=["stratified", "pooled"])
def test_sums_of_two_levels_cover_95_percent(name: str, most: float) -> None:
    first = MECHANISMS[name]
    second = type(first)(K, 3.0)
    runs = 1000
    each = zip(runs_of(first, 2000, runs, 2), runs_of(second, 1000, runs, 3), strict=True)
    found = [sums(Cohorts([(first, a), (second, b)]), SETS, most=most) for a, b in each]
    check_covered(found)


@pytest.mark.parametrize(
    "mechanism",
    [LocalHashing(5, 1.0, buckets=3, prime=7), LocalHashing(K, 2.0)],
    ids=["all functions", "some functions"],
)
def test_sums_under_hashing_have_the_variance_of_the_functions(mechanism: LocalHashing) -> None:
    k, prime, buckets = mechanism.k, mechanism.prime, mechanism.buckets
    truth = zipf(k, 1.0)
    members = np.arange(k) < k - 1
    functions = [(a, b) for a in range(prime) for b in range(prime)]
    if k == K:
        functions = functions[::5]  # of 271,441
    p, q = (float(chance) for chance in mechanism._krr.support)
    first, second = [], []
    for a, b in functions:
        hashes = (a * np.arange(k) + b) % prime * buckets // prime
        load = np.bincount(hashes[members], minlength=buckets)
        named = (p - q) * np.bincount(hashes, truth, buckets) + q
        first.append(named @ load)
        second.append(named @ load**2)
    expected = (np.mean(second) - np.mean(first) ** 2) * mechanism.step[0] ** 2 / 1000
    found = mechanism.sum_variances(members[np.newaxis].astype(float), truth, 1000)
    assert found == pytest.approx([expected], rel=1e-9 if k < K else 0.03)
    ideal = mechanism.covariance(truth, 1000)[np.ix_(members, members)].sum()
    assert expected > 1.05 * ideal
