"""The (epsilon, delta) guarantee of the discrete Gaussian, enumerated."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from ldp import GaussianMechanism, InvalidInput, build
from ldp.core.exact import ONE, exp_bounds
from ldp.mechanisms.numbers.gaussian import gaussian_width

GRID = [(e, d) for e in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0) for d in (1e-3, 1e-6)]


def hockey_stick(mechanism: GaussianMechanism, x: int, other: int) -> Fraction:
    rows = mechanism.channel().rows
    grown = exp_bounds(Fraction(mechanism.epsilon))[1]
    pairs = zip(rows[x], rows[other], strict=True)
    return sum((max(Fraction(0), a - grown * b) for a, b in pairs), Fraction(0))


@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 1e-2), (4.0, 1e-3), (8.0, 1e-6)])
def test_no_pair_of_inputs_exceeds_delta_by_exact_enumeration(epsilon: float, delta: float) -> None:
    mechanism = GaussianMechanism(epsilon, int(delta * ONE), 4)
    worst = max(
        hockey_stick(mechanism, x, other) for x in range(5) for other in range(5) if x != other
    )
    assert worst <= Fraction(mechanism.delta, ONE) <= Fraction(delta)
    assert float(worst) == pytest.approx(mechanism.realised_delta, rel=1e-12)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_the_realised_delta_is_nearly_all_that_was_allowed(epsilon: float, delta: float) -> None:
    mechanism = GaussianMechanism.calibrated(epsilon, delta)
    # The width grows by 2**-10 at a time, which moves a delta of 1e-6 by about 3%.
    assert 0.95 * delta < mechanism.realised_delta <= delta


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_the_width_solves_the_analytic_condition_and_gives_the_variance(
    epsilon: float, delta: float
) -> None:
    s = gaussian_width(epsilon, delta)
    condition = norm.cdf(0.5 / s - epsilon * s) - math.exp(epsilon) * norm.cdf(
        -0.5 / s - epsilon * s
    )
    assert condition == pytest.approx(delta, rel=1e-6)
    mechanism = GaussianMechanism.calibrated(epsilon, delta)
    assert mechanism.report_variance(0.0) == pytest.approx((2 * s) ** 2, rel=0.01)


def test_it_is_narrower_than_the_classical_calibration() -> None:
    assert gaussian_width(0.5, 1e-6) < math.sqrt(2 * math.log(1.25e6)) / 0.5


def test_it_claims_no_pure_epsilon_and_no_plan_can_name_it() -> None:
    mechanism = GaussianMechanism.calibrated(1.0, 1e-6)
    assert mechanism.realised_epsilon == math.inf
    with pytest.raises(InvalidInput, match="unknown mechanism 'gaussian'"):
        build("gaussian", 1.0, mechanism.integers)


def test_noise_that_exceeds_the_guarantee_is_refused() -> None:
    honest = GaussianMechanism.calibrated(1.0, 1e-6)
    with pytest.raises(InvalidInput, match=r"at epsilon 0.9 the integers give delta .*, more than"):
        GaussianMechanism.from_integers(0.9, honest.integers)
    with pytest.raises(InvalidInput, match=r"noise must be below 2\*\*64"):
        GaussianMechanism(1.0, honest.delta, 4, (ONE,))


def test_integers_rebuild_it() -> None:
    mechanism = GaussianMechanism.calibrated(1.0, 1e-6)
    assert GaussianMechanism.from_integers(1.0, mechanism.integers) == mechanism


@pytest.mark.parametrize("delta", [0.0, -1e-6, 1.0, math.nan])
def test_a_delta_that_is_no_probability_is_refused(delta: float) -> None:
    with pytest.raises(InvalidInput, match="delta must lie strictly between 0 and 1"):
        GaussianMechanism.calibrated(1.0, delta)


def test_an_epsilon_too_small_for_two_byte_codes_is_refused() -> None:
    with pytest.raises(InvalidInput, match="there may be 65536 different codes"):
        GaussianMechanism.calibrated(1e-4, 1e-6)


def test_the_noise_is_symmetric_and_falls() -> None:
    noise = GaussianMechanism.calibrated(1.0, 1e-6).noise
    assert 2 * sum(noise) - noise[0] == ONE
    assert (np.diff(np.array(noise, dtype=float)) <= 0).all()
