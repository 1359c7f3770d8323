"""Local hashing: exact collisions, its variance, and two ways to count to the same integers."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from ldp import KRR, InvalidInput, LocalHashing, Tally, build
from ldp.mechanisms.frequency import local_hashing
from ldp.mechanisms.tools.hashing import collision, first_residue, hashed
from ldp.testing import SeededCoins


@pytest.mark.parametrize(("prime", "buckets"), [(5, 2), (7, 3), (11, 4), (13, 13), (17, 5)])
def test_every_two_values_collide_with_exactly_the_stated_probability(
    prime: int, buckets: int
) -> None:
    a, b = np.divmod(np.arange(prime**2), prime)
    hashes = [hashed(a, b, np.full_like(a, v), prime, buckets) for v in range(prime)]
    for first, second in itertools.combinations(hashes, 2):
        share = Fraction(int(np.count_nonzero(first == second)), prime**2)
        assert share == collision(prime, buckets)


def test_the_first_residues_bound_the_buckets() -> None:
    for prime, buckets in ((5, 2), (11, 4), (131, 7), (13, 13)):
        starts = first_residue(np.arange(buckets + 1), prime, buckets)
        residues = np.arange(prime)
        bucket = hashed(np.zeros_like(residues), residues, residues, prime, buckets)
        assert np.array_equal(np.searchsorted(starts, residues, side="right") - 1, bucket)
        assert starts[-1] == prime


def test_given_the_function_a_report_is_krr_of_the_bucket() -> None:
    # So the worst ratio over all codes is KRR's, whatever the prime; whole channels are
    # enumerated for small primes in test_exactness.
    mechanism = LocalHashing(3, 0.5, prime=53)
    krr = KRR(mechanism.buckets, 0.5).channel()
    channel = mechanism.channel()
    for (a, b), v in itertools.product([(0, 0), (1, 2), (20, 41), (52, 52)], range(3)):
        first = (a * mechanism.prime + b) * mechanism.buckets
        row = channel.rows[v][first : first + mechanism.buckets]
        bucket = (a * v + b) % mechanism.prime * mechanism.buckets // mechanism.prime
        assert tuple(chance * mechanism.prime**2 for chance in row) == krr.rows[bucket]


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
def test_the_default_wastes_no_budget_and_little_variance(epsilon: float) -> None:
    mechanism = LocalHashing.optimised(1024, epsilon)
    assert mechanism.realised_epsilon == KRR(mechanism.buckets, epsilon).realised_epsilon
    assert 0.999 * epsilon <= mechanism.realised_epsilon <= epsilon
    even = collision(mechanism.prime, mechanism.buckets) * mechanism.buckets
    assert 1 <= even <= 1 + Fraction(1, 16384)


# n times the variance for rare values, Wang et al. 2017, table 2, for epsilon = .5, 1, 2, 4.
@pytest.mark.parametrize(
    ("epsilon", "blh", "olh"),
    [(0.5, 16.67, 15.67), (1, 4.68, 3.68), (2, 1.72, 0.72), (4, 1.08, 0.08)],
)
def test_the_published_variances(epsilon: float, blh: float, olh: float) -> None:
    assert LocalHashing.binary(1024, epsilon).variance(0, 1) == pytest.approx(blh, abs=0.006)
    # The table has the variance at g = e**epsilon + 1; a whole g costs up to 1% more.
    assert olh - 0.006 <= LocalHashing.optimised(1024, epsilon).variance(0, 1) < 1.01 * olh + 0.006


@pytest.mark.parametrize(
    "mechanism",
    [
        LocalHashing.optimised(10, 1.0),  # residues of 16 bits
        LocalHashing(9, 1.0, prime=40009),  # residues that 16 bits cannot add
        LocalHashing(300, 4.0, prime=65537),  # codes of 8 bytes
    ],
    ids=repr,
)
def test_every_way_to_count_gives_the_integers_of_a_loop(
    mechanism: LocalHashing, coins: SeededCoins
) -> None:
    codes = mechanism.randomize_many(np.arange(500) % mechanism.k, coins)
    counts = [0] * mechanism.k
    for code in codes.tolist():
        seed, y = divmod(code, mechanism.buckets)
        a, b = divmod(seed, mechanism.prime)
        for v in range(mechanism.k):
            counts[v] += (a * v + b) % mechanism.prime * mechanism.buckets // mechanism.prime == y
    assert mechanism.tally(codes).counts.tolist() == counts
    pairs = (mechanism.tally(codes[begin : begin + 2]) for begin in range(0, 500, 2))
    assert sum(pairs, Tally.empty(mechanism.k)).counts.tolist() == counts
    compiled = local_hashing._compiled()
    if compiled is not None:
        assert mechanism._tally(codes, compiled).counts.tolist() == counts


def test_without_numba_a_large_tally_is_counted_all_the_same(
    monkeypatch: pytest.MonkeyPatch, coins: SeededCoins
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    mechanism = LocalHashing(40, 1.0)
    codes = mechanism.randomize_many(np.arange(1000) % 40, coins)
    expected = mechanism.tally(codes)
    monkeypatch.setattr(local_hashing, "_COMPILE", 1)
    monkeypatch.setattr(local_hashing, "_compiled", local_hashing._compiled.__wrapped__)
    monkeypatch.setattr("importlib.import_module", missing)
    assert mechanism.tally(codes) == expected


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prime": [91]}, r"prime must be a prime in 8\.\.4194304, got 91"),
        ({"prime": [7]}, r"prime must be a prime in 8\.\.4194304, got 7"),
        ({"prime": [4194319]}, r"prime must be a prime in 8\.\.4194304, got 4194319"),
        ({"buckets": [1]}, r"buckets must lie in 2\.\.32768, got 1"),
        ({"buckets": [64]}, "the integers give epsilon"),
    ],
)
def test_integers_that_make_no_family_are_refused(
    change: dict[str, list[int]], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        build("hashing", 1.0, LocalHashing(8, 1.0).integers | change)
