"""Speed of designing a channel, and of the mixture of subsets, beside their floors.

The floor of a design is looking once at every column, which no certificate does without. That
of a batch of reports is drawing as many random subsets with numpy's seeded generator: neither
secure nor exact, nor of the right distribution.
"""

from fractions import Fraction

import numpy as np
import pytest

from ldp import Coins
from ldp.core.policy import Policy
from ldp.planning import graded, mean_design
from ldp.planning.design import design
from ldp.planning.rays import Pool, Prices

CLASSES = np.repeat(range(4), 16).tolist()
POLICIES = {
    "levels": Policy.input_discriminative(CLASSES, [0.5, 1.0, 2.0, 4.0]),
    "all distances differ": Policy.of(
        CLASSES,
        [
            [1.0, 0.71, 0.913, 0.835],
            [0.62, 1.1, 0.77, 0.69],
            [0.83, 0.91, 1.3, 0.67],
            [0.75, 0.87, 0.97, 0.88],
        ],
    ),
}
REPORTS = 100_000

policies = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


@policies
@pytest.mark.benchmark(group="design for k = 64 in 4 classes")
def test_design_ours(benchmark, policy: Policy) -> None:
    result = benchmark.pedantic(design, args=[policy], rounds=3)
    assert result.certified
    assert result.gap < 1e-8


@policies
@pytest.mark.benchmark(group="design for k = 64 in 4 classes")
def test_design_floor_pricing_every_column_once(benchmark, policy: Policy) -> None:
    pool = Pool(policy, np.full(4, 0.25))
    prices = Prices(np.ones(4), np.eye(4), -np.ones(4))
    worth, _ = benchmark.pedantic(pool.price, args=[prices, 1], rounds=3)
    assert np.isfinite(worth)


@pytest.mark.benchmark(group="mixture of subsets, batch of 100k reports")
def test_subsets_batch_ours(benchmark) -> None:
    mechanism = design(POLICIES["levels"]).mechanism
    values = np.random.default_rng(1).integers(0, 64, REPORTS)
    codes = benchmark(mechanism.randomize_many, values, Coins())
    assert codes.shape == (REPORTS, 9)


@pytest.mark.benchmark(group="mixture of subsets, batch of 100k reports")
def test_subsets_batch_floor_insecure_numpy(benchmark) -> None:
    generator = np.random.default_rng(1)

    def floor() -> np.ndarray:
        keys = generator.random((REPORTS, 64), dtype=np.float32)
        chosen = keys < np.partition(keys, 24, axis=1)[:, 24:25]
        return np.packbits(chosen, axis=1)

    assert benchmark(floor).shape == (REPORTS, 8)


NUMBERS = {
    "plain, 16 points": Policy.uniform(16, 1.0),
    "a region, 21 points": Policy.one_sided(21, range(8, 21), 1.0),
    "on a line, 32 points": graded.on_a_line(
        31, [(Fraction(1), Fraction(1, 4))], Fraction(1, 4), 4.0
    ),
    "on a line, 64 points": graded.on_a_line(
        63, [(Fraction(1), Fraction(1, 63))], Fraction(1, 4), 4.0
    ),
}


@pytest.mark.parametrize("policy", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.benchmark(group="design of a table for numbers")
def test_design_of_a_table_for_numbers(benchmark, policy: Policy) -> None:
    table = benchmark.pedantic(mean_design.under, args=[policy], rounds=1, warmup_rounds=1)
    assert table.realised_epsilon >= 0.999 * policy.epsilon
