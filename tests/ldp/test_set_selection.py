"""Sets of items: privacy between sets of any sizes, the best sizes of a report, refusals."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ldp import Coins, InvalidInput, SetBits, SetSelection, best_for_sets, build
from ldp.core.exact import ONE
from ldp.mechanisms.sets.choice import bits_variance, selection_variance
from ldp.mechanisms.sets.set_selection import best_sizes
from ldp.testing import SeededCoins

# items, most, epsilon, variance of the best sizes, (size, meet), variance of bits
TABLE = [
    (6, 3, 1.0, 6.1615, (1, 1), 6.6490),
    (6, 3, 4.0, 0.4906, (2, 2), 1.2390),
    (8, 4, 0.5, 37.0955, (1, 1), 32.8416),
    (8, 4, 4.0, 0.6661, (2, 2), 1.6520),
    (20, 5, 1.0, 13.3212, (1, 1), 20.60),
    (20, 10, 4.0, 1.7341, (2, 2), 4.1301),
    (10, 9, 1.0, 19.634, (1, 1), 11.6817),
    (100, 5, 0.5, 86.0147, (7, 1), 394.21),
    (100, 5, 1.0, 18.7855, (5, 1), 94.50),
    (100, 10, 2.0, 5.5781, (1, 1), 22.85),
    (256, 8, 2.0, 5.5519, (4, 1), 50.28),
    (1000, 5, 1.0, 20.5135, (52, 1), 923.17),
    (1000, 10, 2.0, 7.4121, (11, 1), 185.99),
]


@pytest.mark.parametrize(("items", "most", "epsilon", "least", "sizes", "bits"), TABLE)
def test_the_best_sizes_have_these_variances(
    items: int, most: int, epsilon: float, least: float, sizes: tuple[int, int], bits: float
) -> None:
    chosen = SetSelection(items, epsilon, most)
    planned = most / (2 * items)
    assert (chosen.size, chosen.meet) == sizes
    assert chosen.variance(planned, 1) == pytest.approx(least, rel=2e-4)
    assert selection_variance(items, most, epsilon) == pytest.approx(least, rel=2e-4)
    assert SetBits(items, epsilon).variance(planned, 1) == pytest.approx(bits, rel=4e-4)
    assert bits_variance(items, most, epsilon) == pytest.approx(bits, rel=4e-4)
    better = SetBits if bits < least else SetSelection
    assert type(best_for_sets(items, most, epsilon)) is better


@pytest.mark.parametrize(
    ("items", "most", "epsilon", "privset"),
    [(6, 3, 4.0, 0.7789), (8, 4, 4.0, 1.0626), (20, 10, 4.0, 2.7648)],
)
def test_a_threshold_of_two_beats_one(
    items: int, most: int, epsilon: float, privset: float
) -> None:
    found = min(
        float(SetSelection(items, epsilon, most, size, 1).variance(most / (2 * items), 1))
        for size in range(1, items)
    )
    assert found == pytest.approx(privset, rel=2e-4)


@pytest.mark.parametrize(
    ("items", "most", "epsilon", "psfo"),
    [(100, 5, 0.5, 258.93), (100, 5, 1.0, 39.757), (1000, 10, 2.0, 27.122)],
)
def test_more_members_beat_one(items: int, most: int, epsilon: float, psfo: float) -> None:
    one = SetSelection(items, epsilon, most, size=1, meet=1)
    assert one.variance(most / (2 * items), 1) == pytest.approx(psfo, rel=2e-4)


def test_chances_and_integers_are_those_of_the_formulas() -> None:
    three = SetSelection(10, 1.0, 4, size=3, meet=1)
    p, q = three.support
    assert (float(p), float(q)) == pytest.approx((0.270697, 0.191721), abs=5e-7)
    assert three.include / ONE == pytest.approx(0.846794, abs=5e-7)
    assert three.pair_support == pytest.approx((0.024096, 0.041646, 0.041646), abs=5e-7)
    one = SetSelection(14, 1.0, 8, size=1, meet=1)
    assert (float(one.support[0]), float(one.support[1])) == pytest.approx(
        (0.076044, 0.027975), abs=5e-7
    )
    assert one.include == 11222087400671408797
    assert SetSelection(30, 0.5, 4, size=3, meet=1).include == 8091056298187234610


@pytest.mark.parametrize(
    "mechanism",
    [
        SetSelection(4, 1.0, 2, size=1, meet=1),
        SetSelection(4, 0.5, 3, size=2, meet=1),
        SetSelection(5, 2.0, 2, size=3, meet=2),
        SetSelection(3, 4.0, 3, size=2, meet=2),
        SetSelection(4, 1.0, 4, size=3, meet=3),
        SetSelection(1, 1.0, 1),
        SetBits(4, 1.0),
    ],
    ids=str,
)
def test_no_two_sets_of_any_sizes_are_told_apart_by_more_than_epsilon(
    mechanism: SetSelection | SetBits,
) -> None:
    channel = mechanism.channel()
    assert len(channel.rows) == sum(
        math.comb(mechanism.items, a) for a in range(mechanism.largest + 1)
    )
    for one in channel.rows:
        for other in channel.rows:
            worst = max(x / y for x, y in zip(one, other, strict=True))
            assert worst == 1 if one == other else worst <= channel.worst_ratio
    assert channel.satisfies(mechanism.epsilon)
    assert mechanism.variation == max(
        sum(max(x - y, Fraction(0)) for x, y in zip(channel.rows[0], row, strict=True))
        for row in channel.rows
    )
    assert channel.epsilon == mechanism.realised_epsilon >= 0.999 * mechanism.epsilon


@pytest.mark.parametrize(
    "mechanism",
    [SetSelection(5, 1.0, 2, size=2, meet=1), SetSelection(4, 3.0, 4, size=2, meet=2)],
    ids=str,
)
def test_supports_of_one_and_two_members_are_those_of_the_channel(mechanism: SetSelection) -> None:
    outputs, rows = mechanism.channel().outputs, mechanism.channel().rows
    sets = list(mechanism.sets())
    row = rows[sets.index((0, 1))]
    own = {0, 1, *range(mechanism.items, mechanism.tally_size - 2)}

    def chance(*members: int) -> Fraction:
        return sum(
            (p for p, output in zip(row, outputs, strict=True) if {*members} <= {*output}),
            Fraction(0),
        )

    for member in range(mechanism.tally_size):
        assert chance(member) == mechanism.support[member not in own]
    none, one, two = mechanism.pair_support
    assert float(chance(0, 1)) == pytest.approx(two)
    assert float(chance(1, 2)) == pytest.approx(one)
    assert float(chance(2, 3)) == pytest.approx(none)


def test_the_estimates_of_items_are_unbiased_with_the_covariance_of_the_formula() -> None:
    mechanism = SetSelection(4, 1.0, 2, size=2, meet=1)
    outputs, rows = mechanism.channel().outputs, np.array(mechanism.channel().rows, dtype=float)
    people = np.random.default_rng(5).dirichlet(np.ones(len(rows)))
    members = np.array([[v in output for v in range(6)] for output in outputs], dtype=float)
    has = np.array([[v in own for v in range(4)] for own in mechanism.sets()], dtype=float)
    q, gain = mechanism._rounded_support
    each = (members - q) / gain
    chance = people @ rows
    mean = chance @ each
    assert mean[:4] == pytest.approx(people @ has)
    exact = (each.T * chance) @ each - np.outer(mean, mean)
    f, both = people @ has, (has.T * people) @ has
    assert mechanism.variance(f, 1) == pytest.approx(np.diag(exact)[:4])
    for u, v in ((0, 1), (1, 3)):
        found = mechanism.pair_covariance(f[u], f[v], both[u, v], 1)
        assert float(found) == pytest.approx(exact[u, v])


def test_the_places_of_dummies_tell_a_sets_size() -> None:
    mechanism = SetSelection(6, 1.0, 3)
    filled = mechanism._filled(mechanism._check_sets([[], [5], [2, 0], [1, 3, 4]]))
    assert filled.tolist() == [[6, 7, 8], [5, 6, 7], [0, 2, 6], [1, 3, 4]]


def test_batches_take_lists_and_arrays_alike() -> None:
    mechanism = SetSelection(9, 1.0, 3)
    sets: list[list[int]] = [[], [8], [3, 1], [0, 4, 7]]
    array = np.array([[-1, -1, -1, -1], [8, -1, -1, -1], [-1, 3, 1, -1], [4, -1, 0, 7]])
    assert mechanism._filled(mechanism._check_sets(sets)).tolist() == (
        mechanism._filled(mechanism._check_sets(array)).tolist()
    )
    one, other = (mechanism.randomize_many(x, SeededCoins(4)) for x in (sets, array))
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        ([[0, 0, 1]], "must differ"),
        ([[0, 1, 2, 3]], "at most 3"),
        ([[9, 1, -1]], r"must lie in 0\.\.8"),
        ([[-2, 1, 3]], r"must lie in 0\.\.8"),
        ([[0.0, 1.0, 2.0]], "items are integers"),
        ([[True, False, False]], "items are integers"),
    ],
)
def test_arrays_that_are_no_sets_are_refused(array: list[list[Any]], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        SetSelection(9, 1.0, 3).randomize_many(np.array(array), Coins())


def test_a_word_on_a_limit_is_decided_exactly() -> None:
    totals = [3, 7, 10]
    word = ONE * 3 // 10
    below = ONE * 3 - word * 10  # of ten numbers with this word, so many lie below 3 / 10

    class Fixed(Coins):
        def below(self, bound: int) -> int:
            assert bound == 10
            return next(drawn)

    drawn = iter(range(10))
    places = [SetSelection._undecided(word, totals, Fixed()) for _ in range(10)]
    assert places == [0] * below + [1] * (10 - below)


@pytest.mark.parametrize(
    "change",
    [
        {"most": [0]},
        {"most": [11]},
        {"size": [3], "meet": [4]},
        {"meet": [5]},
        {"size": [14], "meet": [1]},
        {"include": [1]},
        {"include": [ONE]},
        {"items": [1 << 16]},
        {"size": [4097]},
    ],
)
def test_integers_that_make_no_selection_are_refused(change: dict[str, list[int]]) -> None:
    given = SetSelection(10, 1.0, 4, size=3, meet=1).integers | change
    with pytest.raises(InvalidInput, match=r"set_selection: "):
        build("set_selection", 1.0, given)


def test_an_integer_of_another_domain_is_refused_or_keeps_epsilon() -> None:
    honest = SetSelection(6, 1.0, 3, size=2, meet=1)
    for name in ("items", "most", "size", "meet"):
        for by in (-1, 1):
            changed = {**honest.integers, name: (honest.integers[name][0] + by,)}
            try:
                lying = build("set_selection", 1.0, changed)
            except InvalidInput:
                continue
            assert lying.channel().satisfies(1.0)


def test_an_include_of_one_more_is_refused() -> None:
    honest = SetSelection(100, 1.0, 5)
    with pytest.raises(InvalidInput, match="the integers give epsilon"):
        build("set_selection", 1.0, honest.integers | {"include": (honest.include + 1,)})


def test_the_largest_domains_are_calibrated_at_once() -> None:
    sizes = best_sizes(60_000, 5, 0.5)
    assert sizes == (4096, 1)  # the limit of a report's size
    huge = SetSelection(60_000, 0.5, 5)
    code = huge.randomize([0, 59_999], Coins())
    assert len(huge.encode_one(code)) == huge.code_bytes == -(-60_005 // 8)


def test_bits_of_items_that_nobody_was_asked_about_are_unknown() -> None:
    mechanism = SetBits(3, 1.0)
    tally = mechanism.tally(np.array([1, 1, 0, 3]))
    estimate = mechanism.estimate(tally)
    assert estimate.value[2] == 0.5
    low, high = estimate.interval()
    assert (low[2], high[2]) == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [SetSelection(12, 1.0, 4), SetBits(12, 1.0)], ids=str)
def test_intervals_of_items_cover(mechanism: SetSelection | SetBits, coins: SeededCoins) -> None:
    rng = np.random.default_rng(3)
    kinds = np.full((40, 4), -1)
    for row in kinds:
        size = rng.integers(0, 5)
        row[:size] = rng.choice(12, size, replace=False, p=np.arange(1, 13) / 78)
    truth = np.array([(kinds == item).any(axis=1).mean() for item in range(12)])
    covered, runs = 0, 150
    for _ in range(runs):
        codes = mechanism.randomize_many(kinds[rng.integers(0, 40, 3000)], coins)
        low, high = mechanism.estimate(mechanism.tally(codes)).interval()
        covered += int(np.count_nonzero((low <= truth) & (truth <= high)))
    assert covered / (12 * runs) == pytest.approx(0.95, abs=0.015)


def test_a_large_report_has_a_bound_of_its_variation_at_once() -> None:
    huge = SetSelection(60_000, 0.5, 5)
    assert huge.size == 4096
    small = SetSelection(1000, 0.5, 5)
    assert 0 < small.variation < huge.variation < 1
    most = math.expm1(0.5) / (math.exp(0.5) + 1)
    assert small.variation <= most
