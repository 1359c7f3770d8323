"""The worth of a looser level against its formulas, finite differences and simulated people."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from hearsay_server.surveys import catalogue
from ldp import InvalidInput
from ldp.planning.value import Levels, Menu, People, best, best_alone, posted

EPSILONS = (0.5, 1.0, 2.0, 4.0)
COUNTS = np.array([4000, 3000, 2000, 1000])
HIGHEST = (0.4, 0.3, 0.2, 0.1)


def variance(k: int, epsilon: float) -> float:
    """The total variance of one report, if all k values are equally frequent."""
    mechanism = catalogue.categorical("auto", k, epsilon)
    return float(np.sum(mechanism.variance(np.full(k, 1 / k), 1)))


@pytest.fixture(scope="module")
def eight() -> Levels:
    return Levels(EPSILONS, [variance(8, epsilon) for epsilon in EPSILONS])


@pytest.mark.parametrize(
    ("k", "worth", "plain"),
    [
        (2, (0.072, 0.281, 1, 2.716, 3.837, 4.352, 4.636), 4.68),
        (8, (0.057, 0.236, 1, 5.095, 12.83, 19.57, 24.84), 25.84),
    ],
)
def test_one_respondent_is_worth_so_many_at_epsilon_1(
    k: int, worth: tuple[float, ...], plain: float
) -> None:
    epsilons = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0)
    levels = Levels(epsilons, [variance(k, epsilon) for epsilon in epsilons])
    found = levels.in_respondents(np.ones(7), reference=2)
    assert found == pytest.approx(worth, rel=1e-3, abs=6e-4)
    assert variance(k, 1.0) / (1 - 1 / k) == pytest.approx(plain, rel=1e-3)  # without privacy


def test_the_example_of_four_levels(eight: Levels) -> None:
    assert eight.variance(COUNTS) == pytest.approx(6.710e-4, rel=1e-3)
    assert eight.shares(COUNTS) == pytest.approx([0.028, 0.089, 0.302, 0.581], abs=6e-4)
    assert eight.one_more(COUNTS)[2] == pytest.approx(1.0145e-7, rel=1e-4)


def test_one_more_is_the_difference_that_one_more_makes(eight: Levels) -> None:
    two = Levels(EPSILONS, np.column_stack([eight.variances, [9.0, 4.0, 1.0, 0.5]]), [1.0, 3.0])
    more = np.eye(4)
    for levels in (eight, two):
        before = levels.variance(COUNTS)
        found = [before - levels.variance(COUNTS + one) for one in more]
        assert levels.one_more(COUNTS) == pytest.approx(found, rel=2e-3)
        assert levels.shares(COUNTS).sum() == pytest.approx(1)

    def stratified(counts: np.ndarray) -> float:
        return float(counts @ np.ravel(eight.variances) / counts.sum() ** 2)

    found = [stratified(COUNTS) - stratified(COUNTS + one) for one in more]
    assert eight.one_more_stratified(COUNTS) == pytest.approx(found, rel=2e-3)
    assert eight.one_more_stratified(COUNTS)[0] < 0


def test_prices_are_in_proportion_and_cost_the_budget(eight: Levels) -> None:
    prices = eight.prices(COUNTS, 500.0)
    assert prices @ COUNTS == pytest.approx(500)
    assert prices / prices[1] == pytest.approx(eight.in_respondents(COUNTS, 1))


def test_the_model_chooses_as_simulated_people_do(eight: Levels) -> None:
    """Each of 200,000 looks at every level up to the loosest that they accept."""
    generator = np.random.default_rng(3)
    n = 200_000
    highest = generator.choice(4, size=n, p=HIGHEST)
    costs = 0.7 * np.exp(1.3 * generator.standard_normal(n))
    people = People(HIGHEST, 0.7, 1.3)
    for prices in ([0.1, 0.4, 1.2, 4.0], [0.5, 0.4, 3.0, 3.1], [0, 1, 0, 2], [0.5, 1, 2, 4]):
        gain = np.array(prices) - costs[:, None] * np.array(EPSILONS)
        gain[np.arange(4) > highest[:, None]] = -np.inf
        taken = np.where(gain.max(axis=1) > 0, gain.argmax(axis=1), 4)
        found = np.bincount(taken, minlength=5)[:4] / n
        assert people.chosen(EPSILONS, prices) == pytest.approx(found, abs=0.004)


def test_prices_by_information_come_near_the_best_menu(eight: Levels) -> None:
    """The figures of 4,000 simulated people vary by a few percent; these are exact."""
    people = People(HIGHEST, 1.0, 1.0)

    def information(menu: Menu) -> float:
        assert menu.spent == pytest.approx(0.3)
        return 1 / menu.variance

    by_information = information(posted(eight, people, eight.one_more(np.ones(4)), 0.3))
    searched = information(best(eight, people, 0.3))
    assert by_information == pytest.approx(0.0598, abs=5e-5)
    assert searched == pytest.approx(0.0601, abs=5e-5)
    assert information(best_alone(eight, people, 0.3)) == pytest.approx(0.0513, abs=5e-5)
    assert information(posted(eight, people, EPSILONS, 0.3)) == pytest.approx(0.0513, abs=5e-5)
    for seed in range(20):  # no menu drawn at random is better
        drawn = np.exp(np.random.default_rng(seed).normal(np.log(EPSILONS), 1.0))
        assert information(posted(eight, people, drawn, 0.3)) <= searched * (1 + 1e-9)


@pytest.mark.slow
def test_without_limits_one_price_for_the_loosest_level_is_best(eight: Levels) -> None:
    people = People((0, 0, 0, 1), 1.0, 1.0)
    alone, searched = best_alone(eight, people, 0.3), best(eight, people, 0.3)
    assert 1 / alone.variance == pytest.approx(0.1595, abs=3e-4)
    assert alone.variance == pytest.approx(searched.variance, rel=4e-3)
    assert alone.prices[:3] == pytest.approx(0)


@pytest.mark.slow
def test_the_figures_of_4000_people_are_a_draw_of_these(eight: Levels) -> None:
    """By information .0579, one level .0465, by epsilon .0512 were of one draw of people."""
    people, sums = People(HIGHEST, 1.0, 1.0), []
    direction = {
        "information": eight.one_more(np.ones(4)),
        "alone": np.eye(4)[3],
        "epsilon": np.array(EPSILONS),
    }
    menus = {name: posted(eight, people, at, 0.3) for name, at in direction.items()}
    for seed in range(300):
        generator = np.random.default_rng(seed)
        highest = generator.choice(4, size=4000, p=HIGHEST)
        costs = np.exp(generator.standard_normal(4000))
        row = []
        for menu in menus.values():
            gain = menu.prices - costs[:, None] * np.array(EPSILONS)
            gain[np.arange(4) > highest[:, None]] = -np.inf
            taken = np.where(gain.max(axis=1) > 0, gain.argmax(axis=1), 4)
            row.append(np.append(eight.information[:, 0], 0.0)[taken].mean())
        sums.append(row)
    means, errors = np.mean(sums, axis=0), np.std(sums, axis=0)
    assert means == pytest.approx([1 / menu.variance for menu in menus.values()], rel=0.01)
    assert (np.abs(means - [0.0579, 0.0465, 0.0512]) < 2 * errors).all()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Levels([1.0], [2.0]), "at least two levels, got 1: prices for one level only"),
        (lambda: Levels([2.0, 1.0], [1.0, 2.0]), "in order of epsilon"),
        (lambda: Levels([1.0, 1.0], [1.0, 2.0]), "levels must differ in epsilon"),
        (lambda: best_alone(Levels([1, 2], [4, 1]), People([1, 0], 1, 1), 1e300), "out of all"),
        (lambda: Levels([1.0, 2.0], [1.0]), "2 levels have as many variances"),
        (lambda: Levels([1.0, 2.0], [1.0, 0.0]), "variances must be finite and > 0"),
        (lambda: Levels([1.0, 2.0], [1.0, 2.0], [1.0, 1.0]), "1 questions have as many weights"),
        (lambda: Levels([1.0, math.nan], [1.0, 2.0]), "epsilon must be finite"),
        (lambda: Levels([1.0, 2.0], [2.0, 1.0]).variance([1]), "as many numbers of respondents"),
        (lambda: Levels([1.0, 2.0], [2.0, 1.0]).variance([0, 0]), "some level has them"),
        (lambda: Levels([1.0, 2.0], [2.0, 1.0]).variance([-1, 2]), "at least 0"),
        (lambda: Levels([1.0, 2.0], [2.0, 1.0]).prices([1, 1], 0), "a budget must be finite"),
        (lambda: Levels([1.0, 2.0], [2.0, 1.0]).in_respondents([1, 1], 2), "levels 0..1, got 2"),
        (lambda: People([0.8, 0.4], 1, 1), "sum to at most one"),
        (lambda: People([0.5, 0.5], 0, 1), "median cost of epsilon must be finite"),
        (lambda: People([0.5, 0.5], 1, 1).chosen([1, 2, 3], [1, 2, 3]), "as many prices"),
        (lambda: People([0.5, 0.5], 1, 1).chosen([1, 2], [1, -1]), "at least 0"),
    ],
)
def test_bad_input_is_refused(make: Callable[[], object], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        make()


def test_a_menu_without_a_level_that_people_accept_is_refused() -> None:
    levels, people = Levels([1.0, 2.0], [2.0, 1.0]), People([1.0, 0.0], 1.0, 1.0)
    with pytest.raises(InvalidInput, match="above 0 for some level that people accept"):
        posted(levels, people, [0, 1], 1.0)
