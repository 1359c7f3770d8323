"""Joint tables and regressions of many records; the floor is the same without any privacy."""

import numpy as np
import pytest
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture

from ldp import KRR, PiecewiseMechanism, SubsetSelection
from ldp.core.mechanism import Categorical, Codes
from ldp.estimating.independence import independence
from ldp.estimating.joint import differences_between, joint, within
from ldp.estimating.logistic import logistic
from ldp.estimating.pairs import count_pairs
from ldp.estimating.regression import Indicator, Number, Records, linear
from ldp.testing import SeededCoins

N, K = 1_000_000, 16

Values = tuple[NDArray[np.int64], NDArray[np.int64]]


def people() -> Values:
    rng = np.random.default_rng(1)
    first = rng.integers(0, K, N)
    return first, (first + rng.integers(0, 3, N)) % K


def plain(values: Values) -> NDArray[np.float64]:
    """The table of the true answers, with its errors, as numpy counts it."""
    table = np.bincount(values[0] * K + values[1], minlength=K * K).reshape(K, K) / N
    return np.stack([table, np.sqrt(table * (1 - table) / N)])


def table(mechanism: Categorical, codes: list[Codes]) -> None:
    """The joint table with its covariance, the test of independence, and all groups compared."""
    tally = count_pairs(mechanism, codes[0], mechanism, codes[1])
    cohorts = [(mechanism, mechanism, tally)]
    independence(cohorts)
    differences_between(within(joint(cohorts)))


@pytest.mark.benchmark(group=f"joint table of {K} x {K} from {N:,} records")
@pytest.mark.parametrize("make", [KRR, SubsetSelection], ids=["k-rr", "subset"])
def test_joint_table(benchmark: BenchmarkFixture, make: type[Categorical]) -> None:
    mechanism, coins = make(K, 1.0), SeededCoins(2)  # type: ignore[call-arg]
    codes = [mechanism.randomize_many(values, coins) for values in people()]
    benchmark(table, mechanism, codes)


@pytest.mark.benchmark(group=f"joint table of {K} x {K} from {N:,} records")
def test_joint_table_floor(benchmark: BenchmarkFixture) -> None:
    benchmark(plain, people())


def records() -> Records:
    rng, coins = np.random.default_rng(3), SeededCoins(4)
    x, group = rng.uniform(-1, 1, N), rng.integers(0, 4, N)
    y = 0.4 * x - 0.2 * (group == 1) + rng.uniform(-0.3, 0.3, N)
    numbers, groups = PiecewiseMechanism(2.0), KRR(4, 2.0)
    codes = [numbers.randomize_many(v, coins) for v in (y, x)]
    return Records([numbers, numbers, groups], [*codes, groups.randomize_many(group, coins)])


@pytest.mark.benchmark(group=f"linear regression on 5 columns from {N:,} records")
def test_linear(benchmark: BenchmarkFixture) -> None:
    given = [records()]
    columns = [(), (Number(1),), *((Indicator(2, value),) for value in (1, 2, 3))]
    benchmark.pedantic(linear, (given, Number(0), columns), rounds=2)


@pytest.mark.benchmark(group=f"linear regression on 5 columns from {N:,} records")
def test_linear_floor(benchmark: BenchmarkFixture) -> None:
    rng = np.random.default_rng(3)
    x, group = rng.uniform(-1, 1, N), rng.integers(0, 4, N)
    design = np.stack([np.ones(N), x, *(group == value for value in (1, 2, 3))], axis=1)
    y = 0.4 * x - 0.2 * (group == 1) + rng.uniform(-0.3, 0.3, N)

    def plain() -> None:
        inverse = np.linalg.inv(design.T @ design)
        residual = (y - design @ (inverse @ (design.T @ y)))[:, None] * design
        inverse @ (residual.T @ residual) @ inverse

    benchmark.pedantic(plain, rounds=2)


@pytest.mark.benchmark(group=f"logistic regression on 4 x 4 cells from {N:,} records")
def test_logistic(benchmark: BenchmarkFixture) -> None:
    rng, coins = np.random.default_rng(5), SeededCoins(6)
    one, two = KRR(2, 2.0), KRR(4, 2.0)
    values = [rng.integers(0, 2, N), rng.integers(0, 4, N), rng.integers(0, 4, N)]
    codes = [m.randomize_many(v, coins) for m, v in zip((one, two, two), values, strict=True)]
    given = [Records([one, two, two], codes)]
    columns = [(), *((Indicator(place, v),) for place in (1, 2) for v in (1, 2, 3))]
    benchmark.pedantic(logistic, (given, Indicator(0, 1), columns), rounds=2)
