"""Quantiles, ends and clipping of intervals: against scipy.stats, and nowhere else in the code."""

import math
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from ldp import KRR, Cohorts, InvalidInput, OneBitMean, estimate
from ldp.core import intervals
from ldp.core.intervals import critical_value, fieller, holding, interval, quantile, reach, wilson
from ldp.testing import SeededCoins

ROOT = Path(__file__).resolve().parents[2]

COMPUTE_QUANTILES = {
    "ldp/core/intervals.py": "the one place",
    "ldp/mechanisms/vectors/codewords.py": "a codebook of normal quantiles that devices share",
    "dpsgd/noise/keyed.py": "noise by inversion of 127 random bits, at 1.6 ns a value",
}
"""Files that compute a quantile of the normal distribution, and why."""

QUANTILE = re.compile(
    r"\b(NormalDist|inv_cdf|ndtri|ndtri_exp|stdtrit|erfinv|erfcinv|norm\.ppf|norm\.isf|0\.180625)\b"
)
"""Names of such functions, and a constant of Wichura's approximation (AS 241)."""


def test_only_one_module_computes_a_normal_quantile() -> None:
    packages = [ROOT / part for part in ("ldp", "dpsgd", "client/python", "server")]
    files = [file for package in packages for file in package.rglob("*.py")]
    found = [file for file in files if QUANTILE.search(file.read_text(encoding="utf-8"))]
    assert {file.relative_to(ROOT).as_posix() for file in found} == set(COMPUTE_QUANTILES)


@pytest.mark.parametrize("confidence", [1e-9, 0.5, 0.9, 0.95, 0.99, 1 - 1e-9])
@pytest.mark.parametrize("together", [1, 2, 50, 1 << 20])
def test_a_critical_value_is_that_of_bonferroni(confidence: float, together: int) -> None:
    expected = stats.norm.isf((1 - confidence) / together / 2)
    assert critical_value(confidence, together) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("degrees", [3, 9, 31])
def test_with_degrees_of_freedom_a_critical_value_is_students(degrees: int) -> None:
    expected = stats.t.isf(0.05 / 4 / 2, degrees)
    assert critical_value(0.95, 4, degrees) == pytest.approx(expected, rel=1e-12)
    assert critical_value(0.95, 4, degrees) > critical_value(0.95, 4, math.inf)


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 95, math.nan])
def test_a_confidence_outside_of_0_to_1_is_refused(confidence: float) -> None:
    with pytest.raises(InvalidInput, match="confidence must lie strictly between 0 and 1, got"):
        critical_value(confidence)


def test_a_statistic_has_its_p_value() -> None:
    p = np.array([1.0, 0.5, 0.05, 1e-20])
    assert intervals.statistic(p) == pytest.approx(stats.norm.isf(p / 2), rel=1e-12)
    assert np.isfinite(intervals.statistic(0.0))
    assert quantile(0.3) == pytest.approx(stats.norm.ppf(0.3), rel=1e-12)


def test_an_interval_without_ends_is_walds_of_the_nearest_possible_estimate() -> None:
    value, error = np.array([-0.3, 0.02, 0.5, 1.2]), np.array([0.01, 0.1, 0.1, 0.01])
    low, high = interval(value, error, (0, 1), 0.9)
    z = stats.norm.ppf(0.95)
    assert low == pytest.approx([0, 0, 0.5 - z / 10, 1 - z / 100])
    assert high == pytest.approx([z / 100, 0.02 + z / 10, 0.5 + z / 10, 1])


def test_an_interval_with_ends_is_theirs_within_the_bounds() -> None:
    def ends(z: float) -> intervals.Interval:
        return np.array([-z, 0.1]), np.array([0.2, z])

    low, high = interval(np.zeros(2), np.ones(2), (-1, 1), 0.95, together=2, ends=ends)
    assert (low.tolist(), high.tolist()) == ([-1, 0.1], [0.2, 1])


def test_ends_that_do_not_hold_the_estimate_move_outwards() -> None:
    low, high = holding(np.array([0.1, 0.5, 0.9]), np.full(3, 0.4), np.full(3, 0.6))
    assert (low.tolist(), high.tolist()) == ([0.1, 0.4, 0.4], [0.6, 0.6, 0.9])


@pytest.mark.parametrize("share", [0.0, 0.01, 0.4, 1.0])
def test_wilsons_interval_without_noise_is_that_of_scipy(share: float) -> None:
    expected = stats.binomtest(round(share * 200), 200).proportion_ci(0.95, "wilson")
    assert wilson(share, 0.0, 200, critical_value(0.95)) == pytest.approx(expected, abs=1e-12)


def test_the_ends_of_fieller_are_the_means_just_rejected() -> None:
    d, f, v_d, v_f, c = (np.array([x]) for x in (0.1, 0.4, 0.001, 0.002, 0.0005))
    for end in fieller(d, f, v_d, v_f, c, 1.96):
        assert (d - end * f) ** 2 == pytest.approx(1.96**2 * (v_d - 2 * end * c + end**2 * v_f))


def test_the_reach_of_a_bias_covers_as_often() -> None:
    bias, error, z = 0.3, 0.2, critical_value(0.95)
    far = float(reach(bias, error, z))
    covered = stats.norm.cdf(far, bias, error) - stats.norm.cdf(-far, bias, error)
    assert covered == pytest.approx(0.95, abs=1e-8)


def test_pooled_estimates_have_the_ends_of_their_kind() -> None:
    coins, forms = SeededCoins(44), []
    for mechanism in (KRR(3, 1.0), OneBitMean(1.0)):
        codes = mechanism.randomize_many(np.zeros(50, dtype=int), coins)
        ends = estimate(Cohorts([(mechanism, mechanism.tally(codes))])).ends
        assert isinstance(ends, partial)
        forms.append(ends.func.__name__)
    assert forms == ["_invert_score_test", "_with_people_at_both_ends"]
