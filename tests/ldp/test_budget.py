"""Budgets over attributes: exact accounts, published crossovers, optimal shares."""

from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize

from ldp import KRR, Channel, InvalidInput, UnaryEncoding
from ldp.core.exact import ONE, float_above
from ldp.planning.budget import Attribute, Budget, decide, sample, split, split_by_weight
from ldp.testing import SeededCoins


def variance(k: int, epsilon: float) -> float:
    """Of one frequency at uniform truth: the better of k-RR and OUE, as the numbers assume."""
    oracles = KRR(k, epsilon), UnaryEncoding(k, epsilon)
    return min(float(oracle.variance(1 / k, 1)) for oracle in oracles)


def attribute(k: int, importance: float = 1.0, cap: float = 32.0) -> Attribute:
    return Attribute(f"of {k}", lambda epsilon: variance(k, epsilon), importance, cap)


MIXED = (attribute(2, 3.0, cap=0.5), attribute(10), attribute(100, 0.1, cap=2.0))


def selections(budget: Budget) -> dict[tuple[int, ...], int]:
    """The exact chance of every set of attributes, over 2**64."""
    ends = sorted({*budget._starts, ONE})
    found: dict[tuple[int, ...], int] = {}
    for start, end in pairwise(ends):
        chosen = tuple(budget._selected(start))
        found[chosen] = found.get(chosen, 0) + end - start
    return found


def record_channel(budget: Budget, sizes: tuple[int, ...]) -> Channel:
    """The channel of a whole record of k-RR attributes, with what is left out in the clear."""
    mechanisms = [KRR(k, e) if e else None for k, e in zip(sizes, budget.epsilons, strict=True)]
    outputs, columns = [], []
    for chosen, chance in selections(budget).items():
        for codes in product(*(range(sizes[j]) for j in chosen)):
            column = []
            for record in product(*(range(k) for k in sizes)):
                likelihood = Fraction(chance, ONE)
                for j, code in zip(chosen, codes, strict=True):
                    p, q = mechanisms[j].support  # type: ignore[union-attr]
                    likelihood *= p if record[j] == code else q
                column.append(likelihood)
            outputs.append((chosen, codes))
            columns.append(tuple(column))
    return Channel(tuple(outputs), tuple(zip(*columns, strict=True)))


levels = st.sampled_from([0.1, 0.5, 1.0, 2.0, 3.7])


@given(
    st.lists(st.tuples(levels, st.floats(0.01, 100)), min_size=2, max_size=3),
    st.integers(1, 3),
)
@settings(max_examples=40, deadline=None)
def test_the_whole_record_enumerated_spends_what_the_account_says(
    parts: list[tuple[float, float]], size: int
) -> None:
    attributes = [Attribute("a", lambda e, w=weight: w / e**2) for _, weight in parts]
    (budget,) = sample([1.0], attributes, min(size, len(parts)))
    for j, (epsilon, _) in enumerate(parts):  # a level of its own for each attribute
        budget = budget.with_epsilon(j, epsilon)
    channel = record_channel(budget, (2, 3, 2)[: len(parts)])
    assert channel.satisfies(budget.record_epsilon)
    assert channel.epsilon >= 0.999999 * budget.record_epsilon


def test_a_split_budget_spends_its_sum_and_a_sampled_one_its_maximum() -> None:
    epsilons = (0.1, 0.2, 0.3)
    assert Budget(epsilons, (ONE,) * 3).record_epsilon == pytest.approx(0.6, abs=1e-15)
    assert Fraction(Budget(epsilons, (ONE,) * 3).record_epsilon) >= sum(map(Fraction, epsilons))
    assert Budget(epsilons, (ONE // 4, ONE // 4, ONE // 2)).record_epsilon == 0.3


def test_what_is_withheld_is_not_spent() -> None:
    assert split_by_weight(1.0, [2, 1, 1]).epsilon_of([1, 2]) == 0.5
    sampled = Budget((1.0, 2.0, 4.0), (ONE // 2, ONE // 4, ONE // 4))
    assert sampled.epsilon_of([0, 1]) == 2.0
    assert sampled.epsilon_of([]) == 0.0
    with pytest.raises(InvalidInput, match=r"attributes are 0..2, got \[3\]"):
        sampled.epsilon_of([3])


@given(st.lists(st.tuples(levels, st.integers(0, 8)), min_size=1, max_size=6), st.data())
@settings(max_examples=60, deadline=None)
def test_the_most_that_is_spent_is_that_of_the_dearest_selection(
    parts: list[tuple[float, int]], data: st.DataObject
) -> None:
    rest = -sum(eighths for _, eighths in parts) % 8
    chances = (*(eighths * ONE // 8 for _, eighths in parts), rest * ONE // 8)
    budget = Budget((*(epsilon for epsilon, _ in parts), 1.0), chances)
    some = data.draw(st.sets(st.integers(0, len(parts))))
    exact = max(
        sum((Fraction(budget.epsilons[j]) for j in chosen if j in some), Fraction(0))
        for chosen in selections(budget)
    )
    assert budget.epsilon_of(some) == float_above(exact)


def test_levels_share_their_chances() -> None:
    attributes = [Attribute("a", lambda e: 1 / e**2), Attribute("b", lambda e: 5 / e)]
    low, high = sample([0.5, 6.0], attributes)
    assert low.chances == high.chances
    assert (low.epsilons, high.epsilons) == ((0.5, 0.5), (6.0, 6.0))
    (alone,) = sample([0.5], attributes)
    assert alone.chances != low.chances  # what is best for one level is not for both


@given(
    st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=8),
    st.integers(1, 8),
)
@settings(deadline=None)
def test_chances_are_exact_integers_that_sum_to_the_number_reported(
    costs: list[float], size: int
) -> None:
    size = min(size, len(costs))
    attributes = [Attribute("a", lambda e, c=cost: c) for cost in costs]
    (budget,) = sample([1.0], attributes, size)
    assert sum(budget.chances) == size * ONE
    assert budget.reported == size
    assert all(len(chosen) == size for chosen in selections(budget))
    below = [(c, root) for c, root in zip(budget.chances, np.sqrt(costs), strict=True) if c < ONE]
    for chance, root in below:  # in proportion, up to rounding
        assert chance * below[0][1] == pytest.approx(below[0][0] * root, rel=1e-9)


@pytest.mark.parametrize("size", [1, 2])
def test_records_draw_each_attribute_with_its_chance(size: int, coins: SeededCoins) -> None:
    (budget,) = sample([1.0], MIXED, size)
    drawn = budget.draw_many(200_000, coins)
    assert set(drawn.sum(axis=1)) == {size}
    chances = np.array(budget.chances) / ONE
    error = np.sqrt(chances * (1 - chances) / 200_000)
    assert np.all(np.abs(drawn.mean(axis=0) - chances) <= 4 * error)


def test_one_record_and_many_select_alike(coins: SeededCoins) -> None:
    (budget,) = sample([1.0], MIXED, 2)
    counts = np.zeros(3)
    for _ in range(4000):
        counts[list(budget.draw(coins))] += 1
    chances = np.array(budget.chances) / ONE
    assert counts / 4000 == pytest.approx(chances, abs=4 * 0.5 / np.sqrt(4000))


# The epsilon from which splitting over d attributes is better; with k = 100 and d = 10 it is
# 38.6, more than we offer.
@pytest.mark.parametrize(
    ("k", "d", "crossover"),
    [
        (2, 2, 3.05),
        (2, 5, 4.7),
        (2, 10, 6.5),
        (10, 2, 6.3),
        (10, 5, 11.0),
        (10, 10, 17.3),
        (100, 2, 10.95),
        (100, 5, 22.0),
    ],
)
def test_sampling_one_beats_splitting_below_the_published_epsilon(
    k: int, d: int, crossover: float
) -> None:
    attributes = [attribute(k)] * d

    def advantage(epsilon: float) -> float:
        whole, (one,) = split(epsilon, attributes), sample([epsilon], attributes)
        return whole.variance(attributes) - one.variance(attributes)

    assert brentq(advantage, 1.0, 30.0, xtol=1e-3) == pytest.approx(crossover, rel=0.01)


@pytest.mark.parametrize(("epsilon", "whole", "one"), [(1.0, 399.9, 38.7), (4.0, 24.9, 1.27)])
def test_the_published_variances_of_ten_attributes(
    epsilon: float, whole: float, one: float
) -> None:
    attributes = [attribute(10)] * 10
    assert split(epsilon, attributes).variance(attributes) / 10 == pytest.approx(whole, rel=2e-3)
    assert sample([epsilon], attributes)[0].variance(attributes) / 10 == pytest.approx(
        one, rel=3e-3
    )


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0, 8.0])
def test_a_split_is_as_good_as_a_general_solver_finds(epsilon: float) -> None:
    def cost(epsilons: np.ndarray) -> float:
        return sum(
            a.importance * a.variance(float(e)) for a, e in zip(MIXED, epsilons, strict=True)
        )

    found = minimize(
        cost,
        [min(a.cap, epsilon / 3) * 0.9 for a in MIXED],
        bounds=[(1e-3, a.cap) for a in MIXED],
        constraints={"type": "ineq", "fun": lambda e: epsilon - e.sum()},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    ours = split(epsilon, MIXED)
    assert ours.variance(MIXED) <= found.fun * (1 + 1e-6)
    assert sum(map(Fraction, ours.epsilons)) <= Fraction(epsilon)
    assert all(e <= a.cap for e, a in zip(ours.epsilons, MIXED, strict=True))


@pytest.mark.parametrize("size", [1, 2])
def test_no_other_chances_have_less_variance(size: int) -> None:
    (best,) = sample([1.0], MIXED, size)
    least = best.variance(MIXED)
    rng = np.random.default_rng(4)
    for _ in range(100):
        change = rng.normal(size=3) * ONE / 100
        change -= change.mean()
        chances = [int(c) + int(x) for c, x in zip(best.chances, change, strict=True)]
        chances[0] += size * ONE - sum(chances)
        if max(chances) <= ONE:
            assert Budget(best.epsilons, tuple(chances)).variance(MIXED) >= least


def test_weights_share_out_epsilon_and_caps_pass_on_what_they_keep() -> None:
    assert split_by_weight(1.0, [2, 1, 1]).epsilons == (0.5, 0.25, 0.25)
    assert split_by_weight(1.0, [2, 1, 1], [0.25, 32, 32]).epsilons == (0.25, 0.375, 0.375)
    assert split_by_weight(8.0, [2, 1, 1], [1, 2, 2]).epsilons == (1, 2, 2)


def test_weighted_shares_never_exceed_epsilon() -> None:
    budget = split_by_weight(0.7, [1, 1, 1])
    assert sum(map(Fraction, budget.epsilons)) <= Fraction(0.7)
    assert budget.record_epsilon <= 0.7


def test_the_decision_is_the_least_predicted_variance() -> None:
    attributes = [attribute(10)] * 10
    small, large = decide([1.0], attributes), decide([12.0], attributes)
    assert (small.budgets[0].reported, large.budgets[0].reported) == (1, 3)
    assert len(small.candidates) == 10
    label, variance, _ = small.candidates[0]
    assert (label, round(variance, 3)) == ("1 of 10 attributes, drawn for each record", 387.269)
    variances = [variance for _, variance, _ in small.candidates]
    assert variances == sorted(variances)


def test_levels_have_budgets_of_one_kind() -> None:
    decision = decide([1.0, 12.0], [attribute(10)] * 10)
    assert {budget.reported for budget in decision.budgets} == {1}
    for level in range(2):  # and the kind is the one of least average variance
        assert (
            decision.budgets[level].variance([attribute(10)] * 10) <= 2 * decision.candidates[0][1]
        )


def test_one_attribute_gets_everything() -> None:
    assert decide([1.0], [attribute(4)]).budgets == (Budget((1.0,), (ONE,)),)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Budget((1.0,), (ONE, ONE)), "one epsilon and one chance per attribute"),
        (lambda: Budget((1.0, 1.0), (ONE, ONE // 2)), "sum to a multiple of 2"),
        (lambda: Budget((1.0, 1.0), (ONE + 1, ONE - 1)), "a chance is an integer in 0..2"),
        (lambda: Budget((0.0, 1.0), (ONE, ONE)), "epsilon must be finite and > 0, got 0.0"),
        (lambda: split_by_weight(1.0, [0.0, 0.0]), "weights must be finite and > 0"),
        (lambda: split_by_weight(1.0, []), "weights must be finite and > 0"),
        (lambda: split_by_weight(1.0, [1, 2], [1]), "2 weights have as many caps, got 1"),
        (lambda: split_by_weight(-1.0, [1.0]), "epsilon must be finite and > 0"),
        (lambda: split(1.0, []), "at least one attribute"),
        (lambda: sample([1.0], [attribute(2)], 2), r"size must lie in 1..1, got 2"),
        (lambda: attribute(2, importance=0.0), "of 2: importance must be finite and > 0"),
        (lambda: attribute(2, cap=-1.0), "of 2: cap must be finite and > 0"),
        (lambda: sample([1.0], [Attribute("x", lambda e: 0.0)]), "x: a variance must be finite"),
        (
            lambda: sample([1.0], [attribute(2), attribute(2, importance=1e-45)]),
            "of 2: its importance 1e-45 is so small",
        ),
        (
            lambda: sample([1.0], [attribute(2)])[0].with_epsilon(-1, 1.0),
            r"attributes are 0..0, got",
        ),
    ],
)
def test_an_impossible_budget_is_refused(make: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()  # type: ignore[operator]
