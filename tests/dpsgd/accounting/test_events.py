"""Releases other than Gaussian: against their definitions, and dp-accounting's figures."""

import json
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import rdp_privacy_accountant

from dpsgd.accounting import (
    Accountant,
    Channel,
    GDPAccountant,
    Laplace,
    MomentsAccountant,
    NoSampling,
    PoissonSampling,
    Pure,
    RDPAccountant,
    Relation,
    ZCDPAccountant,
)
from dpsgd.accounting.events import Unsampled
from dpsgd.accounting.pld import PLDAccountant
from ldp import KRR, GaussianMechanism, InvalidInput
from ldp.core.channel import Channel as FiniteChannel
from ldp.planning.composition import of_channels

DELTA = 1e-5


def after(kind: type[Accountant], *events: Unsampled) -> Accountant:
    accountant = kind(Relation.REPLACE_ONE)
    for event in events:
        accountant.record(event)
    return accountant


@pytest.mark.parametrize("excess", [1e-6, 0.4, 1.0, 30.0, 1e5])
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 8.0, 32.0])
def test_a_pure_release_has_the_divergence_of_randomised_response(
    epsilon: float, excess: float
) -> None:
    with mpmath.workdps(60):
        e, x = mpmath.mpf(epsilon), mpmath.mpf(excess)
        moment = (mpmath.exp(e * (1 + x)) + mpmath.exp(-x * e)) / (1 + mpmath.exp(e))
        exact = mpmath.log(moment) / x
        found = Pure(epsilon).divergence(excess)
        assert exact <= found <= epsilon
        assert found == pytest.approx(float(exact), rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("excess", [1e-4, 0.4, 30.0])
@pytest.mark.parametrize("noise", [0.05, 3.0])
def test_laplace_noise_has_the_divergence_of_its_densities(noise: float, excess: float) -> None:
    """The integral of p**a q**(1 - a), piece by piece: before 0, between 0 and 1, after 1."""
    with mpmath.workdps(30):
        b, x = mpmath.mpf(noise), mpmath.mpf(excess)
        between = mpmath.quad(
            lambda t: mpmath.exp((-(1 + x) * t + x * (1 - t)) / b) / (2 * b), [0, 1 / b / b, 1]
        )
        exact = mpmath.log(mpmath.exp(x / b) / 2 + between + mpmath.exp(-(1 + x) / b) / 2) / x
        found = Laplace(noise).divergence(excess)
        assert float(exact) <= found == pytest.approx(float(exact), rel=2e-9)
        if excess >= 0.4:
            theirs = rdp_privacy_accountant._laplace_rdp(1 / noise, 1 + excess)
            assert found == pytest.approx(theirs, rel=2e-9)


def test_a_channel_has_at_least_the_divergence_of_each_two_inputs_and_hardly_more() -> None:
    mechanism = KRR(4, 1.0)
    matrix = mechanism.matrix()
    for excess in (0.5, 2.0, 40.0):
        worst = max(
            math.log(float(np.sum(p ** (1 + excess) * q**-excess))) / excess
            for p in matrix
            for q in matrix
        )
        found = Channel(mechanism).divergence(excess)
        assert worst <= found == pytest.approx(worst, rel=1e-6)
        assert worst <= Channel(mechanism.channel()).divergence(excess) <= worst * 1.001


@pytest.mark.parametrize(
    ("event", "theirs"),
    [
        (Laplace(10.0, steps=100), privacy_loss_distribution.from_laplace_mechanism(10.0)),
        (
            Pure(0.1, steps=100),
            privacy_loss_distribution.from_randomized_response(2 / (math.exp(0.1) + 1), 2),
        ),
    ],
    ids=["laplace", "pure"],
)
def test_pld_has_dp_accountings_figures(event: Unsampled, theirs: Any) -> None:
    least = theirs.self_compose(100).get_epsilon_for_delta(DELTA)
    found = after(PLDAccountant, event).get_epsilon(DELTA)
    assert found == pytest.approx(least, rel=2e-3)
    assert found < after(RDPAccountant, event).get_epsilon(DELTA) < 1.08 * found


def test_a_training_with_votes_beside_it_has_dp_accountings_figure() -> None:
    accountant = PLDAccountant(Relation.ADD_REMOVE)
    accountant.step(noise_multiplier=1.5, sampling=PoissonSampling(0.05), steps=20)
    accountant.record(Laplace(5.0, steps=10))
    theirs = privacy_loss_distribution.from_gaussian_mechanism(1.5, sampling_prob=0.05)
    votes = privacy_loss_distribution.from_laplace_mechanism(5.0).self_compose(10)
    least = theirs.self_compose(20).compose(votes).get_epsilon_for_delta(DELTA)
    assert accountant.get_epsilon(DELTA) == pytest.approx(least, rel=1e-4)


def test_reports_compose_as_where_no_training_is() -> None:
    mechanism = KRR(10, 1.0)
    found = after(PLDAccountant, Channel(mechanism, steps=30)).get_epsilon(DELTA)
    assert found == pytest.approx(of_channels([(mechanism, 30)], DELTA), rel=1e-6)


@pytest.mark.parametrize("kind", [RDPAccountant, PLDAccountant, MomentsAccountant, ZCDPAccountant])
def test_releases_add_to_a_trainings_epsilon(kind: type[Accountant]) -> None:
    accountant = after(kind)
    accountant.step(noise_multiplier=4.0, sampling=NoSampling(), steps=3)
    alone = accountant.get_epsilon(DELTA)
    for event in (Pure(0.3), Laplace(4.0), Channel(KRR(10, 0.5))):
        accountant.record(event)
        accountant.record(event)
    added = accountant.get_epsilon(DELTA) - alone
    assert added > 0.1
    if kind is not ZCDPAccountant:
        assert added < 2 * (0.3 + 0.25 + 0.5)
    again = after(kind)
    again.load_state_dict(json.loads(json.dumps(accountant.state_dict())))
    assert again.history == accountant.history
    assert [event.steps for event in again.history] == [3, 2, 2, 2]


def test_zcdp_takes_half_of_epsilon_squared() -> None:
    accountant = after(ZCDPAccountant, Pure(0.4, steps=3))
    rho = 3 * 0.08
    assert accountant.get_epsilon(DELTA) == pytest.approx(
        rho + 2 * math.sqrt(-rho * math.log(DELTA))
    )


@pytest.mark.parametrize("kind", [RDPAccountant, PLDAccountant, MomentsAccountant, ZCDPAccountant])
def test_a_channel_that_rules_an_input_out_has_no_epsilon(kind: type[Accountant]) -> None:
    half = Fraction(1, 2)
    channel = FiniteChannel(("a", "b", "c"), ((half, half, 0 * half), (0 * half, half, half)))
    accountant = after(kind, Channel(channel))
    assert accountant.get_epsilon(DELTA) == math.inf
    assert accountant.get_delta(3.0) >= 0.5


def test_a_release_that_cannot_be_accounted_for_is_refused() -> None:
    for kind, event, reason in (
        (GDPAccountant, Pure(1.0), "Pure is no Gaussian noise"),
        (RDPAccountant, 1.0, "an event of"),
    ):
        with pytest.raises(InvalidInput, match=reason):
            after(kind, event)
    for relation in (Relation.ADD_REMOVE, Relation.REPLACE_SPECIAL):
        with pytest.raises(InvalidInput, match="not whether there is one"):
            RDPAccountant(relation).record(Channel(KRR(4, 1.0)))
    for wrong in (0.0, -1.0, 33.0, math.nan, "1"):
        with pytest.raises(InvalidInput):
            Pure(wrong)
        with pytest.raises(InvalidInput):
            Laplace(1 / wrong if isinstance(wrong, float) and wrong else wrong)
    with pytest.raises(InvalidInput, match="every pair of inputs"):
        Channel(GaussianMechanism.calibrated(1.0, 1e-6))
