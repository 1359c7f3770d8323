"""What aggregators answer, what they charge, and what they refuse."""

import copy
import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare, norm

from dpsgd.accounting import (
    BudgetExhausted,
    CentralLimitApproximation,
    Event,
    GDPAccountant,
    NoSampling,
    RDPAccountant,
    Relation,
    ZCDPAccountant,
    gaussian_epsilon,
)
from dpsgd.pate import ConfidentGNMax, GNMax, count_votes, partition
from ldp import Coins, InvalidInput
from ldp.testing import SeededCoins

VOTES = np.array([[9, 1, 0], [4, 3, 3], [0, 0, 10]])
DELTA = 1e-5


class NoCoins(Coins):
    def _bytes(self, count: int) -> bytes:
        raise RuntimeError("drawn")


def zcdp(relation: Relation = Relation.REPLACE_ONE) -> ZCDPAccountant:
    return ZCDPAccountant(relation)


def test_every_record_has_one_teacher_and_teachers_have_equal_shares() -> None:
    parts = partition(17, 5, np.random.default_rng(1))
    assert sorted(np.concatenate(parts).tolist()) == list(range(17))
    assert sorted(map(len, parts)) == [3, 3, 3, 4, 4]


def test_each_teacher_has_one_vote() -> None:
    votes = count_votes([[0, 2], [1, 2], [0, 1]], 3)
    assert votes.tolist() == [[2, 1, 0], [0, 1, 2]]


@pytest.mark.parametrize("relation", Relation)
def test_a_label_costs_a_gaussian_release_that_moves_by_the_root_of_two(relation: Relation) -> None:
    aggregator = GNMax(20, teachers=10, accountant=GDPAccountant(relation))
    aggregator.answer(VOTES)
    exact = gaussian_epsilon(20 / math.sqrt(2 * len(VOTES)), DELTA)
    assert aggregator.get_epsilon(DELTA) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(("asked", "answered", "epsilon"), [(286, 286, 3.105), (300, 165, 2.359)])
def test_confident_answers_cost_what_is_known(asked: int, answered: int, epsilon: float) -> None:
    """By the conversion of the paper, whose best real order zCDP has."""
    coins = SeededCoins(1)
    aggregator = ConfidentGNMax(250, 150, 40, teachers=250, accountant=zcdp(), coins=coins)
    votes = np.zeros((asked, 10), dtype=int)
    votes[:, 3] = 250
    labels = aggregator.answer(votes, most=answered)
    assert 0 < (labels == -1).sum() < asked  # all are charged, also those without an answer
    assert aggregator.get_epsilon(DELTA) == pytest.approx(epsilon, abs=1e-3)


def test_all_questions_are_charged_for_unless_fewer_answers_are_fixed() -> None:
    def spent(**how: int) -> float:
        aggregator = ConfidentGNMax(-999, 5, 4, teachers=10, accountant=zcdp(), coins=coins)
        answers = aggregator.answer(VOTES, **how)
        assert (answers >= 0).sum() == how.get("most", 3)
        return aggregator.get_epsilon(DELTA)

    coins = SeededCoins(1)
    assert 0 < spent(most=0) < spent(most=1) < spent(most=2) < spent() == spent(most=3)


def test_it_is_charged_before_a_coin_is_drawn() -> None:
    aggregator = GNMax(4, teachers=10, coins=NoCoins())
    with pytest.raises(RuntimeError, match="drawn"):
        aggregator.answer(VOTES)
    assert aggregator.get_epsilon(DELTA) > 0


def test_labels_have_the_chances_of_gaussian_noise() -> None:
    votes, sigma, coins = [6, 4], 3.0, SeededCoins(2)
    drawn = GNMax(sigma, teachers=10, coins=coins).answer([votes] * 1000)
    first = norm.cdf(2 / (math.sqrt(2) * sigma))
    observed = np.bincount(drawn, minlength=2)
    assert chisquare(observed, 1000 * np.array([first, 1 - first])).pvalue > 1e-3


def test_questions_are_answered_with_the_chance_that_noise_reaches_the_threshold() -> None:
    aggregator = ConfidentGNMax(7.5, 2, 0.1, teachers=10, coins=SeededCoins(3))
    answers = aggregator.answer([[6, 4]] * 1000)
    yes = norm.cdf(-1.5 / 2)
    observed = np.bincount(answers + 1, minlength=2)
    assert chisquare(observed, 1000 * np.array([1 - yes, yes])).pvalue > 1e-3


def test_agreement_costs_less_at_the_votes_that_there_were() -> None:
    spent = {}
    for name, top in (("agree", 98), ("disagree", 51)):
        aggregator = GNMax(10, teachers=100, coins=SeededCoins(4))
        aggregator.answer([[top, 100 - top]] * 50)
        with pytest.warns(UserWarning, match="private data itself: publish get_epsilon"):
            spent[name] = aggregator.get_epsilon_data_dependent(DELTA).reveal()
        spent[name + " by noise"] = aggregator.get_epsilon(DELTA)
    assert spent["agree by noise"] == spent["disagree by noise"]  # it does not know the votes
    assert spent["disagree"] == pytest.approx(spent["disagree by noise"], rel=1e-3)
    assert spent["agree"] < 0.1 * spent["disagree"]


@pytest.mark.parametrize(
    "publish",
    [
        float,
        pickle.dumps,
        copy.deepcopy,
        lambda epsilon: epsilon.__getstate__(),
        json.dumps,
        math.ceil,
        lambda epsilon: f"{epsilon:.2f}",
        lambda epsilon: f"{epsilon}",
        lambda epsilon: "%.2f" % epsilon,  # noqa: UP031
        lambda epsilon: epsilon + 1,
        lambda epsilon: epsilon < 3,
        lambda epsilon: np.array([epsilon], dtype=float),
    ],
)
def test_publishing_a_data_dependent_epsilon_is_refused(publish: Any) -> None:
    aggregator = GNMax(10, teachers=10)
    aggregator.answer(VOTES)
    epsilon = aggregator.get_epsilon_data_dependent(DELTA)
    with pytest.raises((InvalidInput, TypeError)):
        publish(epsilon)
    assert not any(letter.isdigit() for letter in str(epsilon) + repr([epsilon]))


def test_an_aggregator_is_not_saved_and_its_account_is() -> None:
    aggregator = GNMax(10, teachers=10)
    aggregator.answer(VOTES)
    for save in (pickle.dumps, copy.copy, GNMax.__getstate__):
        with pytest.raises(InvalidInput, match="neither printed nor saved"):
            save(aggregator)
    again = RDPAccountant(Relation.REPLACE_ONE)
    again.load_state_dict(json.loads(json.dumps(aggregator.accountant.state_dict())))
    assert again.get_epsilon(DELTA) == aggregator.get_epsilon(DELTA)


def test_no_answer_is_given_beyond_a_budget() -> None:
    accountant = RDPAccountant(Relation.REPLACE_ONE)
    accountant.set_budget(1.0, DELTA, plan=Event(10, NoSampling(), 10))
    aggregator = GNMax(10, teachers=10, accountant=accountant, coins=SeededCoins(5))
    answered = 0
    with pytest.raises(BudgetExhausted):
        for _ in range(100):
            answered += len(aggregator.answer(VOTES[:1]))
    assert 1 < answered < 10
    assert 0.5 < aggregator.get_epsilon(DELTA) <= 1.0


def test_a_threshold_may_be_a_number_of_numpy() -> None:
    for threshold in (np.int64(8), np.float32(8)):
        assert ConfidentGNMax(threshold, 2, 2, teachers=10).threshold == 8.0


def test_no_questions_cost_nothing() -> None:
    aggregator = ConfidentGNMax(5, 2, 2, teachers=10, coins=NoCoins())
    assert aggregator.answer(np.zeros((0, 3), dtype=int)).shape == (0,)
    assert aggregator.get_epsilon(DELTA) == 0
    with pytest.warns(UserWarning, match="private data itself"):
        assert aggregator.get_epsilon_data_dependent(DELTA).reveal() == 0


@pytest.mark.parametrize(
    ("votes", "why"),
    [
        ([[5.0, 5.0]], "integers"),
        ([[True, False]], "integers"),
        ([5, 5], "shape"),
        ([[10]], "two classes"),
        ([[11, -1]], "0..10"),
        ([[2**63 - 1, 5]], "0..10"),
        ([[5, 5], [5, 4]], "question 1 do not add up to 10"),
        ([[5, 6]], "one vote"),
    ],
)
@pytest.mark.parametrize("confident", [False, True])
def test_votes_that_are_not_one_of_each_teacher_are_refused_and_cost_nothing(
    votes: Any, why: str, confident: bool
) -> None:
    aggregator = (
        ConfidentGNMax(5, 2, 2, teachers=10, coins=NoCoins())
        if confident
        else GNMax(2, teachers=10, coins=NoCoins())
    )
    with pytest.raises(InvalidInput, match=why):
        aggregator.answer(votes)
    assert aggregator.get_epsilon(DELTA) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: GNMax(0, teachers=10),
        lambda: GNMax(math.nan, teachers=10),
        lambda: GNMax(math.inf, teachers=10),
        lambda: GNMax(True, teachers=10),
        lambda: GNMax("5", teachers=10),  # type: ignore[arg-type]
        lambda: GNMax(5, teachers=0),
        lambda: GNMax(5, teachers=2.5),  # type: ignore[arg-type]
        lambda: GNMax(5, teachers=10, accountant=3),  # type: ignore[arg-type]
        lambda: GNMax(
            5, teachers=10, accountant=CentralLimitApproximation(Relation.REPLACE_ONE)
        ).answer(VOTES),
        lambda: ConfidentGNMax(math.nan, 5, 5, teachers=10),
        lambda: ConfidentGNMax(True, 5, 5, teachers=10),
        lambda: ConfidentGNMax(10**400, 5, 5, teachers=10),
        lambda: ConfidentGNMax(10.5, 5, 5, teachers=10),
        lambda: GNMax(10**400, teachers=10),
        lambda: ConfidentGNMax(5, -1, 5, teachers=10),
        lambda: ConfidentGNMax(5, 5, 5, teachers=10).answer(VOTES, most=-1),
        lambda: GNMax(5, teachers=10).get_epsilon_data_dependent(1.0),
        lambda: partition(3, 4, np.random.default_rng()),
        lambda: partition(3, 0, np.random.default_rng()),
        lambda: count_votes([[0.0]], 2),
        lambda: count_votes([[2]], 2),
        lambda: count_votes([0, 1], 2),
    ],
)
def test_bad_parameters_are_refused(make: Any) -> None:
    with pytest.raises(InvalidInput):
        make()
