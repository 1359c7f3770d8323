"""One report at a time, as a device makes it: every mechanism, k = 1024 where it has a k."""

import random
from collections.abc import Callable, Mapping
from string import ascii_lowercase
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ldp import Coins, Mechanism, mechanisms
from ldp.core.longitudinal import Longitudinal
from ldp.core.policy import Policy
from ldp.planning import mean_design
from ldp.planning.design import design

K, EPSILON, LIFETIME = 1024, 1.0, 2.0

# The domains of `ordered`, `table` and `waves` end at 64 and 256, and that of `policy_table` where
# a design would be larger than a mixture of subsets; numbers have no k, strings any.
MAKE: Mapping[str, Callable[[], Mechanism]] = {
    "cms": lambda: mechanisms.CountMeanSketch(K, EPSILON),
    "dbitflip": lambda: mechanisms.DBitFlip(K, EPSILON, 16),
    "gaussian": lambda: mechanisms.GaussianMechanism.calibrated(EPSILON, 1e-6),
    "hadamard": lambda: mechanisms.HadamardResponse(K, EPSILON),
    "hashing": lambda: mechanisms.LocalHashing(K, EPSILON),
    "hcms": lambda: mechanisms.HadamardCountMeanSketch(K, EPSILON),
    "hrr": lambda: mechanisms.HRR(K, EPSILON),
    "hybrid": lambda: mechanisms.HybridMechanism(EPSILON),
    "krr": lambda: mechanisms.KRR(K, EPSILON),
    "krr_chain": lambda: mechanisms.KRRChain.calibrate(K, EPSILON, LIFETIME),
    "laplace": lambda: mechanisms.LaplaceMechanism(EPSILON),
    "loloha": lambda: mechanisms.LOLOHA.calibrate(K, EPSILON, LIFETIME),
    "mean_table": lambda: mean_design.plain(EPSILON),
    "onebit": lambda: mechanisms.OneBitMean(EPSILON),
    "ordered": lambda: mechanisms.OrderedExponential(64, EPSILON),
    "piecewise": lambda: mechanisms.PiecewiseMechanism(EPSILON),
    "policy_mean_table": lambda: mean_design.under(Policy.one_sided(21, range(8, 21), EPSILON)),
    "policy_subsets": lambda: design(Policy.one_sided(K, range(16), EPSILON)).mechanism,
    "policy_table": lambda: design(Policy.one_sided(16, range(4), EPSILON)).mechanism,
    "policy_unary": lambda: mechanisms.PolicyUnary.utility_optimised(K, range(16), EPSILON),
    "prefix_hashing": lambda: mechanisms.PrefixHashing.over(ascii_lowercase, 12, EPSILON),
    "projective": lambda: mechanisms.ProjectiveGeometry(K, EPSILON),
    "rappor": lambda: mechanisms.RAPPOR.calibrate(EPSILON, LIFETIME),
    "set_bits": lambda: mechanisms.SetBits(K, EPSILON),
    "set_selection": lambda: mechanisms.SetSelection(K, EPSILON, 5),
    "she": lambda: mechanisms.SummingHistogram(K, EPSILON),
    "square_wave": lambda: mechanisms.SquareWave(EPSILON),
    "subset": lambda: mechanisms.SubsetSelection(K, EPSILON),
    "table": lambda: mechanisms.ChannelTable.from_rows(
        EPSILON, mechanisms.KRR(256, EPSILON).channel().rows
    ),
    "the": lambda: mechanisms.thresholding_histogram(K, EPSILON),
    "unary": lambda: mechanisms.UnaryEncoding(K, EPSILON),
    "unary_chain": lambda: mechanisms.UnaryChain.l_osue(K, EPSILON, LIFETIME),
    "waves": lambda: mechanisms.Waves.over(256, EPSILON),
}
LONGITUDINAL = ("dbitflip", "krr_chain", "loloha", "rappor", "unary_chain")


def value_of(mechanism: Mechanism) -> Any:
    if mechanism.name == "rappor":
        return "a string"
    if isinstance(mechanism, mechanisms.PrefixHashing):
        return mechanism.spelling.number("something")
    if isinstance(mechanism, mechanisms.SetMechanism):
        return (3, 7, 500, 1000, 1023)
    return mechanism.k // 2 if hasattr(mechanism, "k") else 0.3


def test_no_mechanism_is_missing() -> None:
    assert set(MAKE) == set(mechanisms.IN_PLANS) | {"gaussian", "the"}


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.benchmark(group="one report")
def test_one_report(benchmark: BenchmarkFixture, name: str) -> None:
    mechanism = MAKE[name]()
    benchmark(mechanism.randomize, value_of(mechanism), Coins())


@pytest.mark.benchmark(group="one report")
def test_floor_insecure_krr(benchmark: BenchmarkFixture) -> None:
    generator = random.Random(1)
    benchmark(lambda: generator.randrange(K) if generator.random() < 0.5 else 777)


@pytest.mark.parametrize("name", LONGITUDINAL)
@pytest.mark.benchmark(group="one report of a memo")
def test_one_report_of_a_memo(benchmark: BenchmarkFixture, name: str) -> None:
    mechanism, coins = MAKE[name](), Coins()
    assert isinstance(mechanism, Longitudinal)
    memo = mechanism.memoize(mechanism.enroll(coins), value_of(mechanism), coins)
    benchmark(mechanism.report, memo, coins)
