"""The numbers of the discrete Laplace mechanism."""

import math

import numpy as np
import pytest

from ldp import InvalidInput, LaplaceMechanism
from ldp.core.exact import ONE

EPSILONS = [0.1, 0.5, 1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_scores_are_unbiased_up_to_the_rounding_of_the_tails(epsilon: float) -> None:
    mechanism = LaplaceMechanism(epsilon, 8)
    for point, row in enumerate(mechanism.channel().rows):
        expected = sum(p * score for p, score in zip(row, mechanism.scores, strict=True))
        assert abs(expected - (point / 4 - 1)) < 2.0**-40


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("number", [-1.0, 0.0, 0.5])
def test_clamping_saves_just_the_variance_of_what_lies_beyond_the_ends(
    epsilon: float, number: float
) -> None:
    mechanism = LaplaceMechanism(epsilon)
    r, step = math.exp(-epsilon / mechanism.grid), 2 / mechanism.grid
    row = mechanism.matrix()[round((number + 1) / step)]
    beyond = (row[0] + row[-1]) * step**2 * r / (1 - r) ** 2
    unclamped = mechanism.report_variance(number) + beyond
    assert unclamped == pytest.approx(2 * step**2 * r / (1 - r) ** 2, rel=1e-9)
    assert unclamped == pytest.approx(8 / epsilon**2, rel=0.01)


def test_its_largest_variance_is_below_that_of_unclamped_noise() -> None:
    worst = [LaplaceMechanism(e).report_variance(np.linspace(-1, 1, 65)).max() for e in (1, 2, 4)]
    assert worst == pytest.approx([5.555, 1.626, 0.465], abs=1e-3)  # 8, 2 and 0.5 without


def test_tails_of_the_wrong_number_or_sum_are_refused() -> None:
    tails = LaplaceMechanism(1.0, 4).tails
    with pytest.raises(InvalidInput, match="a grid of 4 takes 5 tails, got 4"):
        LaplaceMechanism(1.0, 4, tails[:4])
    with pytest.raises(InvalidInput, match="weights must be positive and sum to 2"):
        LaplaceMechanism(1.0, 4, (tails[0] - 1, *tails[1:]))
    with pytest.raises(InvalidInput, match="weights must be positive and sum to 2"):
        LaplaceMechanism(1.0, 4, (ONE - 5, 5, 6, 5, 5))
    with pytest.raises(InvalidInput, match="the integers give epsilon"):  # one inner gap too small
        LaplaceMechanism(1.0, 4, (*tails[:3], tails[2] - 1, tails[4]))


def test_tails_that_a_server_made_thinner_are_seen_in_epsilon() -> None:
    *first, last = LaplaceMechanism(1.0, 4).tails
    mechanism = LaplaceMechanism(8.0, 4, (*first, last // 8))
    assert mechanism.realised_epsilon == mechanism.channel().epsilon > 2
