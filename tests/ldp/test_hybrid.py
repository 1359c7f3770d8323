"""The numbers of the hybrid mechanism."""

import math

import numpy as np
import pytest

from ldp import HybridMechanism, InvalidInput, OneBitMean, PiecewiseMechanism
from ldp.core.exact import ONE
from ldp.mechanisms.numbers.hybrid import THRESHOLD
from ldp.testing import SeededCoins

NUMBERS = np.linspace(-1, 1, 101)


def test_the_threshold_is_the_root_in_closed_form() -> None:
    roots = [(6353 + sign * 405 * math.sqrt(241)) ** (1 / 3) for sign in (-1, 1)]
    assert math.log((-5 + 2 * sum(roots)) / 27) == pytest.approx(THRESHOLD, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.7, 1.0, 2.0, 4.0])
def test_the_variance_is_the_same_for_every_number(epsilon: float) -> None:
    e, s = math.exp(epsilon), math.exp(epsilon / 2)
    expected = (s + 3) / (3 * s * (s - 1)) + (e + 1) ** 2 / (s * (e - 1) ** 2)
    assert HybridMechanism(epsilon).report_variance(NUMBERS) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("epsilon", "worst"), [(1.0, 4.289), (2.0, 1.042), (4.0, 0.219)])
def test_its_largest_variance_is_the_published_one(epsilon: float, worst: float) -> None:
    assert HybridMechanism(epsilon).report_variance(NUMBERS).max() == pytest.approx(worst, rel=0.01)


@pytest.mark.parametrize("epsilon", [0.61, 0.62, 1.0, 2.0, 8.0])
def test_its_largest_variance_is_the_least_of_the_three(epsilon: float) -> None:
    hybrid, piecewise, bit = (
        family(epsilon).report_variance(NUMBERS).max()
        for family in (HybridMechanism, PiecewiseMechanism, OneBitMean)
    )
    assert hybrid <= min(piecewise, bit) * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "saved"), [(1.0, 0.005), (2.0, 0.058), (4.0, 0.289)])
def test_the_optimal_mixture_saves_what_its_docstring_says(epsilon: float, saved: float) -> None:
    published, best = HybridMechanism(epsilon), HybridMechanism.optimal(epsilon)
    theirs, ours = published.report_variance(NUMBERS), best.report_variance(NUMBERS)
    assert ours.max() / theirs.max() == pytest.approx(1 - saved, abs=0.003)
    assert ours.max() < 1.002 * ours.min()
    assert ours.max() < PiecewiseMechanism.optimal(epsilon).report_variance(NUMBERS).max()


def test_the_optimal_mixture_is_one_bit_too_where_that_is_better() -> None:
    for epsilon in (0.1, 0.5, 0.6):
        assert HybridMechanism.optimal(epsilon) == OneBitMean(epsilon)
    assert isinstance(HybridMechanism.optimal(0.65), HybridMechanism)


def test_up_to_the_threshold_one_bit_alone_is_asked_for_instead() -> None:
    with pytest.raises(InvalidInput, match=r"one bit alone is better: use OneBitMean, got 0\.609"):
        HybridMechanism(0.609)
    assert HybridMechanism(0.61).codes > 1000


def test_a_share_that_no_plan_can_carry_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"onebit must lie strictly between 0 and 2\*\*64"):
        HybridMechanism(1.0, onebit=ONE)


def test_either_answer_comes_with_its_share_whatever_the_number(coins: SeededCoins) -> None:
    mechanism, n = HybridMechanism(2.0), 200_000
    for number in (-1.0, 0.2, 1.0):
        bits = (mechanism.randomize_many(np.full(n, number), coins) < 2).mean()
        assert abs(bits - math.exp(-1)) < 4 * np.sqrt(0.25 / n)


@pytest.mark.parametrize(
    ("family", "switches"),
    [(HybridMechanism, (3.05, 5.28, 7.47)), (PiecewiseMechanism, (3.42, 5.93, 8.38))],
)
def test_splitting_epsilon_over_one_more_number_pays_from_the_published_epsilons(
    family: type[HybridMechanism] | type[PiecewiseMechanism], switches: tuple[float, ...]
) -> None:
    # Of d numbers count are sampled, with epsilon / count each and the scores scaled by
    # d / count: the variance of the worst is (d / count) (V + 1) - 1.
    def worst(epsilon: float, count: int) -> float:
        return float(family(epsilon / count).report_variance(1.0) + 1) / count

    for count, switch in enumerate(switches, start=1):
        assert worst(switch - 0.03, count) < worst(switch - 0.03, count + 1)
        assert worst(switch + 0.03, count) > worst(switch + 0.03, count + 1)
