"""Rényi divergences against quadrature in forty digits, and against published bounds."""

import math

import mpmath
import pytest
from dp_accounting import rdp
from dp_accounting.dp_event import GaussianDpEvent, SampledWithoutReplacementDpEvent
from dp_accounting.privacy_accountant import NeighboringRelation

from dpsgd.accounting import Event, FixedSizeSampling, NoSampling, PoissonSampling, Relation
from dpsgd.accounting.renyi import divergence

# Quadrature takes longest where noise is small: those of large orders are slow.
GRID = [
    pytest.param(q, z, excess, marks=[pytest.mark.slow] if z < 1 and excess > 0.1 else [])
    for q, z in [(0.01, 1.0), (0.01, 4.0), (0.5, 0.3), (1e-6, 2.0), (0.2, 0.05), (0.001, 100.0)]
    for excess in (1e-3, 0.4, 6.37)
]


def poisson(q: float, z: float, excess: float) -> float:
    return divergence(Event(z, PoissonSampling(q), 1), Relation.ADD_REMOVE, excess)


def fixed(q: float, z: float, excess: float) -> float:
    """A fixed-size step whose noise is z of the distance of neighbours."""
    sampling = FixedSizeSampling(round(q * 10**6), 10**6)
    return divergence(Event(2 * z, sampling, 1), Relation.REPLACE_ONE, excess)


def by_forty_digits(q: float, z: float, excess: float) -> mpmath.mpf:
    """ln E_Q[L**order] / (order - 1) as it is written."""
    with mpmath.workdps(40):
        rate, mean, order = mpmath.mpf(q), 1 / mpmath.mpf(z), 1 + mpmath.mpf(excess)
        steps = [mean / 2 + k * min(1, z) * 4 for k in range(6)]
        steps += [k * order * mean / 12 for k in range(12)]
        steps += [order * mean + d for d in (-10, -3, 0, 3, 10, 40)]
        points = sorted({*steps, mpmath.mpf(-40), mpmath.mpf(-10)})

        def integrand(x: mpmath.mpf) -> mpmath.mpf:
            ratio = 1 - rate + rate * mpmath.exp(mean * x - mean**2 / 2)
            return ratio**order * mpmath.npdf(x)

        return mpmath.log(mpmath.quad(integrand, points)) / excess


@pytest.mark.parametrize(("q", "z", "excess"), GRID)
def test_a_poisson_step_has_the_divergence_of_its_definition_and_no_less(
    q: float, z: float, excess: float
) -> None:
    ratio = poisson(q, z, excess) / by_forty_digits(q, z, excess)
    assert 1 <= ratio < 1 + 1e-8


def test_a_fractional_order_is_the_signed_series() -> None:
    def signed(q: float, z: float, order: float) -> mpmath.mpf:
        """Mironov, Talwar and Zhang 2019, section 3.3, with the binomials' signs."""
        with mpmath.workdps(60):
            z0 = mpmath.mpf(z) ** 2 * mpmath.log(1 / mpmath.mpf(q) - 1) + mpmath.mpf(1) / 2
            total = mpmath.mpf(0)
            for i in range(300):
                j = order - i
                for power, upper in ((i, False), (j, True)):
                    cut = (z0 - power) if upper else (power - z0)
                    total += (
                        mpmath.binomial(order, i)
                        * mpmath.mpf(q) ** power
                        * (1 - mpmath.mpf(q)) ** (order - power)
                        * mpmath.exp((power * power - power) / (2 * mpmath.mpf(z) ** 2))
                        * mpmath.erfc(cut / (mpmath.sqrt(2) * z))
                        / 2
                    )
            return mpmath.log(total) / (order - 1)

    for order in (1.4, 2.7, 9.1):
        series = signed(0.01, 1.0, mpmath.mpf(order))
        assert poisson(0.01, 1.0, order - 1) == pytest.approx(float(series), rel=1e-8)


@pytest.mark.parametrize("order", [2, 3, 5, 16, 64])
@pytest.mark.parametrize(("q", "z"), [(0.01, 1.0), (0.1, 2.0), (0.3, 4.0)])
def test_fixed_size_sampling_is_within_the_published_bound(q: float, z: float, order: int) -> None:
    reference = rdp.RdpAccountant([order], NeighboringRelation.REPLACE_ONE)
    reference.compose(
        SampledWithoutReplacementDpEvent(10**6, round(q * 10**6), GaussianDpEvent(z)), 1
    )
    published = float(reference._rdp[0])
    found = fixed(q, z, order - 1) * (1 + 1e-12)
    assert poisson(q, z, order - 1) <= found <= published * (1 + 1e-8)


def test_fixed_size_sampling_integrates_its_hockey_sticks() -> None:
    """E[L**a] of the curve that dominates, from its definition by hockey-stick divergences."""
    q, z, order = 0.2, 1.0, 3.5

    def normal(x: float) -> mpmath.mpf:
        return mpmath.ncdf(x)

    def above(t: mpmath.mpf) -> mpmath.mpf:
        """H_t(qP + (1 - q)Q || Q) for t >= 1: q H_s(P || Q), s = 1 + (t - 1) / q."""
        s = mpmath.log(1 + (t - 1) / q)
        return q * (normal(0.5 / z - s * z) - mpmath.exp(s) * normal(-0.5 / z - s * z))

    def curve(t: mpmath.mpf) -> mpmath.mpf:
        """Above H_t; below, less its linear part, the reflection t H_{1/t}."""
        return above(t) if t >= 1 else t * above(1 / t)

    moment = 1 + order * (order - 1) * mpmath.quad(
        lambda t: t ** (order - 2) * curve(t), [1e-6, 0.5, 1, 2, 10, 100, 10**4, 10**6]
    )
    assert fixed(q, z, order - 1) == pytest.approx(float(mpmath.log(moment)) / 2.5, rel=1e-6)


def test_a_replaced_record_moves_a_sum_twice_as_far() -> None:
    event = Event(6.0, NoSampling(), 1)
    assert divergence(event, Relation.ADD_REMOVE, 1.0) == pytest.approx(2 / 72)
    assert divergence(event, Relation.REPLACE_SPECIAL, 1.0) == pytest.approx(2 / 72)
    assert divergence(event, Relation.REPLACE_ONE, 1.0) == pytest.approx(2 / 18)


def test_sampling_never_costs_more_than_none() -> None:
    for z in (1e-200, 1e-3, 0.02, 1.0, 50.0, 1e4, 1e9):
        for excess in (1e-6, 1.0, 1e6, 1e12):
            whole = divergence(Event(z, NoSampling(), 1), Relation.ADD_REMOVE, excess)
            assert 0 <= poisson(0.3, z, excess) <= whole or math.isinf(whole)
