"""Single mechanisms and composition of plain guarantees."""

import math

import mpmath
import pytest

from dpsgd.accounting import (
    analytic_noise,
    combined_noise_multiplier,
    gaussian_delta,
    gaussian_epsilon,
)
from dpsgd.accounting.composition import Guarantee, advanced, amplified, optimal, unequal
from ldp import InvalidInput
from ldp.planning import composition as local


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0, 30.0])
@pytest.mark.parametrize("noise", [0.05, 1.0, 300.0])
def test_delta_is_never_below_forty_digits(noise: float, epsilon: float) -> None:
    with mpmath.workdps(60):
        mean = 1 / mpmath.mpf(noise)
        exact = mpmath.ncdf(mean / 2 - epsilon / mean) - mpmath.exp(epsilon) * mpmath.ncdf(
            -mean / 2 - epsilon / mean
        )
        found = gaussian_delta(noise, epsilon)
        assert found >= exact
        assert found == pytest.approx(float(exact), rel=1e-7, abs=1e-300)


@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-15, 1e-100])
@pytest.mark.parametrize("noise", [0.01, 1.0, 1e4])
def test_epsilon_is_the_inverse_of_delta(noise: float, delta: float) -> None:
    epsilon = gaussian_epsilon(noise, delta)
    assert gaussian_delta(noise, epsilon) <= delta
    assert epsilon == 0 or gaussian_delta(noise, epsilon * (1 - 1e-6)) > delta * (1 - 1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_analytic_noise_is_the_least(epsilon: float) -> None:
    noise = analytic_noise(epsilon, 1e-6)
    assert gaussian_delta(noise, epsilon) <= 1e-6 < gaussian_delta(noise * (1 - 1e-7), epsilon)


def test_groups_are_as_private_as_one_release() -> None:
    assert combined_noise_multiplier([3.0, 4.0]) == pytest.approx(2.4)
    assert combined_noise_multiplier([2.0] * 4) == pytest.approx(1.0)
    assert combined_noise_multiplier([1e-200, 1.0]) == pytest.approx(1e-200)
    for bad in ([], [1.0, 0.0], [math.nan]):
        with pytest.raises(InvalidInput):
            combined_noise_multiplier(bad)


def test_sampling_amplifies_by_the_known_formula() -> None:
    step = amplified(Guarantee(1.0, 1e-6), 0.1)
    assert step.epsilon == pytest.approx(math.log(1 + 0.1 * (math.e - 1)))
    assert step.delta == pytest.approx(1e-7)
    assert amplified(Guarantee(1.0, 1e-6), 0.0) == Guarantee(0.0, 0.0)
    assert amplified(Guarantee(1.0), 1.0) == Guarantee(1.0)
    assert amplified(Guarantee(1e5), 0.5).epsilon == pytest.approx(1e5, rel=1e-4)
    with pytest.raises(InvalidInput, match="sampling rate"):
        amplified(Guarantee(1.0), 1.5)


def test_advanced_composition_is_its_formula() -> None:
    whole = advanced(Guarantee(0.1, 1e-8), 100, 1e-6)
    expected = math.sqrt(200 * math.log(1e6)) * 0.1 + 10 * math.tanh(0.05)
    assert whole.epsilon == pytest.approx(expected)
    assert whole.delta == pytest.approx(2e-6)
    assert advanced(Guarantee(0.1), 1000, 1e-5).epsilon == pytest.approx(20.17, abs=0.005)
    assert advanced(Guarantee(2.0), 3, 1e-5).epsilon == pytest.approx(6.0)


def test_unequal_guarantees_compose_by_randomised_response() -> None:
    """The worst guarantees of their epsilons: their exact delta is within the slack."""
    parts = [(Guarantee(0.2), 30), (Guarantee(0.3, 1e-3), 3), (Guarantee(1.0), 1)]
    whole = unequal(parts, 0.05)
    losses = {0.0: 1.0}
    for guarantee, times in parts:
        for _ in range(times):
            likely = 1 / (1 + math.exp(-guarantee.epsilon))
            losses = _added(losses, guarantee.epsilon, likely)
    exact = sum(p * max(0.0, -math.expm1(whole.epsilon - loss)) for loss, p in losses.items())
    assert exact + 3e-3 <= whole.delta == pytest.approx(0.053)
    assert whole.epsilon < 0.8 * (6.0 + 0.9 + 1.0)
    assert unequal([], 0.1) == Guarantee(0.0, 0.1 * (1 + 1e-9))


def _added(losses: dict[float, float], epsilon: float, likely: float) -> dict[float, float]:
    found: dict[float, float] = {}
    for loss, p in losses.items():
        for moved, share in ((loss + epsilon, likely), (loss - epsilon, 1 - likely)):
            key = round(moved, 9)
            found[key] = found.get(key, 0.0) + p * share
    return found


def test_optimal_composition_is_the_local_one_plus_the_deltas() -> None:
    pure = local.optimal(0.1, 100, 1e-6)
    whole = optimal(Guarantee(0.1, 1e-8), 100, 1e-6)
    assert whole.epsilon == pure.epsilon < advanced(Guarantee(0.1), 100, 1e-6).epsilon
    assert whole.delta == pytest.approx(1 - (1 - 1e-8) ** 100 * (1 - pure.delta), rel=1e-6)


@pytest.mark.parametrize("times", [-1, 1.5, True], ids=repr)
def test_bad_times_are_refused(times: int) -> None:
    for compose in (advanced, optimal):
        with pytest.raises(InvalidInput, match="times must"):
            compose(Guarantee(0.1), times, 1e-6)
