"""The one-bit mean, and its equal from Microsoft."""

import math

import numpy as np
import pytest

from ldp import OneBitMean, Tally


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_on_numbers_from_0_to_m_it_is_microsofts_1bitmean(epsilon: float) -> None:
    m, e = 7.0, math.exp(epsilon)
    mechanism = OneBitMean(epsilon)
    down, up = mechanism.matrix()
    for x in (0.0, 1.5, 7.0):
        share = x / m  # of the time that the number is rounded to the upper end
        assert share * up[1] + (1 - share) * down[1] == pytest.approx(
            1 / (e + 1) + x / m * (e - 1) / (e + 1), rel=1e-14
        )
    zeros, ones = 400, 600
    theirs = (ones * m * (e + 1 - 1) / (e - 1) + zeros * m * -1 / (e - 1)) / (zeros + ones)
    ours = mechanism.estimate(Tally(1000, np.array([zeros, ones]))).rescaled((0.0, m))
    assert ours.value == pytest.approx([theirs], rel=1e-12)


@pytest.mark.parametrize(("epsilon", "worst"), [(1.0, 4.683), (2.0, 1.724), (4.0, 1.076)])
def test_its_largest_variance_is_the_published_one(epsilon: float, worst: float) -> None:
    mechanism = OneBitMean(epsilon)
    assert mechanism.variance(0.0, 1) == pytest.approx(worst, abs=6e-4)
    assert mechanism.report_variance(0.5) == pytest.approx(worst - 0.25, abs=6e-4)


@pytest.mark.parametrize("t", [-1.0, -0.3, 0.0, 0.8])
def test_its_variance_is_that_of_duchi_et_al(t: float) -> None:
    e = math.e
    published = ((e + 1) / (e - 1)) ** 2 - t * t  # of one report, Duchi et al. 2018
    assert float(OneBitMean(1.0).variance(t, 1)) == pytest.approx(published, rel=1e-9)
