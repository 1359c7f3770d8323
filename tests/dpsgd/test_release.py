"""Statistics of arrays: exact noise, honest sensitivities, accounted for before they are seen."""

import itertools
import math
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from dpsgd import release
from dpsgd.accounting import (
    Accountant,
    CentralLimitApproximation,
    GDPAccountant,
    RDPAccountant,
    Relation,
)
from ldp import Coins, InvalidInput
from ldp.testing import SeededCoins

ROWS = np.array([[1.0, -3.0], [np.nan, 8.0], [np.inf, -np.inf], [0.5, 1e308]])
BOX = (np.array([0.0, -4.0]), np.array([1.0, 4.0]))


def rdp(relation: Relation = Relation.ADD_REMOVE) -> Accountant:
    return RDPAccountant(relation)


CALLS: dict[str, Callable[..., release.Release]] = {
    "count": lambda **how: release.count([True, False], **{"epsilon": 0.5} | how),
    "bounds": lambda **how: release.bounds(ROWS, **{"epsilon": 0.5} | how),
    "select": lambda **how: release.select([0.0, 3.0], **{"epsilon": 0.5} | how),
    "mean": lambda **how: release.mean(ROWS, **{"bounds": BOX, "noise_multiplier": 2.0} | how),
    "covariance": lambda **how: release.covariance(
        ROWS, **{"bounds": BOX, "noise_multiplier": 2.0} | how
    ),
}
every = pytest.mark.parametrize("name", CALLS)


class NoCoins(Coins):
    def _bytes(self, count: int) -> bytes:
        raise RuntimeError("drawn")


@every
def test_it_is_accounted_for_before_a_coin_is_drawn(name: str) -> None:
    accountant = rdp()
    with pytest.raises(RuntimeError, match="drawn"):
        CALLS[name](accountant=accountant, coins=NoCoins())
    assert 0 < accountant.get_epsilon(1e-5) == after_steps_or(name).get_epsilon(1e-5)


def after_steps_or(name: str) -> Accountant:
    accountant = rdp()
    CALLS[name](accountant=accountant)
    return accountant


@every
@pytest.mark.parametrize(
    "change",
    [
        {"accountant": None},
        {"accountant": CentralLimitApproximation(Relation.ADD_REMOVE)},
        {"epsilon": 0.0, "noise_multiplier": -1.0},
        {"epsilon": math.nan, "noise_multiplier": math.nan},
    ],
    ids=["none", "approximation", "zero", "nan"],
)
def test_what_cannot_be_released_is_refused_and_not_recorded(
    name: str, change: dict[str, Any]
) -> None:
    accountant = rdp()
    used = "epsilon" if name in ("count", "bounds", "select") else "noise_multiplier"
    how = {key: value for key, value in change.items() if key in (used, "accountant")}
    with pytest.raises(InvalidInput):
        CALLS[name](**{"accountant": accountant} | how)
    assert accountant.history == ()


@pytest.mark.parametrize(
    "refused",
    [
        lambda a: release.count([1, 2], epsilon=1.0, accountant=a),
        lambda a: release.bounds(ROWS, epsilon=1.0, accountant=a, edges=[1.0, 1.0]),
        lambda a: release.bounds([], epsilon=1.0, accountant=a),
        lambda a: release.bounds(["x"], epsilon=1.0, accountant=a),
        lambda a: release.mean(ROWS, bounds=(1, 1), noise_multiplier=1.0, accountant=a),
        lambda a: release.mean(ROWS, bounds=(0, math.inf), noise_multiplier=1.0, accountant=a),
        lambda a: release.mean(ROWS, bounds=([0] * 3, 1), noise_multiplier=1.0, accountant=a),
        lambda a: release.select([1.0, math.nan], epsilon=1.0, accountant=a),
        lambda a: release.select([10**400], epsilon=1.0, accountant=a),
        lambda a: release.select([1.0], epsilon=1.0, accountant=a, sensitivity=0),
    ],
    ids=["type", "edges", "empty", "words", "equal", "infinite", "columns", "nan", "huge", "zero"],
)
def test_bad_values_are_refused(refused: Callable[[Accountant], object]) -> None:
    accountant = rdp()
    with pytest.raises(InvalidInput):
        refused(accountant)
    assert accountant.history == ()


@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE_ONE])
@pytest.mark.parametrize("name", ["mean", "covariance"])
def test_a_row_moves_the_integers_by_what_the_noise_is_for(
    name: str, relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole release, before noise, of neighbours: corners of the box, beyond it, and blanks."""
    summed: list[list[int]] = []
    variances = set()

    def integers(variance: int, coins: Coins) -> int:
        variances.add(variance)
        return 0

    def moments(*args: Any) -> Any:
        found, error = plain(*args)
        summed.append([round(mean * (len(args[0]) << 60)) for mean in found])
        return found, error

    plain = release._means
    monkeypatch.setattr(release, "discrete_gaussian", integers)
    monkeypatch.setattr(release, "_means", moments)
    corners = [*itertools.product((0.0, 1.0, np.inf), (-4.0, 4.0)), (np.nan, np.nan), (0.3, 1.7)]
    rest = np.array([[0.2, 3.0], [0.9, -1.0]])
    for row in corners:
        getattr(release, name)(
            np.vstack([rest, row]), bounds=BOX, noise_multiplier=0.5, accountant=rdp(relation)
        )
    (variance,) = variances
    blank = summed[corners.index((np.nan, np.nan))]
    others = summed if relation is Relation.REPLACE_ONE else [blank]
    moved = max(math.dist(one, other) for one in summed for other in others)
    allowed = math.sqrt(variance) / 0.5 * relation.sensitivity
    assert moved <= allowed
    assert moved > (0.999 if name == "mean" or others == [blank] else 0.6) * allowed


@pytest.mark.parametrize(
    ("draw", "weight"),
    [
        (lambda c: release.discrete_laplace(Fraction(0.7), c), lambda k: math.exp(-0.7 * abs(k))),
        (lambda c: release.discrete_gaussian(5, c), lambda k: math.exp(-k * k / 10)),
    ],
    ids=["laplace", "gaussian"],
)
def test_noise_has_the_distribution_that_it_is_named_for(
    draw: Callable[[Coins], int], weight: Callable[[int], float]
) -> None:
    coins, values = SeededCoins(1), range(-6, 7)
    drawn = [min(max(draw(coins), -6), 6) for _ in range(4000)]
    shares = {k: weight(k) for k in range(-60, 61)}
    whole = sum(shares.values())
    expected = [sum(w for k, w in shares.items() if min(max(k, -6), 6) == v) for v in values]
    observed = [drawn.count(v) for v in values]
    assert chisquare(observed, np.array(expected) / whole * len(drawn)).pvalue > 1e-3


def test_a_choice_keeps_epsilon_exactly_and_is_drawn_as_it_is_proved() -> None:
    """Permute-and-flip by enumeration of the orders."""

    def chances(scores: list[float]) -> list[float]:
        total = [0.0] * len(scores)
        for order in itertools.permutations(range(len(scores))):
            left = 1.0 / math.factorial(len(scores))
            for k in order:
                flip = math.exp((scores[k] - max(scores)) / 2)  # epsilon 1, sensitivity 1
                total[k] += left * flip
                left *= 1 - flip
        return total

    scores = [0.0, 2.0, 1.5, -1.0]
    expected = chances(scores)
    for moves in itertools.product((-1.0, 0.0, 1.0), repeat=4):
        moved = chances([s + m for s, m in zip(scores, moves, strict=True)])
        assert max(abs(math.log(p / q)) for p, q in zip(expected, moved, strict=True)) <= 1 + 1e-9
    accountant, coins = rdp(), SeededCoins(3)
    drawn = [
        release.select(scores, epsilon=1.0, accountant=accountant, coins=coins).value
        for _ in range(2000)
    ]
    observed = [drawn.count(k) for k in range(4)]
    assert chisquare(observed, np.array(expected) * len(drawn)).pvalue > 1e-3


@pytest.mark.parametrize("kind", [list, np.array, lambda pair: [np.int64(k) for k in pair]])
def test_scores_beyond_doubles_are_taken_as_they_are(kind: Any, monkeypatch: Any) -> None:
    tried: list[Fraction] = []
    monkeypatch.setattr(release, "survives", lambda gamma, _: tried.append(gamma) or not gamma)
    for _ in range(20):
        release.select(kind([2**53 + 2, 2**53 + 3]), epsilon=1.0, accountant=rdp())
    assert set(tried) == {0, Fraction(1, 2)}


def test_errors_are_those_that_are_stated() -> None:
    coins, rng = SeededCoins(5), np.random.default_rng(1)
    values = rng.uniform(0, 1, (50, 2))
    how: dict[str, Any] = {"bounds": (-1, 2), "noise_multiplier": 1.0, "coins": coins}
    exact = np.concatenate([values.mean(0), np.cov(values.T, bias=True).ravel(), [20]])
    found = []
    for _ in range(300):
        parts = [
            release.mean(values, accountant=rdp(), **how),
            release.covariance(values, accountant=rdp(), **how),
            release.count([True] * 20, epsilon=0.5, accountant=rdp(), coins=coins),
        ]
        value = np.concatenate([np.ravel(part.value) for part in parts])
        found.append((value - exact) / np.concatenate([np.ravel(p.std_error) for p in parts]))
    scores = np.array(found)
    assert np.abs(scores.mean(0)).max() < 0.2
    assert np.abs(scores.std(0) - 1).max() < 0.15


def test_the_guides_releases_run_as_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "accounting.md").read_text("utf-8")
    (code,) = re.findall(r"<!-- releases -->\n```python\n(.*?)```", guide, re.S)
    names: dict[str, Any] = {}
    exec(compile(code, "releases", "exec"), names)
    assert capsys.readouterr().out.endswith(", 0.65\n")
    assert names["best"].value in range(3)
    truth, released = names["people"].mean(0), names["mean"]
    assert (np.abs(released.value - truth) < 6 * released.std_error).all()


def test_bounds_hold_what_is_there_and_no_more() -> None:
    values = np.column_stack([np.linspace(20, 60, 2000), np.full(2000, -0.3)])
    values[0] = [1e9, np.nan]
    found = release.bounds(values, epsilon=2.0, accountant=rdp(), coins=SeededCoins(2))
    np.testing.assert_array_equal(found.value, [[16.0, -0.5], [64.0, -0.25]])
    accountant = rdp(Relation.REPLACE_ONE)
    known = {"edges": [0, 50, 100, 200], "coins": SeededCoins(2)}
    one = release.bounds(values[:, 0], epsilon=2.0, accountant=accountant, **known)
    assert one.value == (0.0, 100.0)
    few = release.bounds([5.0], epsilon=1e-3, accountant=accountant)
    assert few.value[0] < few.value[1]


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("columns", [1, 2])
def test_a_row_of_bounds_moves_the_counts_by_what_the_noise_is_for(
    columns: int, relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = list[Fraction]()

    def without_noise(rate: Fraction, _: Coins) -> int:
        rates.append(rate)
        return 0

    monkeypatch.setattr(release, "discrete_laplace", without_noise)
    accountant = rdp(relation)
    release.bounds(np.ones((3, columns)), epsilon=1.0, accountant=accountant, edges=[0, 1, 2, 3])
    (event,) = accountant.history
    assert (event.epsilon, event.steps) == (1.0 / columns, columns)
    # A replaced row leaves one bin of a column, and is in another one.
    moved = 2 if relation is Relation.REPLACE_ONE else 1
    assert len(rates) == 3 * columns
    assert {rate * moved for rate in rates} == {Fraction(event.epsilon)}


def test_a_column_alone_is_a_number_and_a_replaced_row_counts_twice() -> None:
    accountant = GDPAccountant(Relation.REPLACE_ONE)
    found = release.mean([1.0, 2.0], bounds=(0, 4), noise_multiplier=3.0, accountant=accountant)
    assert found.value.shape == found.std_error.shape == ()
    assert found.std_error == pytest.approx(3.0 * 2 / 2)
    (event,) = accountant.history
    assert event.noise_per_difference(accountant.relation) == 1.5
