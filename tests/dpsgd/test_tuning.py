"""The choice of the best run: what it costs, and which runs are made."""

import itertools
import json
import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant
from private import BATCH, N, make
from torch import nn
from torch.nn.functional import cross_entropy

from dpsgd.accounting import (
    BestOf,
    CentralLimitApproximation,
    Channel,
    GDPAccountant,
    NoSampling,
    PoissonSampling,
    Pure,
    RDPAccountant,
    Relation,
    ZCDPAccountant,
)
from dpsgd.accounting.accountant import Accountant
from dpsgd.accounting.pld import PLDAccountant
from dpsgd.tuning import best_of
from ldp import KRR, ChannelTable, InvalidInput, Mechanism
from ldp.testing import SeededCoins


def one_run(steps: int = 1500) -> RDPAccountant:
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    accountant.step(noise_multiplier=2.0, sampling=PoissonSampling(0.02), steps=steps)
    return accountant


def chosen_from(mean: int, *runs: RDPAccountant) -> RDPAccountant:
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    accountant.record(BestOf([run.history for run in runs], Relation.ADD_REMOVE, mean))
    return accountant


@pytest.mark.parametrize(("mean", "epsilon"), [(5, 3.286), (20, 3.967), (100, 4.608)])
def test_the_price_of_a_choice_is_below_dp_accountings(mean: int, epsilon: float) -> None:
    found = chosen_from(mean, one_run()).get_epsilon(1e-5)
    assert found == pytest.approx(epsilon, abs=1e-3)
    theirs = rdp_privacy_accountant.RdpAccountant()
    step = dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(2.0))
    run = dp_event.SelfComposedDpEvent(step, 1500)
    theirs.compose(dp_event.RepeatAndSelectDpEvent(run, mean, 1))
    assert 0.998 * theirs.get_epsilon(1e-5) < found <= theirs.get_epsilon(1e-5)


TABLE = ChannelTable.from_rows(1.7, [[0.5, 0.25, 0.15, 0.1], [0.1, 0.25, 0.15, 0.5]])


@pytest.mark.parametrize("mechanism", [KRR(4, 1.0), KRR(4, 0.1), TABLE], ids=repr)
@pytest.mark.parametrize("mean", [1, 2, 7, 50])
def test_the_divergence_bounds_the_best_of_all_outputs_orders(
    mechanism: Mechanism, mean: int
) -> None:
    """A run's output is one of four, ranked in any way; that of the best is enumerated."""
    event = BestOf([[Channel(mechanism)]], Relation.REPLACE_ONE, mean)
    rows = np.array(mechanism.channel().rows, dtype=float)[:2]
    for ranks in itertools.permutations(range(4)):
        below = rows[:, list(ranks)].cumsum(axis=1)  # Pr[K runs are all at most this] sums up
        chances = np.diff(below / (mean - (mean - 1) * below), prepend=0, axis=1)
        for order, (p, q) in itertools.product((1.1, 2, 4, 16), (chances, chances[::-1])):
            exact = math.log((p**order * q ** (1 - order)).sum()) / (order - 1)
            assert exact <= event.divergence(order - 1) + 1e-12


def test_the_divergence_bounds_the_best_of_candidates_that_are_drawn() -> None:
    """A run draws one of two mechanisms, and its output tells which."""
    mechanisms = KRR(3, 0.3), KRR(3, 1.5)
    event = BestOf([[Channel(each)] for each in mechanisms], Relation.REPLACE_ONE, 5)
    rows = np.hstack([np.array(each.channel().rows, dtype=float)[:2] / 2 for each in mechanisms])
    for ranks in itertools.permutations(range(6)):
        below = rows[:, list(ranks)].cumsum(axis=1)
        p, q = np.diff(below / (5 - 4 * below), prepend=0, axis=1)
        exact = max(math.log((a**3 * b**-2).sum()) / 2 for a, b in ((p, q), (q, p)))
        assert exact <= event.divergence(2.0)


def test_of_different_candidates_the_most_counts_at_every_order() -> None:
    many, loud = one_run(), RDPAccountant(Relation.ADD_REMOVE)
    loud.step(noise_multiplier=1.5, sampling=NoSampling())
    alone = [chosen_from(20, run).get_epsilon(1e-5) for run in (many, loud)]
    together = chosen_from(20, many, loud).get_epsilon(1e-5)
    assert max(alone) <= together < 1.05 * max(alone)
    assert chosen_from(20, many, one_run(10)).get_epsilon(1e-5) == alone[0]
    assert chosen_from(1, many).get_epsilon(1e-5) == pytest.approx(many.get_epsilon(1e-5), rel=1e-6)


@pytest.mark.parametrize("kind", [RDPAccountant, PLDAccountant])
def test_a_choice_adds_to_other_releases_and_survives_a_checkpoint(kind: type[Accountant]) -> None:
    accountant = kind(Relation.ADD_REMOVE)
    accountant.record(BestOf([one_run().history, [Pure(0.5)]], Relation.ADD_REMOVE, 20))
    alone = accountant.get_epsilon(1e-5)
    accountant.record(Pure(0.2))
    assert alone < accountant.get_epsilon(1e-5) < alone + 0.2
    again = kind(Relation.ADD_REMOVE)
    again.load_state_dict(json.loads(json.dumps(accountant.state_dict())))
    assert again.history == accountant.history
    assert again.get_epsilon(1e-5) == accountant.get_epsilon(1e-5)


@pytest.mark.parametrize("kind", [GDPAccountant, ZCDPAccountant, CentralLimitApproximation])
def test_accountants_that_cannot_bound_a_choice_refuse_it(kind: type[Accountant]) -> None:
    run = [Pure(0.5)]
    with pytest.raises(InvalidInput, match="use RDPAccountant"):
        kind(Relation.ADD_REMOVE).record(BestOf([run], Relation.ADD_REMOVE, 20))
    with pytest.raises(InvalidInput, match="ADD_REMOVE, not under REPLACE_ONE"):
        kind(Relation.REPLACE_ONE).record(BestOf([run], Relation.ADD_REMOVE, 20))


@pytest.mark.parametrize(
    ("runs", "relation", "mean"),
    [
        ([], Relation.ADD_REMOVE, 20),
        ([[Pure(1.0)]], Relation.ADD_REMOVE, 0),
        ([[Pure(1.0)]], Relation.ADD_REMOVE, 2.5),
        ([one_run().history], Relation.REPLACE_ONE, 20),
    ],
)
def test_bad_choices_are_refused(runs, relation, mean) -> None:
    with pytest.raises(InvalidInput):
        BestOf(runs, relation, mean)


def test_the_number_of_runs_is_geometric_and_every_candidate_as_likely() -> None:
    coins, counts, drawn = SeededCoins(5), [], []

    def train(candidate: int) -> tuple[int, RDPAccountant]:
        drawn.append(candidate)
        return candidate, one_run()

    for _ in range(800):
        before = len(drawn)
        best = best_of(train, [3, 1, 2], float, account=lambda _: one_run(), mean=4, coins=coins)
        counts.append(len(drawn) - before)
        assert best.candidate == best.model == best.score == max(drawn[before:])
    assert np.mean(counts) == pytest.approx(4, abs=4 * math.sqrt(12 / 800))
    assert np.mean(np.array(counts) == 1) == pytest.approx(0.25, abs=4 * math.sqrt(0.19 / 800))
    assert np.bincount(drawn)[1:] / len(drawn) == pytest.approx(1 / 3, abs=0.04)


def test_trainings_with_different_rates_are_chosen_from() -> None:
    def train(rate: float) -> tuple[nn.Module, Accountant]:
        engine, module, optimizer, loader = make(noise=2.0)
        optimizer.param_groups[0]["lr"] = rate
        for x, y in loader:
            optimizer.zero_grad()
            cross_entropy(module(x), y).backward()
            optimizer.step()
        steps.update(engine.accountant.history)
        return module, engine.accountant

    def account(_: float) -> Accountant:
        planned = RDPAccountant(Relation.ADD_REMOVE)
        planned.step(noise_multiplier=2.0, sampling=PoissonSampling(BATCH / N), steps=N // BATCH)
        return planned

    steps: set[object] = set()
    best = best_of(train, [0.1, 1.0], lambda _: 0.0, account=account, mean=2)
    assert steps == {*account(0.1).history}
    assert best.event.runs == (account(0.1).history,)


def test_the_price_is_that_of_the_accounts_and_a_nan_is_the_worst_score() -> None:
    scores = iter([math.nan, *range(1000)])
    best = best_of(
        lambda steps: (steps, one_run(steps)),
        [10, 1500],
        lambda _: next(scores),
        account=one_run,
        mean=20,
        coins=SeededCoins(1),
    )
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    accountant.record(best.event)
    assert accountant.get_epsilon(1e-5) == chosen_from(20, one_run()).get_epsilon(1e-5)
    assert best.score > 0


def test_a_run_that_released_more_than_its_account_is_refused() -> None:
    def run(spent: Accountant, planned: Accountant) -> None:
        best_of(lambda _: (None, spent), [1], lambda _: 0.0, account=lambda _: planned)

    replaced = RDPAccountant(Relation.REPLACE_SPECIAL)
    replaced.step(noise_multiplier=2.0, sampling=PoissonSampling(0.02), steps=10)
    scored = one_run()
    scored.record(Pure(0.1))
    live = RDPAccountant(Relation.ADD_REMOVE)

    def train(_: object) -> tuple[None, Accountant]:
        live.record(Pure(0.1))
        return None, live

    with pytest.raises(InvalidInput, match=r"releases \{\} under"):
        best_of(train, [1], lambda _: 0.0, account=lambda _: live)
    for spent in (one_run(1501), scored, replaced):
        with pytest.raises(InvalidInput, match="account says that a run releases"):
            run(spent, one_run())
    run(one_run(), scored)
    with pytest.raises(InvalidInput, match="only approximates"):
        run(one_run(), CentralLimitApproximation(Relation.ADD_REMOVE))
    with pytest.raises(InvalidInput, match="of one relation"):
        best_of(
            lambda _: (None, one_run()),
            [one_run(), replaced],
            lambda _: 0.0,
            account=lambda accountant: accountant,
        )
    with pytest.raises(InvalidInput, match="needs candidates"):
        best_of(lambda _: (None, one_run()), [], lambda _: 0.0, account=lambda _: one_run())
