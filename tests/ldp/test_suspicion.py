"""Suspicion tests: their false positives at the stated level, and the attacks that they find."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import KRR, FrequencyOracle, InvalidInput, LocalHashing, UnaryEncoding
from ldp.assurance.suspicion import (
    Supports,
    has_gap,
    has_tests,
    norm_sub_gap,
    shared_bucket,
    supports,
    suspicions,
)
from ldp.mechanisms import UnaryChain
from ldp.testing import SeededCoins

K = 16
TARGETS = (3, 9, 12)
OUE = UnaryEncoding(K, 1.0)
OLH = LocalHashing(K, 1.0)


def answers(n: int, source: np.random.Generator) -> NDArray[np.int64]:
    """Half of the people have a target, so that targets are together as often as they can be."""
    return np.where(source.random(n) < 0.5, source.choice(TARGETS, n), source.integers(0, K, n))


def p_values(mechanism: FrequencyOracle, codes: NDArray[np.generic]) -> dict[str, float]:
    return {s.test: s.p_value for s in suspicions(mechanism, supports(mechanism, codes, TARGETS))}


@pytest.mark.parametrize(
    "mechanism",
    [OUE, UnaryEncoding.symmetric(K, 2.0), UnaryChain.l_osue(K, 1.0, 2.0), OLH],
    ids=["oue", "sue", "chain", "olh"],
)
@pytest.mark.slow
def test_honest_reports_are_suspected_as_rarely_as_stated(mechanism: FrequencyOracle) -> None:
    source, coins = np.random.default_rng(11), SeededCoins(11)
    runs, n = 2000, 500
    codes = mechanism.randomize_many(answers(runs * n, source), coins)
    found = [p_values(mechanism, codes[i * n : (i + 1) * n]) for i in range(runs)]
    for test in found[0]:
        for level in (0.05, 0.01):
            rate = np.mean([p[test] < level for p in found])
            error = np.sqrt(level * (1 - level) / runs)
            assert rate < level + 4 * error + 0.15 * level  # chi-squared and normal are nearly so
            if test != "together" and (test, mechanism) != ("norm_sub_gap", OLH):  # bounds
                assert rate > level - 4 * error


@pytest.mark.parametrize(
    "n", [2, 20, *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 100, 1000))]
)
@pytest.mark.parametrize(
    "mechanism",
    [
        LocalHashing.optimised(2, 1.0),
        LocalHashing.optimised(64, 4.0),
        UnaryEncoding(6, 1.0),
        UnaryEncoding.symmetric(16, 10.0),
    ],
    ids=["olh-2", "olh-64", "oue", "sue"],
)
def test_few_honest_reports_are_suspected_no_oftener_than_stated(
    mechanism: FrequencyOracle, n: int
) -> None:
    runs = 1000
    source = np.random.default_rng(21)
    values = np.where(source.random(runs * n) < 0.5, 0, source.integers(0, mechanism.k, runs * n))
    codes = mechanism.randomize_many(values, SeededCoins(22))
    targets = tuple(range(min(3, mechanism.k)))
    sizes = sum(mechanism.evidence(codes, v) for v in range(mechanism.k))
    hits = np.all([mechanism.evidence(codes, v) for v in targets], axis=0).reshape(runs, n)
    every: dict[str, list[float]] = {}
    for row, both in zip(np.reshape(sizes, (runs, n)), hits.sum(axis=1), strict=True):
        seen = Supports(np.bincount(row, minlength=mechanism.k + 1), targets, int(both))
        for test in suspicions(mechanism, seen):
            every.setdefault(test.test, []).append(test.p_value)
    assert ("norm_sub_gap" in every) == has_gap(mechanism, n)
    for found in every.values():
        for level in (0.05, 0.01, 0.001):
            rate, error = np.mean(np.array(found) < level), np.sqrt(level / runs)
            assert rate <= level + 4 * error


def test_the_gap_is_not_tested_of_too_few_reports() -> None:
    assert not has_gap(OUE, 99)
    assert has_gap(OUE, 100)
    assert not has_gap(OLH, 1)
    assert has_gap(OLH, 2)
    rare = UnaryEncoding.symmetric(2, 12.0)  # which supports one category nearly always
    assert not has_gap(rare, 100)
    seen = Supports(np.eye(K + 1, dtype=np.int64)[2], TARGETS, 0)
    assert [each.test for each in suspicions(OUE, seen)] == ["support_sizes", "together"]
    assert [each.test for each in suspicions(OLH, seen)] == ["together"]
    with pytest.raises(InvalidInput, match="more reports than 1"):
        norm_sub_gap(OLH, seen.sizes)


def test_forged_hashes_that_support_too_much_are_found_by_the_sum() -> None:
    source = np.random.default_rng(23)
    honest = OLH.randomize_many(answers(20_000, source), SeededCoins(23))
    fresh = OLH.randomize_many(answers(50_000, source), SeededCoins(24))
    sizes = np.sum([OLH.evidence(fresh, value) for value in range(K)], axis=0)
    forged = fresh[np.argsort(-sizes)[:1000]]
    found = suspicions(OLH, supports(OLH, np.concatenate([honest, forged]), TARGETS))
    assert found[0].test == "norm_sub_gap"
    assert found[0].p_value < 1e-6


def forged_unary(n: int, padding: int, source: np.random.Generator) -> NDArray[np.uint8]:
    """Reports that support all targets and `padding` categories more."""
    others = np.setdiff1d(np.arange(K), TARGETS)
    bits = np.zeros((n, K), dtype=np.uint8)
    bits[:, TARGETS] = 1
    for row in bits:
        row[source.choice(others, padding, replace=False)] = 1
    return np.packbits(bits, axis=1, bitorder="little")


def test_forged_unary_reports_are_found_by_the_sum_of_the_estimates() -> None:
    source = np.random.default_rng(12)
    honest = OUE.randomize_many(answers(20_000, source), SeededCoins(12))
    codes = np.concatenate([honest, forged_unary(1000, 13, source)])
    assert p_values(OUE, codes)["norm_sub_gap"] < 1e-6
    raw = OUE.debias(OUE.tally(codes))
    seen = supports(OUE, codes, TARGETS)
    assert suspicions(OUE, seen)[0].statistic == pytest.approx(raw.sum() - 1)


def test_padded_reports_are_found_by_their_sizes_and_their_targets() -> None:
    # Padded to the mean size: 1/2 + 15 / (e + 1) = 4.5.
    source = np.random.default_rng(13)
    honest = OUE.randomize_many(answers(20_000, source), SeededCoins(13))
    half = [forged_unary(500, padding, source) for padding in (1, 2)]
    found = p_values(OUE, np.concatenate([honest, *half]))
    assert found["norm_sub_gap"] > 0.01
    assert found["support_sizes"] < 1e-3
    assert found["together"] < 1e-6


def test_forged_hashes_that_support_all_targets_are_found() -> None:
    source = np.random.default_rng(14)
    codes = OLH.randomize_many(answers(20_000, source), SeededCoins(14))
    fresh = OLH.randomize_many(answers(200_000, source), SeededCoins(15))
    hits = np.all([OLH.evidence(fresh, value) for value in TARGETS], axis=0)
    attack = np.resize(fresh[hits], 2000)
    assert p_values(OLH, codes)["together"] > 0.01
    assert p_values(OLH, np.concatenate([codes, attack]))["together"] < 1e-6


@pytest.mark.parametrize("values", [(0, 1), (0, 1, 2), (2, 3, 7), (0, 1, 2, 3)])
def test_the_chance_of_a_shared_bucket_is_that_over_all_functions(values: tuple[int, ...]) -> None:
    prime, buckets = 23, 4
    a, b = np.divmod(np.arange(prime**2), prime)
    hashes = [(a * v + b) % prime * buckets // prime for v in values]
    same = np.all([x == y for x, y in pairwise(hashes)], axis=0)
    assert shared_bucket(prime, buckets, values) * prime**2 == same.sum()


def test_supports_are_those_counted_one_by_one() -> None:
    codes = OUE.randomize_many(np.arange(K), SeededCoins(16))
    bits = np.unpackbits(codes, axis=1, count=K, bitorder="little")
    seen = supports(OUE, codes, TARGETS)
    assert seen.sizes.tolist() == np.bincount(bits.sum(axis=1, dtype=int), minlength=K + 1).tolist()
    assert seen.together == bits[:, TARGETS].all(axis=1).sum()


def test_supports_of_batches_add_up_to_those_of_all() -> None:
    codes = OLH.randomize_many(np.arange(K).repeat(20), SeededCoins(17))
    parts = [supports(OLH, part, TARGETS) for part in (codes[:100], codes[100:])]
    whole = supports(OLH, codes, TARGETS)
    both = parts[0] + parts[1]
    assert both.sizes.tolist() == whole.sizes.tolist()
    assert (both.n, both.together) == (whole.n, whole.together)
    with pytest.raises(InvalidInput, match="do not add up"):
        whole + supports(OLH, codes, (1, 2))


def test_what_cannot_be_tested_is_refused() -> None:
    krr = KRR(K, 1.0)
    assert not has_tests(krr)
    with pytest.raises(InvalidInput, match="forged krr reports look like honest ones"):
        supports(krr, np.zeros(5, dtype=np.uint8), TARGETS)
    with pytest.raises(InvalidInput, match="two or more different categories"):
        supports(OUE, OUE.randomize_many(np.arange(3), SeededCoins(18)), (4, 4))
    with pytest.raises(InvalidInput, match="no reports to test"):
        suspicions(OUE, Supports(np.zeros(K + 1, dtype=np.int64), TARGETS, 0))
