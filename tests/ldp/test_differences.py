"""Differences between two parts of the reports: errors, tests, and their correction."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from populations import tallies, zipf

from ldp import KRR, HadamardResponse, InvalidInput, OneBitMean, SquareWave, Tally, UnaryEncoding
from ldp.core.estimation import Cohorts
from ldp.core.mechanism import Mechanism
from ldp.core.repeated import Repeats, factors
from ldp.estimating.differences import Differences, differences, holm
from ldp.estimating.strata import stratified
from ldp.planning.sizes import two_wave_power, two_wave_sample_size
from ldp.testing import SeededCoins

Floats = NDArray[np.float64]


def test_the_correction_is_holms_step_down() -> None:
    given = [0.04, 0.001, 0.03, 0.5, 0.01]
    # By hand: 5 x 0.001, 4 x 0.01, 3 x 0.03, then 2 x 0.04 raised to what came before, 0.5.
    assert holm(given).tolist() == pytest.approx([0.09, 0.005, 0.09, 0.5, 0.04])
    assert holm([0.9, 0.8]).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("seed", range(5))
def test_holm_rejects_what_the_loop_of_the_paper_rejects(seed: int) -> None:
    p = np.random.default_rng(seed).uniform(0, 0.05, 20) ** 1.5
    for alpha in (0.01, 0.05, 0.1):
        rejected = set()
        for step, test in enumerate(np.argsort(p)):
            if p[test] > alpha / (p.size - step):
                break
            rejected.add(int(test))
        assert set(np.flatnonzero(holm(p) <= alpha).tolist()) == rejected


def cohort(mechanism: Mechanism, truth: Floats, n: int, seed: int) -> tuple[Mechanism, Tally]:
    values = np.random.default_rng(seed).choice(truth.size, size=(1, n), p=truth)
    return mechanism, tallies(mechanism, values, SeededCoins(seed))[0]


def test_a_difference_is_that_of_the_estimates_with_the_sum_of_their_variances() -> None:
    k = 6
    first = Cohorts(
        [cohort(KRR(k, 1.0), zipf(k, 1), 900, 1), cohort(KRR(k, 2.0), zipf(k, 0), 600, 2)]
    )
    second = Cohorts([cohort(UnaryEncoding(k, 1.0), zipf(k, 1), 4000, 3)])
    found = differences(first, second)
    one, other = stratified(first), stratified(second)
    assert found.value == pytest.approx(other.value - one.value)
    apart = np.sqrt(one.standard_error**2 + other.standard_error**2)
    assert (found.standard_error >= apart).all()
    assert found.standard_error == pytest.approx(apart, rel=0.05)
    back = differences(second, first)
    assert back.value == pytest.approx(-found.value)
    assert back.p_value == pytest.approx(found.p_value)


@pytest.mark.parametrize("simultaneous", [False, True])
def test_an_interval_without_zero_is_a_small_p_value(simultaneous: bool) -> None:
    k = 6
    found = differences(
        Cohorts([cohort(KRR(k, 2.0), zipf(k, 1), 2000, 1)]),
        Cohorts([cohort(KRR(k, 2.0), zipf(k, 0.5), 2000, 2)]),
    )
    low, high = found.interval(0.95, simultaneous=simultaneous)
    without_zero = (low > 0) | (high < 0)
    assert without_zero.any()
    assert not without_zero.all()
    limit = 0.05 / k if simultaneous else 0.05
    assert without_zero.tolist() == (found.p_value < limit).tolist()


def test_parts_of_different_questions_are_refused() -> None:
    frequencies = Cohorts([(KRR(2, 1.0), Tally(9, np.array([4, 5])))])
    mean = Cohorts([(OneBitMean(1.0), Tally(9, np.array([4, 5])))])
    with pytest.raises(InvalidInput, match="parts estimate 2 and 1 parameters"):
        differences(frequencies, mean)


def runs_of(
    make: Callable[[np.random.Generator], tuple[Cohorts, Cohorts]], runs: int
) -> list[Differences]:
    rng = np.random.default_rng(7)
    return [differences(*make(rng)) for _ in range(runs)]


def counted(
    mechanism: KRR,
    truth: Floats,
    n: int,
    rng: np.random.Generator,
) -> Cohorts:
    matrix = mechanism.matrix()
    assert matrix is not None
    return Cohorts([(mechanism, Tally(n, rng.multinomial(n, truth @ matrix)))])


def errors_of_any(found: list[Differences], alpha: float = 0.05) -> float:
    """How often some value of two like parts is called different."""
    return float(np.mean([(each.adjusted_p_value <= alpha).any() for each in found]))


UNEVEN = [(1.0, 10, 2000, 2000), (4.0, 50, 400, 20_000), (6.0, 10, 300, 300), (0.5, 3, 500, 90)]


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "k", "n", "m"), UNEVEN)
def test_like_parts_are_rarely_called_different(epsilon: float, k: int, n: int, m: int) -> None:
    mechanism, truth = KRR(k, epsilon), zipf(k, 1.0)
    found = runs_of(
        lambda rng: (counted(mechanism, truth, n, rng), counted(mechanism, truth, m, rng)), 500
    )
    assert errors_of_any(found) <= 0.05 + 3 * math.sqrt(0.0475 / 500)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "k", "n", "m"), UNEVEN)
def test_the_family_of_tests_errs_at_its_level(epsilon: float, k: int, n: int, m: int) -> None:
    mechanism, truth = KRR(k, epsilon), zipf(k, 1.0)
    found = runs_of(
        lambda rng: (counted(mechanism, truth, n, rng), counted(mechanism, truth, m, rng)), 5_000
    )
    assert errors_of_any(found) <= 0.05 + 0.0075
    single = np.mean([each.p_value <= 0.05 for each in found], axis=0)
    assert single.max() <= 0.0575
    if epsilon == 1.0:  # where nothing is rare the test has the size it says
        assert single.min() >= 0.0425


@pytest.mark.slow
@pytest.mark.parametrize("maker", [KRR, UnaryEncoding, HadamardResponse, SquareWave])
def test_intervals_of_differences_cover_95_percent(maker: type[Mechanism]) -> None:
    k, n, runs = 6, 1500, 1500
    if maker is SquareWave:
        mechanism: Mechanism = SquareWave(1.0, 5)
        scale = np.linspace(-1, 1, k)
    else:
        mechanism = maker(k, 1.0)  # type: ignore[call-arg]
        scale = np.eye(k)
    truths = zipf(k, 1.0), zipf(k, 0.5)
    rng = np.random.default_rng(1)
    drawn = []
    for seed, truth in enumerate(truths):
        values = rng.choice(k, size=(runs, n), p=truth)
        given = scale[values] if scale.ndim == 1 else values
        drawn.append(tallies(mechanism, given, SeededCoins(seed)))
    expected = truths[1] @ scale.T - truths[0] @ scale.T
    covered = []
    for one, other in zip(*drawn, strict=True):
        found = differences(Cohorts([(mechanism, one)]), Cohorts([(mechanism, other)]))
        low, high = found.interval()
        covered.append((low <= expected) & (expected <= high))
    assert np.mean(covered, axis=0) == pytest.approx(
        np.full_like(covered[0], 0.95, float), abs=0.02
    )


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_power_is_the_planned_one(epsilon: float) -> None:
    """`plan --change --different-people` says how many reports show a change with probability 0.8;
    so many do."""
    k, change, runs = 10, 0.02, 600
    mechanism, truth = KRR(k, epsilon), np.full(k, 0.1)
    n = two_wave_sample_size(mechanism, 0.1, change)
    moved = truth - change / (k - 1)
    moved[0] = truth[0] + change
    found = runs_of(
        lambda rng: (
            counted(mechanism, truth, n, rng),
            counted(mechanism, moved, n, rng),
        ),
        runs,
    )
    seen = np.mean([each.p_value[0] <= 0.05 for each in found])
    # Planned for the truth before; the value is a little more frequent, and noisier, after.
    assert seen >= 0.8 - 0.03 - 3 * math.sqrt(0.16 / runs)
    assert seen <= 0.8 + 3 * math.sqrt(0.16 / runs)
    planned = two_wave_power(mechanism, 0.1, change, n)
    assert planned == pytest.approx(0.8, abs=0.001)


@pytest.mark.slow
@pytest.mark.parametrize("memo", [False, True], ids=["fresh", "memo"])
@pytest.mark.parametrize("share", [0.0, 1.0], ids=["kept", "swapped"])
def test_people_in_both_parts_do_not_make_errors_too_small(memo: bool, share: float) -> None:
    """Each person answers in both periods: with the same value, or with the other one of two.

    Swapping is the worst that can be: the true frequencies stay, and the estimates move apart.
    """
    rng, n, runs = np.random.default_rng(4), 500, 800
    mechanism = KRR(2, 3.0)
    own = KRR(2, 3.0).matrix()
    assert own is not None
    keep = own[0, 0]
    own_factors = factors([[n, 0], [0, n]]).tolist()
    assert own_factors == [2.0, 2.0]
    values, rejected = [], 0
    for _ in range(runs):
        answers = rng.random(n) < 0.5
        later = answers ^ (rng.random(n) < share)
        lies = rng.random(n) >= keep
        again = lies if memo else rng.random(n) >= keep
        parts = [
            Cohorts(
                [(mechanism, Tally(n, np.array([n - said.sum(), said.sum()])))],
                [Repeats(factor, memo)],
            )
            for said, factor in zip((answers ^ lies, later ^ again), own_factors, strict=True)
        ]
        found = differences(*parts)
        values.append(found.value)
        rejected += bool((found.p_value <= 0.05).any())
    spread = np.std(values, axis=0)
    assert (spread <= 1.05 * found.standard_error).all()
    assert rejected / runs <= 0.05 + 3 * math.sqrt(0.0475 / runs)
    if share:  # the bound is reached
        assert spread == pytest.approx(found.standard_error, rel=0.1)
