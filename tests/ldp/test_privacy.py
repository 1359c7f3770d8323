"""Privacy of every mechanism, by exact enumeration in rationals."""

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from ldp import KRR, Channel, InvalidInput, Mechanism, OneBitMean, RandomizedResponse, UnaryEncoding
from ldp.exact import certainly_at_most, exp_bounds, log_upper
from ldp.testing import SeededCoins

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
SIZES = (2, 3, 4, 5, 8, 16)


def mechanisms() -> Iterator[Mechanism]:
    for epsilon in EPSILONS:
        yield RandomizedResponse(epsilon)
        yield OneBitMean(epsilon)
        for k in SIZES:
            yield KRR(k, epsilon)
            if k <= 8:  # 2**16 outputs of rationals take too long; the ratio is a product anyway
                yield UnaryEncoding(k, epsilon)
                yield UnaryEncoding.symmetric(k, epsilon)


@pytest.mark.parametrize("mechanism", list(mechanisms()), ids=repr)
def test_the_worst_log_ratio_is_epsilon_and_never_more(mechanism: Mechanism) -> None:
    channel = mechanism.channel()  # its rows sum to one exactly, or it could not be built
    assert channel.satisfies(mechanism.epsilon)
    assert 0.999 * mechanism.epsilon <= channel.epsilon <= mechanism.epsilon
    assert channel.epsilon == mechanism.realised_epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [KRR(5, 1.0), KRR(8, 4.0), UnaryEncoding(3, 1.0), UnaryEncoding.symmetric(5, 0.5)],
    ids=repr,
)
def test_the_sampler_draws_from_its_channel(mechanism: Mechanism, coins: SeededCoins) -> None:
    from scipy.stats import chisquare

    channel = mechanism.channel()
    n = 1_000_000
    for value, row in enumerate(channel.rows):
        codes = mechanism.randomize_many(np.full(n, value), coins)
        seen = np.bincount(codes.reshape(n), minlength=len(row))
        assert chisquare(seen, n * np.array(row, dtype=float)).pvalue > 1e-4


def test_one_report_at_a_time_draws_from_the_same_channel(coins: SeededCoins) -> None:
    from scipy.stats import chisquare

    n = 20_000
    for mechanism in (KRR(3, 1.0), UnaryEncoding(3, 1.0)):
        codes = [int(np.squeeze(mechanism.randomize(1, coins))) for _ in range(n)]
        expected = n * np.array(mechanism.channel().rows[1], dtype=float)
        assert chisquare(np.bincount(codes, minlength=expected.size), expected).pvalue > 1e-4


def test_a_channel_that_rules_an_input_out_has_no_epsilon() -> None:
    half = Fraction(1, 2)
    assert Channel((0, 1), ((half, half), (Fraction(0), Fraction(1)))).epsilon == float("inf")


def test_a_channel_whose_rows_are_no_distributions_is_refused() -> None:
    with pytest.raises(InvalidInput, match="row 1 is not a distribution: it sums to 3/4"):
        Channel((0, 1), ((Fraction(1, 2),) * 2, (Fraction(1, 2), Fraction(1, 4))))


@pytest.mark.parametrize("x", [Fraction(1, 10), Fraction(1), Fraction(8), Fraction(32)])
def test_exp_bounds_bracket_a_partial_sum_of_the_series(x: Fraction) -> None:
    term, total = Fraction(1), Fraction(0)
    for i in itertools.count(1):
        total += term
        term = term * x / i
        if term < Fraction(1, 10**70):
            break
    low, high = exp_bounds(x)
    assert low < total < high  # what the sum still lacks is far below the bracket's width
    assert (high - low) / low < Fraction(1, 10**56)


def test_log_upper_is_an_upper_bound_and_the_tightest_double() -> None:
    ratio = exp_bounds(Fraction(1))[0]
    assert log_upper(ratio) == 1.0
    assert certainly_at_most(ratio, 1.0)
    assert not certainly_at_most(exp_bounds(Fraction(1))[1], 1.0)


def test_integers_that_exceed_epsilon_are_refused() -> None:
    honest = KRR(4, 1.0)
    with pytest.raises(InvalidInput, match=r"krr: the integers give epsilon .*, more than the 1"):
        KRR.from_integers(1.0, {"k": [4], "resample": [honest.resample - 1]})
    with pytest.raises(InvalidInput, match="unary: the integers give epsilon"):
        UnaryEncoding.from_integers(0.99, UnaryEncoding(4, 1.0).integers)
    with pytest.raises(InvalidInput, match="onebit: the integers give epsilon"):
        OneBitMean.from_integers(0.99, OneBitMean(1.0).integers)
