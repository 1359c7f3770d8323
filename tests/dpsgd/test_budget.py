"""Budgets: the step that would exceed one changes nothing, whatever the steps before were."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from private import data, make, train
from scipy.stats import binom

from dpsgd import BudgetExhausted, PrivacyEngine, release
from dpsgd.accounting import (
    Event,
    GDPAccountant,
    Laplace,
    NoSampling,
    PoissonSampling,
    Pure,
    RDPAccountant,
    Relation,
    calibrate_steps,
)
from dpsgd.accounting.pld import PLDAccountant
from ldp import InvalidInput

BUDGET = (3.0, 1e-5)
PLAN = Event(1.0, PoissonSampling(0.01), 1)


def limited(epsilon: float = 3.0) -> RDPAccountant:
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    accountant.set_budget(epsilon, 1e-5, PLAN)
    return accountant


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 40.0])
def test_as_planned_a_budget_is_spent_as_if_it_had_been_calibrated(epsilon: float) -> None:
    accountant = limited(epsilon)
    free = RDPAccountant(Relation.ADD_REMOVE)
    most = calibrate_steps(
        free, epsilon, 1e-5, noise_multiplier=1.0, sampling=PoissonSampling(0.01)
    )
    left, steps = accountant.remaining(PLAN)
    assert left == epsilon
    assert most - most // 1000 <= steps <= most
    accountant.record(Event(1.0, PoissonSampling(0.01), steps - 1))
    accountant.step(noise_multiplier=1.0, sampling=PoissonSampling(0.01))
    assert accountant.remaining(PLAN)[1] == 0
    before = accountant.state_dict()
    with pytest.raises(BudgetExhausted, match="would exceed the budget"):
        accountant.step(noise_multiplier=1.0, sampling=PoissonSampling(0.01))
    assert accountant.state_dict() == before
    assert epsilon * 0.9 < accountant.get_epsilon(1e-5) <= epsilon


def test_what_was_not_planned_is_limited_by_the_same_order() -> None:
    """The sum of the divergences at one order, with the conversion of that order, is the bound."""
    accountant, fits = limited(), 0
    events = [Pure(0.1), Laplace(8.0), Event(5.0, NoSampling(), 1), Event(0.8, PLAN.sampling, 3)]
    with pytest.raises(BudgetExhausted):
        for i in range(10**4):
            accountant.record(events[i % 4])
            fits += 1
    assert fits > 10
    assert 2.0 < accountant.get_epsilon(1e-5) <= 3.0
    accountant.record(Event(1e6, NoSampling(), 1))  # which still fits


def test_a_budget_holds_where_results_choose_what_comes_next() -> None:
    """Randomised responses, exactly: the first decides if quiet or loud ones use the rest up."""
    epsilon, delta, first = 2.0, 0.02, 0.8
    exact = 0.0
    for sign, then in ((1, 0.05), (-1, 1.0)):
        accountant = RDPAccountant(Relation.ADD_REMOVE)
        accountant.set_budget(epsilon, delta, Event(2.0, NoSampling(), 1))
        accountant.record(Pure(first))
        times = accountant.remaining(Pure(then))[1]
        accountant.record(Pure(then, steps=times))
        losses = sign * first + then * (2 * np.arange(times + 1) - times)
        masses = binom.pmf(np.arange(times + 1), times, 1 / (1 + math.exp(-then)))
        share = 1 / (1 + math.exp(-sign * first))
        exact += share * float(masses @ np.maximum(0, -np.expm1(epsilon - losses)))
    assert delta / 50 < exact <= delta


def test_a_budget_goes_on_after_a_checkpoint() -> None:
    accountant = limited()
    accountant.record(Event(1.0, PLAN.sampling, 100))
    restored, other = RDPAccountant(Relation.ADD_REMOVE), limited(2.0)
    restored.load_state_dict(accountant.state_dict())
    assert restored.remaining(PLAN) == accountant.remaining(PLAN)
    with pytest.raises(InvalidInput, match="the state's budget"):
        other.load_state_dict(accountant.state_dict())
    for broken in ([3.0, 1e-5], [3.0, 1e-5, -1], "3"):
        with pytest.raises(InvalidInput, match="the state's budget"):
            limited().load_state_dict(accountant.state_dict() | {"budget": broken})
    with pytest.raises(InvalidInput, match="make forgotten"):
        accountant.load_state_dict(limited().state_dict())
    plain = RDPAccountant(Relation.ADD_REMOVE)
    plain.record(Event(1.0, PLAN.sampling, 100))
    fresh = limited()
    fresh.load_state_dict(plain.state_dict())
    assert fresh.remaining(PLAN)[1] == accountant.remaining(PLAN)[1]


def test_a_sample_of_nothing_costs_nothing_and_numpys_numbers_are_saved() -> None:
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    accountant.set_budget(np.float64(3.0), np.float64(1e-5), PLAN)
    assert {type(value) for value in accountant.state_dict()["budget"]} == {float}
    left = accountant.remaining(PLAN)
    accountant.step(noise_multiplier=1.0, sampling=PoissonSampling(0.0), steps=10)
    assert accountant.remaining(PLAN) == left


def test_a_budget_that_no_accountant_keeps_is_refused() -> None:
    for kind in (PLDAccountant, GDPAccountant):
        with pytest.raises(InvalidInput, match="cannot stop at a budget"):
            kind(Relation.ADD_REMOVE).set_budget(3.0, 1e-5, PLAN)
    with pytest.raises(InvalidInput, match="no Rényi order"):
        RDPAccountant(Relation.ADD_REMOVE).set_budget(0.0, 1e-300, PLAN)
    with pytest.raises(InvalidInput, match="a budget already"):
        limited().set_budget(3.0, 1e-5, PLAN)
    with pytest.raises(InvalidInput, match="there is no budget"):
        RDPAccountant(Relation.ADD_REMOVE).remaining(PLAN)


def test_the_step_that_exceeds_the_budget_changes_nothing_and_more_noise_may_fit() -> None:
    engine, module, optimizer, loader = make(
        optimizer=torch.optim.Adam, budget=BUDGET, dataset=data(400), batch=40
    )
    assert engine.remaining().epsilon == 3.0
    while steps := engine.remaining().steps:
        train(module, optimizer, loader, min(steps, 5))
    before = copy.deepcopy((module.state_dict(), optimizer.state_dict(), engine.accountant.history))
    with pytest.raises(BudgetExhausted):
        train(module, optimizer, loader, 1)
    saved = engine.state_dict()
    assert before[2] == engine.accountant.history
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[0][name])
    assert str(before[1]) == str(optimizer.state_dict())
    with pytest.raises(BudgetExhausted):
        optimizer.step()
    engine.noise_multiplier = 200.0
    optimizer.step()
    assert engine.accountant.history[-1] == Event(200.0, PoissonSampling(0.1), 1)
    assert engine.get_epsilon(1e-5) <= 3.0
    again, other, stepper, batches = make(dataset=data(400), batch=40)
    again.load_state_dict(saved)
    with pytest.raises(BudgetExhausted):
        train(other, stepper, batches, 1)


def test_what_is_released_beside_the_training_counts() -> None:
    engine, *_ = make(budget=BUDGET, dataset=data(400), batch=40, noise=3.0)
    steps = engine.remaining().steps
    release.count([True], epsilon=0.5, accountant=engine.accountant)
    assert engine.remaining().steps < steps
    before = engine.accountant.history
    with pytest.raises(BudgetExhausted):
        release.mean([1.0], bounds=(0, 1), noise_multiplier=0.2, accountant=engine.accountant)
    assert engine.accountant.history == before


def test_releases_before_the_training_count() -> None:
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    release.count([True], epsilon=0.5, accountant=accountant)
    alone, *_ = make(noise=3.0, budget=BUDGET)
    engine, *_ = make(PrivacyEngine(accountant=lambda _: accountant), noise=3.0, budget=BUDGET)
    assert engine.accountant is accountant
    assert engine.remaining().steps < alone.remaining().steps
    with pytest.raises(InvalidInput, match="under REPLACE_ONE, and the accountant's"):
        make(PrivacyEngine(accountant=lambda _: accountant), sampling="fixed")


def test_an_engine_refuses_a_budget_with_an_accountant_that_is_no_filter() -> None:
    with pytest.raises(InvalidInput, match="cannot stop at a budget"):
        make(PrivacyEngine(accountant=PLDAccountant), budget=BUDGET)


def test_a_delta_that_a_published_row_keeps_is_warned_of() -> None:
    engine, *_ = make(dataset=data(50), batch=10)
    with pytest.warns(UserWarning, match="not below 1 / 50"):
        engine.get_epsilon(0.02)
    with pytest.warns(UserWarning, match="not below 1 / 50"):
        make(dataset=data(50), batch=10, budget=(3.0, 0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.get_epsilon(0.019)
