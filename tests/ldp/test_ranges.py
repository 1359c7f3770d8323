"""The proposed range of a number beside the best one, on real wages and invented numbers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import InvalidInput, Waves
from ldp.estimating.ranges import Range, fitted, growing_edges, propose
from ldp.planning.mean_design import plain
from ldp.testing import SeededCoins

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "wages"
EDGES = growing_edges(1.0, 1e6, per_decade=3)
BINS = len(EDGES) - 1
NOISE = plain(1.0).largest_report_variance


def pilot(numbers: NDArray[np.float64], reports: int, epsilon: float, seed: int, n: int) -> Range:
    """Ask so many people, drawn from these numbers, and propose a range for n at epsilon 1."""
    mechanism = Waves.over(BINS, epsilon)
    drawn = np.random.default_rng(seed).choice(numbers, reports)
    bins = np.clip(np.searchsorted(EDGES, drawn, side="right") - 1, 0, BINS - 1)
    tally = mechanism.tally(mechanism.randomize_many(bins, SeededCoins(seed)))
    spread = mechanism.covariance(np.full(BINS, 1 / BINS), reports)
    return propose(EDGES, mechanism.debias(tally), spread, pilot=reports, n=n, variance=NOISE)


def error(numbers: NDArray[np.float64], low: float, high: float, n: int) -> float:
    """The squared error that the module's first lines define, by the numbers themselves."""
    below, above = np.maximum(low - numbers, 0).mean(), np.maximum(numbers - high, 0).mean()
    return float((below + above) ** 2 + ((high - low) / 2) ** 2 * NOISE / n)


def test_edges_grow_on_both_sides_of_zero() -> None:
    assert growing_edges(1, 100, per_decade=3) == (
        -100, -46.4, -21.5, -10, -4.64, -2.15, -1, 1, 2.15, 4.64, 10, 21.5, 46.4, 100,
    )  # fmt: skip
    assert growing_edges(0.1, 10, per_decade=1, negative=False) == (0, 0.1, 1, 10)


@pytest.mark.parametrize(
    "negative",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["positive", "mostly negative"],
)
def test_the_range_is_near_the_best(negative: bool) -> None:
    numbers = np.exp(np.random.default_rng(1).normal(5.0, 1.0, 100_000))
    numbers[:10_000] = 0
    if negative:
        numbers = -numbers
        numbers[50_000:60_000] *= -0.1
    ends = np.linspace(0, 3000, 31)
    found = []
    for seed in range(3):
        proposed = pilot(numbers, 5000, 2.0, seed, 20_000)
        clamped = np.mean((numbers < proposed.low) | (numbers > proposed.high))
        assert proposed.clamped_low <= clamped <= proposed.clamped_high
        assert proposed.error**2 == pytest.approx(proposed.bias**2 + proposed.noise**2)
        found.append(error(numbers, proposed.low, proposed.high, 20_000))
    lows, highs = (-ends, ends / 5) if negative else (ends[:1], ends)
    best = min(error(numbers, a, b, 20_000) for a in lows for b in highs if a < b)
    assert np.median(found) < 1.8 * best


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not here")
@pytest.mark.parametrize(
    ("file", "column"), [("CPS1988.csv.gz", "wage"), ("gss_wages.csv.gz", "realrinc")]
)
def test_wages_get_a_range_near_the_best(file: str, column: str) -> None:
    """By pilots of 5,000 reports at epsilon 1. The widest range would be 200,000 times worse."""
    pandas = pytest.importorskip("pandas")
    numbers = pandas.read_csv(DATA / file)[column].dropna().to_numpy(dtype=float)
    for n in (2000, 20_000, 200_000):
        top = np.quantile(numbers, np.linspace(0.5, 1, 1001))
        best = min(error(numbers, 0.0, high, n) for high in top)
        found, covered = [], 0
        for seed in range(7):
            proposed = pilot(numbers, 5000, 1.0, seed, n)
            found.append(error(numbers, proposed.low, proposed.high, n) / best)
            clamped = np.mean((numbers < proposed.low) | (numbers > proposed.high))
            covered += bool(proposed.clamped_low <= clamped <= proposed.clamped_high)
        assert np.median(found) < 1.7
        assert max(found) < 8
        assert covered >= 6


def test_a_sign_that_is_not_seen_is_left_out() -> None:
    numbers = np.exp(np.random.default_rng(1).normal(5.0, 1.0, 10_000))
    bins = np.searchsorted(EDGES, numbers, side="right") - 1
    mechanism = Waves.over(BINS, 1.0)
    found = mechanism.debias(mechanism.tally(mechanism.randomize_many(bins, SeededCoins(2))))
    model = fitted(EDGES, found, mechanism.covariance(np.full(BINS, 1 / BINS), numbers.size))
    assert model.signs == (1,)
    assert model.shares.sum() == pytest.approx(1)
    assert not model.shares[: BINS // 2].any()


def test_numbers_that_are_mostly_zero_get_a_range_of_the_others() -> None:
    edges = growing_edges(1.0, 1e6, negative=False)
    bins = len(edges) - 1
    numbers = np.exp(np.random.default_rng(0).normal(5, 1, 100_000))
    numbers[:90_000] = 0
    mechanism = Waves.over(bins, 2.0)
    drawn = np.random.default_rng(0).choice(numbers, 20_000)
    codes = np.clip(np.searchsorted(edges, drawn, side="right") - 1, 0, bins - 1)
    tally = mechanism.tally(mechanism.randomize_many(codes, SeededCoins(0)))
    spread = mechanism.covariance(np.full(bins, 1 / bins), 20_000)
    found = propose(edges, mechanism.debias(tally), spread, pilot=20_000, n=20_000, variance=NOISE)
    assert 500 < found.high < 2000  # from the middle alone: 1.3


def test_two_modes_contradict_the_fitted_distribution() -> None:
    """Of 90% near 20 and 10% near 5,000 the fit sees the first alone, and proposes their range."""
    draw = np.random.default_rng(3)
    numbers = np.exp(np.r_[draw.normal(3, 0.5, 9000), draw.normal(8.5, 0.5, 1000)])
    found = pilot(numbers, 5000, 3.0, 1, 20_000)
    moved = np.maximum(numbers - found.high, 0).mean()
    assert moved > 100 * found.bias
    assert found.bias_high > moved
    assert found.misfit > 6


def test_numbers_beyond_the_pilot_may_be_clamped() -> None:
    """A pilot up to 100, of numbers that are mostly larger: no end of a range is known to hold."""
    edges = (0.0, 1.0, 10.0, 100.0)
    found = propose(edges, (0.1, 0.1, 0.8), np.eye(3) / 5000, pilot=5000, n=10**9, variance=4)
    assert found.high > 90
    assert found.clamped_high > 0.75
    assert found.beyond > 0.5


@pytest.mark.slow
def test_more_reports_allow_a_wider_range() -> None:
    numbers = np.exp(np.random.default_rng(1).normal(5.0, 1.0, 10_000))
    few, many = (pilot(numbers, 5000, 2.0, 1, n) for n in (1000, 1_000_000))
    assert few.high < many.high
    assert few.clamped > many.clamped


THREE, SHARES, SPREAD = (0.0, 1.0, 10.0, 100.0), (0.2, 0.5, 0.3), np.eye(3) / 100


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: growing_edges(0, 10), "0 < smallest < largest"),
        (lambda: growing_edges(1, 1e80), "take a larger smallest number"),
        (lambda: growing_edges(1, 2, per_decade=1, negative=False), "there are 2 bins"),
        (lambda: fitted((1.0, 2.0, 3.0, 4.0), SHARES, SPREAD), "from 0 or less"),
        (lambda: fitted(THREE, SHARES[:2], SPREAD), "3 bins have as many shares"),
        (lambda: fitted(THREE, (0.2, np.nan, 0.3), SPREAD), "must be finite"),
        (lambda: propose(THREE, SHARES, SPREAD, pilot=0, n=5, variance=4), "at least one report"),
        (
            lambda: propose(THREE, SHARES, SPREAD, pilot=5, n=5, variance=4, confidence=1),
            "confidence must lie",
        ),
    ],
)
def test_bad_input_is_refused(make: Callable[[], object], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        make()
