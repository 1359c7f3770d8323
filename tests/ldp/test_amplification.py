"""Shuffling bounds against published numbers and exact enumeration of small cohorts."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest

from ldp import KRR, LOLOHA, RAPPOR, DBitFlip, InvalidInput, KRRChain, Mechanism, UnaryEncoding
from ldp.assurance import amplification
from ldp.assurance.amplification import (
    clone_bound,
    clone_delta,
    clone_mass,
    closed_form,
    krr_clone_mass,
    shuffled,
)

TABLE = [  # local epsilon, n, closed, clones of any randomizer, clones of k-RR; delta = 1e-6
    (0.5, 10**4, 0.09387, 0.02040, 0.01812),
    (0.5, 10**5, 0.03058, 0.00581, 0.00515),
    pytest.param(0.5, 10**6, 0.00976, 0.00162, 0.00143, marks=pytest.mark.slow),
    (1.0, 10**4, 0.21403, 0.05301, 0.04321),
    (1.0, 10**5, 0.07255, 0.01528, 0.01243),
    pytest.param(1.0, 10**6, 0.02350, 0.00433, 0.00351, marks=pytest.mark.slow),
    (2.0, 10**4, 0.50092, 0.15505, 0.11440),
    (2.0, 10**5, 0.18619, 0.04503, 0.03319),
    (2.0, 10**6, 0.06262, 0.01296, 0.00952),
    (4.0, 10**4, None, 0.60091, 0.41081),
    (4.0, 10**5, 0.53463, 0.16977, 0.11815),
    (4.0, 10**6, 0.20099, 0.04931, 0.03428),
]


@pytest.mark.parametrize(("epsilon", "n", "closed", "general", "krr"), TABLE)
def test_bounds_agree_with_the_table_to_its_digits(
    epsilon: float, n: int, closed: float | None, general: float, krr: float
) -> None:
    digits = 5e-6 + 1e-9
    assert clone_bound(epsilon, n, 1e-6) == pytest.approx(general, abs=digits)
    mechanism = KRR(8, epsilon)
    mass = krr_clone_mass(mechanism)
    own = clone_bound(mechanism.realised_epsilon, n, 1e-6, mass)
    assert own == pytest.approx(krr, abs=digits)
    if closed is not None:
        assert closed_form(epsilon, n, 1e-6) == pytest.approx(closed, abs=digits)
        assert closed_form(epsilon, n, 1e-6) > clone_bound(epsilon, n, 1e-6)


def test_the_closed_form_is_refused_where_it_does_not_hold() -> None:
    with pytest.raises(InvalidInput, match="10000 reports are too few for 4"):
        closed_form(4.0, 10**4, 1e-6)


def exact_delta(k: int, local: float, n: int, epsilon: float) -> float:
    """The worst hockey-stick of n shuffled k-RR reports, over all the other n - 1 answers."""
    p, q = (float(x) for x in KRR(k, local).support)
    reports = [tuple(p if x == y else q for y in range(k)) for x in range(k)]

    def add(histograms: dict[tuple[int, ...], float], x: int) -> dict[tuple[int, ...], float]:
        result: Counter[tuple[int, ...]] = Counter()
        for histogram, probability in histograms.items():
            for y in range(k):
                up = (*histogram[:y], histogram[y] + 1, *histogram[y + 1 :])
                result[up] += probability * reports[x][y]
        return result

    worst = 0.0
    for others in itertools.combinations_with_replacement(range(k), n - 1):
        rest: dict[tuple[int, ...], float] = {(0,) * k: 1.0}
        for x in others:
            rest = add(rest, x)
        first, second = add(rest, 0), add(rest, 1)
        excess = sum(max(first[h] - math.exp(epsilon) * second[h], 0) for h in first)
        worst = max(worst, excess)
    return worst


def variation_ratio_delta(k: int, local: float, n: int, epsilon: float) -> float:
    """The published variation-ratio bound for k-RR, which exact enumeration exceeds."""
    e = math.exp(local)
    own, other = e / (e + k - 1), 1 / (e + k - 1)  # p alpha and alpha, and r = alpha
    first: Counter[tuple[int, int]] = Counter()
    second: Counter[tuple[int, int]] = Counter()
    for clones in range(n):
        mass = math.comb(n - 1, clones) * (2 * other) ** clones
        mass *= (1 - 2 * other) ** (n - 1 - clones)
        for a in range(clones + 1):
            probability = mass * math.comb(clones, a) / 2**clones
            for (da, db), share in (((1, 0), own), ((0, 1), other), ((0, 0), 1 - own - other)):
                first[a + da, clones - a + db] += probability * share
                second[a + db, clones - a + da] += probability * share
    return sum(max(first[h] - math.exp(epsilon) * second[h], 0) for h in first)


@pytest.mark.slow
def test_our_bound_covers_the_exact_delta_where_the_refused_one_does_not() -> None:
    exact = exact_delta(4, 1.0, 8, 0.2)
    assert exact == pytest.approx(0.070604, abs=5e-7)
    assert variation_ratio_delta(4, 1.0, 8, 0.2) == pytest.approx(0.070264, abs=5e-7)
    for mass in (None, krr_clone_mass(KRR(4, 1.0))):
        assert clone_delta(1.0, 8, 0.2, mass) >= exact


@pytest.mark.parametrize(("k", "n"), [(2, 8), (3, 6), (4, 5), (5, 4)])
@pytest.mark.parametrize("local", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("share", [0.1, 0.4, 0.8])
def test_clones_bound_small_cohorts(k: int, n: int, local: float, share: float) -> None:
    mechanism, epsilon = KRR(k, local), share * local
    exact = exact_delta(k, local, n, epsilon)
    ours = clone_delta(local, n, epsilon, krr_clone_mass(mechanism))
    assert exact <= ours <= clone_delta(local, n, epsilon) * (1 + 1e-9)


def test_the_numerical_delta_is_that_of_a_plain_sum() -> None:
    local, n, epsilon, mass = 1.0, 300, 0.1, math.exp(-1.0)
    e, w = math.exp(epsilon), math.exp(local) / (1 + math.exp(local))
    total = 0.0
    for clones in range(n):
        weight = math.comb(n - 1, clones) * mass**clones * (1 - mass) ** (n - 1 - clones)
        half = Fraction(1, 2**clones)
        for a in range(clones + 2):
            up = float(math.comb(clones, a - 1) * half) if a else 0.0
            same = float(math.comb(clones, a) * half)
            excess = w * up + (1 - w) * same - e * ((1 - w) * up + w * same)
            total += weight * max(excess, 0.0)
    assert total <= clone_delta(local, n, epsilon, mass) <= total * (1 + 2e-6)


def test_shuffling_never_costs_privacy() -> None:
    assert 0.99999 < clone_bound(1.0, 1, 1e-6) <= 1.0
    assert clone_delta(1.0, 10, 1.0) == 0.0


def test_a_generous_delta_needs_no_epsilon() -> None:
    assert clone_bound(0.1, 10**5, 0.5) == 0.0


@pytest.mark.parametrize("k", [2, 3, 8])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_clone_mass_of_krr_is_that_of_its_channel(k: int, epsilon: float) -> None:
    mechanism = KRR(k, epsilon)
    assert krr_clone_mass(mechanism) == clone_mass(mechanism.channel())
    assert krr_clone_mass(mechanism) == pytest.approx(2 / (math.exp(epsilon) + 1))


def test_no_channel_has_less_than_the_default_clone_mass() -> None:
    mechanism = UnaryEncoding(4, 1.0)
    assert clone_mass(mechanism.channel()) == pytest.approx(math.exp(-1.0))


@pytest.mark.parametrize(
    "mechanism",
    [
        KRRChain.calibrate(4, 1.0, 2.0),
        LOLOHA.calibrate(4, 1.0, 2.0),
        RAPPOR.calibrate(1.0, 2.0),
        DBitFlip(4, 1.0, 2),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_reports_that_link_a_device_s_rounds_are_refused(mechanism: Mechanism) -> None:
    with pytest.raises(InvalidInput, match=r"share a memo from round to round.* drawn for life"):
        shuffled([KRR(4, 1.0), mechanism], 10**5, 1e-6)


def test_blocks_of_clones_bound_from_above_and_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    each = [clone_delta(1.0, 10**4, x * 0.01) for x in range(1, 7)]
    monkeypatch.setattr(amplification, "_BLOCKS", 300)  # of some 1000 numbers of clones
    blocks = [clone_delta(1.0, 10**4, x * 0.01) for x in range(1, 7)]
    for exact, thinned in zip(each, blocks, strict=True):
        assert exact < thinned < 1.02 * exact


def test_the_largest_cohort_follows_the_square_root_law_and_a_larger_one_is_refused() -> None:
    smaller, largest = (clone_bound(4.0, n, 1e-6) for n in (10**8, 10**10))
    # A fixed delta buys relatively less of a larger cohort's noise: less than a tenth remains.
    assert 0.07 * smaller < largest < 0.1 * smaller
    with pytest.raises(InvalidInput, match=r"at most 10000000000 .* got 1000000000000; the bound"):
        clone_bound(1.0, 10**12, 1e-6)
    with pytest.raises(InvalidInput, match="at most 10000000000"):
        clone_delta(1.0, 10**12, 0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shuffled([KRR(4, 1.0)], 0, 1e-6), "n must be at least 1, got 0"),
        (lambda: clone_bound(1.0, 10, 0.0), "delta must lie strictly between 0 and 1, got 0.0"),
        (lambda: clone_bound(-1.0, 10, 0.1), "epsilon must be finite and > 0"),
        (lambda: clone_delta(1.0, 10, 0.1, 1.5), r"a clone mass lies in \(0, 1\], got 1.5"),
        (lambda: clone_delta(1.0, 10, -0.1), "the shuffled epsilon must be >= 0, got -0.1"),
        (lambda: shuffled([], 10, 0.1), "a record has one answer at least, got none"),
    ],
)
def test_nonsense_is_refused(call: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call()  # type: ignore[operator]
