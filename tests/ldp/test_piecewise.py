"""The numbers of the piecewise mechanism."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from ldp import OneBitMean, PiecewiseMechanism
from ldp.mechanisms.numbers.piecewise import variance_terms

NUMBERS = np.linspace(-1, 1, 101)


def continuous(epsilon: float, numbers: np.ndarray | float) -> np.ndarray:
    """The variance of the mechanism on the continuum (Wang et al. 2019)."""
    s = math.exp(epsilon / 2)
    return np.asarray(numbers) ** 2 / (s - 1) + (s + 3) / (3 * (s - 1) ** 2)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_the_default_grid_has_the_continuous_variance_of_every_number(epsilon: float) -> None:
    ours = PiecewiseMechanism(epsilon).report_variance(NUMBERS)
    assert ours == pytest.approx(continuous(epsilon, NUMBERS), rel=0.01)


def test_at_epsilon_8_a_window_of_few_codes_does_slightly_better() -> None:
    ratio = PiecewiseMechanism(8.0).report_variance(NUMBERS) / continuous(8.0, NUMBERS)
    assert 0.98 < ratio.min() <= ratio.max() < 1


@pytest.mark.parametrize(("epsilon", "worst"), [(1.0, 5.224), (2.0, 1.228), (4.0, 0.241)])
def test_its_largest_variance_is_the_published_one(epsilon: float, worst: float) -> None:
    assert PiecewiseMechanism(epsilon).report_variance(NUMBERS).max() == pytest.approx(
        worst, rel=0.01
    )


def test_it_overtakes_one_bit_at_the_published_epsilon() -> None:
    def gap(epsilon: float) -> float:
        piecewise = PiecewiseMechanism(epsilon, 1024).report_variance(1.0)
        return float(piecewise - OneBitMean(epsilon).variance(0.0, 1)[()])

    assert brentq(gap, 1.0, 1.6, xtol=1e-6) == pytest.approx(1.28978, rel=0.001)


@pytest.mark.parametrize(("epsilon", "saved"), [(1.0, 0.030), (2.0, 0.110), (4.0, 0.329)])
def test_the_optimal_window_saves_what_its_docstring_says(epsilon: float, saved: float) -> None:
    published, best = PiecewiseMechanism(epsilon), PiecewiseMechanism.optimal(epsilon)
    ratio = best.report_variance(NUMBERS).max() / published.report_variance(NUMBERS).max()
    assert ratio == pytest.approx(1 - saved, abs=0.003)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_no_other_window_has_a_smaller_largest_variance(epsilon: float) -> None:
    best = PiecewiseMechanism.optimal(epsilon, 200)
    for window in range(best.window * 3 // 4, best.window * 5 // 4 + 2):
        other = PiecewiseMechanism(epsilon, 200, window)
        assert best.report_variance(1.0) <= other.report_variance(1.0) * 1.001


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_variance_in_closed_form_is_that_of_the_channel(epsilon: float) -> None:
    middle, slope = variance_terms(epsilon, np.array([0.25]))
    mechanism = PiecewiseMechanism(epsilon, 1024, 256)
    assert mechanism.report_variance([0.0, 1.0]) == pytest.approx(
        np.concatenate([middle, middle + slope]), rel=0.001
    )


def test_coarse_grids_stay_unbiased_and_pay_only_for_rounding() -> None:
    coarse, fine = PiecewiseMechanism(4.0, 100), PiecewiseMechanism(4.0)
    excess = coarse.report_variance(NUMBERS) - fine.report_variance(NUMBERS)
    assert abs(excess).max() < 0.006  # the published window is 13.5 steps here, so 14
    assert coarse.code_bytes == 1
    assert fine.code_bytes == 2
