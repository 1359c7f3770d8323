"""Estimates of categories by simulation: unbiased, with the variance that is predicted."""

import numpy as np
import pytest
from every_mechanism import SAMPLED
from populations import tallies

from ldp import KRR, DBitFlip, KRRChain, LocalHashing, SummingHistogram, UnaryChain
from ldp.core.mechanism import Categorical
from ldp.testing import SeededCoins

# What collisions leave in the sketches is tested over seeds, in test_count_mean_sketch.py.
MECHANISMS = {
    name: mechanism
    for name, mechanism in SAMPLED.items()
    if isinstance(mechanism, Categorical) and name not in ("cms", "hcms")
} | {
    "krr of 100": KRR(100, 2.0),
    "hashing of 32": LocalHashing.optimised(32, 1.0),
    "she on its own grid": SummingHistogram(3, 1.0),
    "l_sue": UnaryChain.l_sue(4, 1.0, 2.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("f", [0.0, 0.3, 1.0])  # a variance is of the second degree in f
@pytest.mark.parametrize("name", MECHANISMS)
def test_estimates_are_unbiased_with_the_predicted_variance(name: str, f: float) -> None:
    mechanism, n, runs = MECHANISMS[name], 100, 6000
    truth = np.full(mechanism.k, (1 - f) / (mechanism.k - 1))
    truth[0] = f
    seed = round(100 * f) + 1000 * mechanism.k
    values = np.random.default_rng(seed).choice(mechanism.k, size=(runs, n), p=truth)
    drawn = tallies(mechanism, values, SeededCoins(seed))
    error = np.array([mechanism.debias(tally) for tally in drawn]) - truth
    variance = np.broadcast_to(mechanism.variance(truth, n), truth.shape)
    sure = variance < 1e-12  # of what no report of a policy can hide
    assert np.abs(error[:, sure]).max(initial=0) < 1e-5
    assert (np.abs(error.mean(axis=0)) <= 4 * np.sqrt(variance / runs) + 1e-5).all()
    assert (error**2).sum(axis=1).mean() == pytest.approx(variance.sum(), rel=0.05)


# Those of pure oracles are computed exactly in test_estimation.py, of tables and of Hadamard
# response simulated in the files of their names.
@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [KRRChain.calibrate(4, 1.0, 2.0), UnaryChain.l_osue(4, 1.0, 2.0), DBitFlip(4, 1.0, 2)],
    ids=lambda mechanism: mechanism.name,
)
def test_intervals_of_lasting_mechanisms_cover_at_their_level(
    mechanism: Categorical, coins: SeededCoins
) -> None:
    truth = np.array([0.0, 0.1, 0.5, 0.4])
    values = np.random.default_rng(3).choice(4, size=(4000, 2000), p=truth)
    found = [mechanism.estimate(tally) for tally in tallies(mechanism, values, coins)]
    covered = [abs(each.value - truth) <= 1.959964 * each.standard_error for each in found]
    np.testing.assert_allclose(np.mean(covered, axis=0), 0.95, atol=0.01)
