"""The published figures, each from the accountant that it is known for."""

import math

import pytest

from dpsgd.accounting import (
    CentralLimitApproximation,
    Event,
    MomentsAccountant,
    PoissonSampling,
    RDPAccountant,
    Relation,
)
from dpsgd.accounting.accountant import Accountant
from dpsgd.accounting.composition import Guarantee, advanced, amplified, optimal
from dpsgd.accounting.overview import compare
from dpsgd.accounting.pld import PLDAccountant

# q, noise multiplier, steps: RDP with the order optimised, PLD on a grid of 1e-4 and of 1e-5
TABLE = [
    pytest.param(0.01, 4.0, 10_000, 1.03538, 0.94700, 0.94687, id="small-rate"),
    pytest.param(256 / 6e4, 1.1, 14_062, 2.59654, 2.38169, 2.38160, id="mnist"),
    pytest.param(1.0, 10.0, 100, 4.72839, 4.37718, 4.37718, id="unsampled"),
    pytest.param(512 / 5e4, 1.0, 10_000, 6.89921, 6.36167, 6.36164, id="cifar"),
]


def after(kind: type[Accountant], q: float, sigma: float, steps: int) -> Accountant:
    accountant = kind(Relation.ADD_REMOVE)
    accountant.step(noise_multiplier=sigma, sampling=PoissonSampling(q), steps=steps)
    return accountant


@pytest.mark.parametrize(("q", "sigma", "steps", "rdp", "coarse", "fine"), TABLE)
def test_rdp_is_the_figure_of_the_optimised_order(
    q: float, sigma: float, steps: int, rdp: float, coarse: float, fine: float
) -> None:
    assert after(RDPAccountant, q, sigma, steps).get_epsilon(1e-5) == pytest.approx(rdp, rel=1e-5)


@pytest.mark.parametrize(("q", "sigma", "steps", "rdp", "coarse", "fine"), TABLE)
def test_pld_is_the_figure_of_its_grid_and_never_below_a_finer_one(
    q: float, sigma: float, steps: int, rdp: float, coarse: float, fine: float
) -> None:
    epsilon = after(PLDAccountant, q, sigma, steps).get_epsilon(1e-5)
    assert epsilon == pytest.approx(coarse, rel=1e-5)
    assert epsilon > fine - 1e-5


def test_a_loud_run_has_the_figure_of_the_signed_series_at_its_best_order() -> None:
    assert after(RDPAccountant, 0.01, 1.0, 10**6).get_epsilon(1e-5) == pytest.approx(
        144.78, abs=0.01
    )


@pytest.mark.parametrize(("steps", "epsilon"), [(10_000, 1.2586), (40_000, 2.576)])
def test_the_moments_accountant_gives_abadis_own_numbers(steps: int, epsilon: float) -> None:
    found = after(MomentsAccountant, 0.01, 4.0, steps).get_epsilon(1e-5)
    assert found == pytest.approx(epsilon, rel=1e-4)


def figures() -> dict[str, float]:
    event = Event(4.0, PoissonSampling(0.01), 10_000)
    figures = compare(event, Relation.ADD_REMOVE, 1e-5)
    return {figure.name: figure.epsilon for figure in figures if figure.epsilon is not None}


def test_abadis_baseline_is_named_so_and_is_934() -> None:
    assert figures()["Abadi's baseline"] == pytest.approx(9.338, abs=1e-3)


def test_honest_amplification_takes_the_baseline_to_2117() -> None:
    """The baseline's steps, with ln(1 + q (e**epsilon - 1)) where it has q epsilon."""
    q, sigma, steps, delta = 0.01, 4.0, 10_000, 1e-5
    found = []
    for share in (i / 20 for i in range(1, 20)):
        per_step = (1 - share) * delta / (q * steps)
        classic = math.sqrt(2 * math.log(1.25 / per_step)) / sigma
        step = amplified(Guarantee(classic, per_step), q)
        found.append([c(step, steps, share * delta).epsilon for c in (advanced, optimal)])
    strong, best = (min(column) for column in zip(*found, strict=True))
    assert strong == pytest.approx(21.17, abs=0.005)
    assert 18.8 < best < strong


def test_composition_alone_is_far_above_the_accountants() -> None:
    found = figures()
    assert 1.04 < found["optimal composition"] < found["advanced composition"] < 21.17


@pytest.mark.parametrize(("q", "sigma", "steps"), [row.values[:3] for row in TABLE[:2] + TABLE[3:]])
def test_the_central_limit_lies_below_the_truth(q: float, sigma: float, steps: int) -> None:
    approximation = after(CentralLimitApproximation, q, sigma, steps)
    assert not approximation.is_guarantee
    assert approximation.get_epsilon(1e-5) < 0.999 * after(
        PLDAccountant, q, sigma, steps
    ).get_epsilon(1e-5)
