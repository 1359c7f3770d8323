"""Recycled reports: the composed channel, enumerated, is that of the stricter level."""

from fractions import Fraction

import numpy as np
import pytest
from longitudinal_checks import bit_rows, composed

from ldp import KRR, Channel, InvalidInput, UnaryEncoding
from ldp.core.exact import ONE
from ldp.estimating.recycling import recycle
from ldp.mechanisms.frequency.unary import bits_channel
from ldp.testing import SeededCoins

PAIRS = [(0.5, 0.1), (1.0, 0.5), (2.0, 1.0), (4.0, 2.0), (8.0, 4.0), (8.0, 0.1)]
MAKERS = [KRR, UnaryEncoding, UnaryEncoding.symmetric]


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize(("high", "low"), PAIRS)
@pytest.mark.parametrize("make", MAKERS)
def test_the_two_rounds_enumerated_keep_the_stricter_epsilon(
    make: type[KRR], high: float, low: float, k: int
) -> None:
    mechanism = make(k, high)
    chain = recycle(mechanism, low)
    if isinstance(mechanism, KRR):
        second = [list(row) for row in chain.instantaneous_round.channel().rows]
    else:
        second = bit_rows(range(1 << k), k, *chain.instantaneous)
    first = mechanism.channel()
    whole = Channel(first.outputs, tuple(map(tuple, composed(first.rows, second))))
    assert whole.rows == chain.channel().rows
    assert whole.satisfies(low)
    assert whole.epsilon >= 0.999999 * low


@pytest.mark.parametrize(("high", "low"), PAIRS)
@pytest.mark.parametrize("make", MAKERS)
def test_the_result_is_the_stricter_mechanism(make: type[KRR], high: float, low: float) -> None:
    chain = recycle(make(16, high), low)
    for ours, wanted in zip(chain.support, make(16, low).support, strict=True):
        assert abs(ours - wanted) < Fraction(1, 2**60)


def test_the_published_probabilities_of_k_rr_from_two_to_one() -> None:
    keep, other = recycle(KRR(8, 2.0), 1.0).instantaneous_round.support
    assert float(keep) == pytest.approx(0.473424, abs=5e-7)
    assert float(other) == pytest.approx(0.075225, abs=5e-7)


def test_oue_is_recycled_by_hyperbolic_tangents() -> None:
    chain = recycle(UnaryEncoding(4, 3.0), 1.0)
    half = np.tanh(0.5) / np.tanh(1.5) / 2
    assert np.array(chain.instantaneous) / ONE == pytest.approx([0.5 + half, 0.5 - half])


@pytest.mark.parametrize("make", MAKERS)
def test_recycled_reports_estimate_as_the_stricter_level_does(
    make: type[KRR], coins: SeededCoins
) -> None:
    values = np.repeat(np.arange(4), [50_000, 30_000, 20_000, 0])
    mechanism = make(4, 4.0)
    chain = recycle(mechanism, 2.0)
    estimate = chain.estimate(
        chain.tally(chain.report_many(mechanism.randomize_many(values, coins), coins))
    )
    truth = np.array([0.5, 0.3, 0.2, 0.0])
    assert np.abs((estimate.value - truth) / estimate.standard_error).max() < 4
    assert estimate.standard_error == pytest.approx(
        np.sqrt(make(4, 2.0).variance(truth, values.size)), rel=0.02
    )


def test_recycling_to_a_looser_level_is_refused() -> None:
    with pytest.raises(InvalidInput, match="recycled to a smaller one, got 2"):
        recycle(KRR(4, 1.0), 2.0)


def test_an_encoding_that_cannot_become_the_stricter_one_is_refused() -> None:
    # Almost no bit of this encoding is 1: none of its epsilon is left for one with p = 1/2.
    sparse = UnaryEncoding(4, 1.0, ONE // 100, ONE // 200)
    assert bits_channel(4, *sparse.support).satisfies(1.0)
    with pytest.raises(InvalidInput, match=r"cannot be turned into an encoding of epsilon 0\.69"):
        recycle(sparse, 0.69)
