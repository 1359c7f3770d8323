"""The account of shuffled reports by the privacy blanket, against enumeration of small cohorts."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from ldp import (
    KRR,
    InvalidInput,
    LocalHashing,
    Mechanism,
    OneBitMean,
    SubsetSelection,
    UnaryEncoding,
)
from ldp.assurance import blanket
from ldp.assurance.amplification import shuffled
from ldp.assurance.blanket import Pair, of_channel, pairs_of, together
from ldp.core.channel import Channel

PUBLISHED = [  # our evaluation of the published bound at delta = 1e-6, in another program
    (KRR(10, 1.0), 10**4, 0.0233),
    (KRR(10, 2.0), 10**4, 0.0798),
    (KRR(32, 3.0), 10**4, 0.1400),
    (SubsetSelection(256, 3.0), 10**5, 0.0452),
    (SubsetSelection(16, 1.0), 10**4, 0.0304),
]


@pytest.mark.parametrize(("mechanism", "n", "known"), PUBLISHED)
def test_the_bound_is_that_of_another_evaluation(
    mechanism: Mechanism, n: int, known: float
) -> None:
    found = shuffled([mechanism], n, 1e-6)
    assert found.bound == "blanket"
    assert known - 5e-5 <= found.epsilon <= 1.002 * known + 5e-5


def exact_deltas(
    rows: Sequence[Sequence[Fraction]], n: int, epsilons: Sequence[float]
) -> list[float]:
    """Return the worst hockey-stick divergences of n shuffled reports of a channel.

    Over both of one person's inputs, and all inputs of the others.
    """
    codes = len(rows[0])

    def add(
        before: dict[tuple[int, ...], float], row: Sequence[Fraction]
    ) -> dict[tuple[int, ...], float]:
        after: dict[tuple[int, ...], float] = {}
        for counts, chance in before.items():
            for code, own in enumerate(row):
                more = (*counts[:code], counts[code] + 1, *counts[code + 1 :])
                after[more] = after.get(more, 0.0) + chance * float(own)
        return after

    worst = [0.0] * len(epsilons)
    for others in itertools.combinations_with_replacement(rows, n - 1):
        rest = {(0,) * codes: 1.0}
        for row in others:
            rest = add(rest, row)
        each = [add(rest, row) for row in rows]
        for one, other in itertools.permutations(each, 2):
            for place, epsilon in enumerate(epsilons):
                excess = sum(max(one[h] - math.exp(epsilon) * other[h], 0) for h in one)
                worst[place] = max(worst[place], excess)
    return worst


def naive_delta(pair: Pair, n: int, epsilon: float) -> float:
    """Return (1 / n) E[(Z_1 + ... + Z_n)_+] by adding up all sums of n terms, one after another."""
    z = np.append(pair.first - math.exp(epsilon) * pair.second, 0.0)
    chances = np.append(pair.mass, 1 - pair.mass.sum())
    sums = {0.0: 1.0}
    for _ in range(n):
        more: dict[float, float] = {}
        for total, chance in sums.items():
            for step, own in zip(z, chances, strict=True):
                key = round(total + step, 9)
                more[key] = more.get(key, 0.0) + chance * own
        sums = more
    return sum(max(total, 0.0) * chance for total, chance in sums.items()) / n


SMALL = [
    (KRR(3, 1.0), 7),
    (KRR(4, 2.0), 5),
    (UnaryEncoding(2, 1.0), 5),
    (SubsetSelection(4, 0.5), 4),
]


@pytest.mark.parametrize(("mechanism", "n"), SMALL)
@pytest.mark.parametrize("share", [0.05, 0.3, 0.7])
def test_the_bound_is_the_published_sum_and_covers_the_exact_divergence(
    mechanism: Mechanism, n: int, share: float
) -> None:
    epsilon = share * mechanism.realised_epsilon
    pairs = pairs_of(mechanism)
    assert pairs
    ours = max(blanket.delta_of(pair, n, epsilon, 1e-6) for pair in pairs)
    naive = max(naive_delta(pair, n, epsilon) for pair in pairs)
    assert naive <= ours <= naive * 1.002 + 1e-9
    (exact,) = exact_deltas(mechanism.channel().rows, n, [epsilon])
    assert exact <= ours
    if share < 0.5 and not isinstance(mechanism, UnaryEncoding):  # two bits have codes for both
        assert exact >= 0.6 * ours


@pytest.mark.parametrize(
    "mechanism",
    [KRR(4, 1.3), UnaryEncoding(3, 0.7), UnaryEncoding.symmetric(3, 1.0), SubsetSelection(5, 0.6)],
)
def test_the_pair_of_two_valued_codes_is_that_of_the_enumerated_channel(
    mechanism: Mechanism,
) -> None:
    """Where one code supports all values, the closed form has a smaller blanket, which is valid."""
    (ours,) = pairs_of(mechanism) or []
    enumerated = of_channel(mechanism.channel())
    assert enumerated
    for each in enumerated:
        assert ours.mass.sum() <= each.mass.sum() + 1e-12
        for epsilon in (0.05, 0.3):
            of_each = naive_delta(each, 6, epsilon)
            assert of_each <= naive_delta(ours, 6, epsilon) * (1 + 1e-6)


@pytest.mark.parametrize("mechanism", [KRR(4, 1.3), LocalHashing(50, 1.0), OneBitMean(1.0)])
def test_likelihoods_of_a_pair_are_distributions(mechanism: Mechanism) -> None:
    for pair in pairs_of(mechanism) or []:
        assert pair.mass @ pair.first == pytest.approx(1)
        assert pair.mass @ pair.second == pytest.approx(1)
        assert pair.mass.sum() < 1


@pytest.mark.parametrize("n", [1, 3, 50, 2000])
@pytest.mark.parametrize("seed", range(3))
def test_deltas_of_any_channel_are_rounded_up_and_hardly(n: int, seed: int) -> None:
    source = np.random.default_rng(seed)
    weights = source.integers(1, 9, (3, 4))
    rows = [[Fraction(int(w), int(row.sum())) for w in row] for row in weights]
    for pair in of_channel(Channel(tuple(range(4)), tuple(map(tuple, rows)))) or []:
        epsilon = 0.3 / n**0.5
        z = np.append(pair.first - math.exp(epsilon) * pair.second, 0.0)
        chances = np.append(pair.mass, 1 - pair.mass.sum())
        if n <= 3:
            known, error = naive_delta(pair, n, epsilon), 1e-8
        else:
            sums = source.multinomial(n, chances, 20_000) @ z
            positive = np.maximum(sums, 0) / n
            known, error = float(positive.mean()), 4 * float(positive.std()) / 20_000**0.5
        ours = blanket.delta_of(pair, n, epsilon, 1e-6)
        assert known - error <= ours <= 1.002 * (known + error) + 1e-9


def test_a_record_of_several_answers_is_worse_than_each_and_than_all_in_one_channel() -> None:
    """The product of the channels, enumerated, has the same worst pair."""
    one, other = KRR(2, 0.8), KRR(3, 0.5)
    pairs = together([pairs_of(one) or [], pairs_of(other) or []])
    assert pairs
    rows = [
        tuple(a * b for a in first for b in second)
        for first in one.channel().rows
        for second in other.channel().rows
    ]
    enumerated = of_channel(Channel(tuple(range(6)), tuple(rows)))
    assert enumerated
    for n, epsilon in [(1, 0.5), (4, 0.1), (6, 0.02)]:
        ours = max(blanket.delta_of(pair, n, epsilon, 1e-6) for pair in pairs)
        known = max(naive_delta(pair, n, epsilon) for pair in enumerated)
        assert known <= ours <= 1.002 * known + 1e-9


def test_the_smaller_of_both_bounds_is_taken_and_named() -> None:
    assert shuffled([KRR(10, 1.0)], 10**4, 1e-6).bound == "blanket"
    few = shuffled([KRR(2, 4.0)], 5, 1e-6)
    assert few.epsilon <= KRR(2, 4.0).realised_epsilon


def test_more_reports_and_a_larger_delta_never_need_more() -> None:
    mechanism = KRR(6, 1.5)
    by_n = [shuffled([mechanism], n, 1e-6).epsilon for n in (10, 100, 1000, 10**4)]
    assert by_n == sorted(by_n, reverse=True)
    by_delta = [shuffled([mechanism], 1000, 10.0**-d).epsilon for d in (9, 6, 3)]
    assert by_delta == sorted(by_delta, reverse=True)


@pytest.mark.parametrize(("n", "delta"), [(0, 1e-6), (10, 0.0), (10, 1.0), (10, math.nan)])
def test_what_is_no_cohort_or_delta_is_refused(n: int, delta: float) -> None:
    with pytest.raises(InvalidInput):
        shuffled([KRR(3, 1.0)], n, delta)
