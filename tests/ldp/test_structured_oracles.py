"""Estimates of the oracles with structured supports: subset selection, local hashing, Hadamard
and projective geometry response. The count-mean sketches have a test file of their own."""

import numpy as np
import pytest

from ldp import (
    HRR,
    HadamardResponse,
    LocalHashing,
    Mechanism,
    ProjectiveGeometry,
    SubsetSelection,
)
from ldp.testing import SeededCoins

EXACT = [
    SubsetSelection(8, 1.0),
    SubsetSelection(20, 2.5),  # indices, where that of k = 8 is a mask
    LocalHashing(8, 1.0, buckets=2, prime=11),
    LocalHashing(8, 1.0, prime=11),
    HRR(8, 1.0),
    HadamardResponse(8, 1.0),
    HadamardResponse(8, 2.0),
    ProjectiveGeometry(8, 0.5),
    ProjectiveGeometry(8, 1.5),
]


def columns(mechanism: Mechanism, codes: np.ndarray) -> np.ndarray:
    """Return the number of each code's column in the channel."""
    if isinstance(mechanism, SubsetSelection):
        if mechanism.code_dtype == np.uint8 and mechanism.code_shape == (-(-mechanism.k // 8),):
            bits = np.unpackbits(codes, axis=1, count=mechanism.k, bitorder="little")
            masks = bits @ (1 << np.arange(mechanism.k))
        else:
            masks = (1 << codes.astype(np.int64)).sum(axis=1)
        number = np.zeros(1 << mechanism.k, dtype=np.int64)
        for i, members in enumerate(mechanism.channel().outputs):
            number[sum(1 << v for v in members)] = i
        return number[masks]
    return codes.astype(np.int64)


def simulated(mechanism: Mechanism, truth: np.ndarray, trials: int, n: int) -> np.ndarray:
    """Return the estimates of independent populations of n reports, shape (trials, k).

    An estimate is the mean of the estimates from each report alone, so each code's is computed
    once and weighted by how often the code came up.
    """
    values = np.random.default_rng(7).choice(truth.size, trials * n, p=truth)
    codes = mechanism.randomize_many(values, SeededCoins(7))
    names, first, column = np.unique(
        columns(mechanism, codes), return_index=True, return_inverse=True
    )
    alone = [mechanism.debias(mechanism.tally(codes[i : i + 1])) for i in first]
    cell = np.repeat(np.arange(trials), n) * names.size + column.ravel()
    counts = np.bincount(cell, minlength=trials * names.size).reshape(trials, -1)
    return counts @ np.array(alone) / n


def test_an_estimate_is_the_mean_of_those_of_its_reports(coins: SeededCoins) -> None:
    for mechanism in EXACT:  # what `simulated` rests on
        codes = mechanism.randomize_many(np.arange(40) % mechanism.parameters, coins)
        alone = [mechanism.debias(mechanism.tally(codes[i : i + 1])) for i in range(40)]
        assert mechanism.debias(mechanism.tally(codes)) == pytest.approx(np.mean(alone, axis=0))


def padded(truth: list[float], k: int) -> np.ndarray:
    return np.array(truth + [0.0] * (k - len(truth)))


@pytest.mark.slow
@pytest.mark.parametrize("truth", [[0, 0.1, 0, 0.4, 0.5], [0, 1.0]], ids=["mixed", "certain"])
@pytest.mark.parametrize("mechanism", EXACT, ids=repr)
def test_estimates_are_unbiased_and_as_exact_as_predicted(
    mechanism: Mechanism, truth: list[float]
) -> None:
    trials, n = 15_000, 80
    frequencies = padded(truth, mechanism.parameters)
    error = simulated(mechanism, frequencies, trials, n) - frequencies
    assert np.all(abs(error.mean(axis=0)) <= 4 * error.std(axis=0) / trials**0.5)
    ratio = (error**2).mean(axis=0) / mechanism.variance(frequencies, n)
    for frequency in set(truth):
        assert ratio[frequencies == frequency].mean() == pytest.approx(1, abs=0.05), frequency


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [m for m in EXACT if m.parameters == 8], ids=repr)
def test_intervals_cover_at_their_level(mechanism: Mechanism) -> None:
    # n is large because at a true zero an interval from an estimate above it is the wider:
    # coverage exceeds its level by about 1 / sqrt(q n).
    trials, n = 1000, 4000
    truth = padded([0, 0.1, 0, 0.4, 0.5], mechanism.parameters)
    estimates = simulated(mechanism, truth, trials, n)
    variances = [mechanism.variance(f, n) for f in np.clip(estimates, 0, 1)]
    covered = abs(estimates - truth) <= 1.959964 * np.sqrt(variances)
    assert covered.mean() == pytest.approx(0.95, abs=0.01)
    assert covered[:, truth == 0].mean() == pytest.approx(0.95, abs=0.01)
