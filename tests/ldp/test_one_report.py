"""One report at a time, as devices draw it, comes from the channel exactly.

Every way that the coins can come up is enumerated, with its exact probability.
"""

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from branching import BranchingCoins, distribution
from every_mechanism import SAMPLED
from numpy.typing import NDArray
from test_coins import Stream
from test_exactness import inputs, output_of, row_of

from ldp import Coins, CountMeanSketch, InvalidInput, Mechanism, PolicySubsets, ProjectiveGeometry
from ldp.core.exact import ONE
from ldp.core.longitudinal import Longitudinal
from ldp.mechanisms import policies
from ldp.mechanisms.numbers import mean_table
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.mechanisms.ranges import waves
from ldp.mechanisms.strings import prefix_hashing

PICKED = {"gaussian", "laplace", "ordered", "she", "table"}
PICKED |= {"finer grid", "rectangular table", "uRR", "Mangat's", "designed table"}
"""Mechanisms whose code is picked from weights by one word, which is one search."""

DRAWN_AGAIN = {"projective", "extension field", "prime field"}
"""Mechanisms that draw again without an end; below, the draws that come to an end are counted."""

LARGE = {"uRAPPOR", "uniform", "two hashes", "all asked"}
LARGE |= {"a mask of members", "indices of members", "one member"}
"""Mechanisms with too many ways to enumerate; others of their kind are."""

ENUMERATED = {n: m for n, m in SAMPLED.items() if n not in PICKED | DRAWN_AGAIN | LARGE}


def branch(limits: NDArray[np.uint64], n: int, coins: Coins) -> NDArray[np.intp]:
    """Pick as `draw_many` does, in every way."""
    assert isinstance(coins, BranchingCoins)
    ends = [0, *limits.tolist(), ONE]
    chances = [Fraction(b - a, ONE) for a, b in pairwise(ends)]
    return np.array([coins._choose(chances) for _ in range(n)])


def bits(mechanism: Mechanism) -> int:
    """Return how many coins of a byte matter: no mechanism here has more than 8 bits."""
    if isinstance(mechanism, CountMeanSketch):
        return mechanism.buckets
    return int(getattr(mechanism, "d", getattr(mechanism, "bits", mechanism.parameters)))


def drawn(mechanism: Mechanism, run: Any) -> dict[Any, Fraction]:
    """Return the exact distribution of what `run` returns, by the channel's outputs."""
    count = bits(mechanism)
    found = distribution(lambda coins: mechanism.encode_one(run(coins)), count)
    by_output = {output_of(mechanism, mechanism.decode(b, 1)[0]): p for b, p in found.items() if p}
    assert len(by_output) == sum(p > 0 for p in found.values())
    return by_output


def expected(mechanism: Mechanism, value: Any) -> dict[Any, Fraction]:
    row = row_of(mechanism, value)
    return {output: p for output, p in zip(mechanism.channel().outputs, row, strict=True) if p}


@pytest.mark.parametrize("mechanism", ENUMERATED.values(), ids=ENUMERATED)
def test_one_report_comes_from_the_channel(
    mechanism: Mechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (policies.subsets, mean_table, waves, prefix_hashing):
        monkeypatch.setattr(module, "draw_many", branch)
    values = inputs(mechanism)
    if isinstance(mechanism, MeanMechanism):
        ends = [values[0], values[-1]]  # the doubles that are exactly points of the grid
    else:
        ends = [values[0], values[-1], values[len(values) // 2]]
    for value in dict.fromkeys(ends):
        run = drawn(mechanism, lambda coins, value=value: mechanism.randomize(value, coins))
        assert run == expected(mechanism, value)


@pytest.mark.parametrize(
    "mechanism", [m for m in ENUMERATED.values() if isinstance(m, Longitudinal)], ids=str
)
def test_a_report_of_a_memo_that_was_just_drawn_comes_from_the_channel(
    mechanism: Longitudinal,
) -> None:
    value = inputs(mechanism)[0]

    def run(coins: Coins) -> Any:
        memo = mechanism.memoize(mechanism.enroll(coins), value, coins)
        return mechanism.report(memo, coins)

    assert drawn(mechanism, run) == expected(mechanism, value)


def test_mixtures_of_subsets_are_among_them() -> None:
    assert any(isinstance(mechanism, PolicySubsets) for mechanism in ENUMERATED.values())


@pytest.mark.parametrize("name", sorted(DRAWN_AGAIN))
@pytest.mark.parametrize("on", [True, False])
def test_every_point_of_a_hyperplane_comes_of_equally_many_vectors(name: str, on: bool) -> None:
    mechanism = SAMPLED[name]
    assert isinstance(mechanism, ProjectiveGeometry)
    for value in (0, 1, mechanism.k - 1):
        counts: Counter[int] = Counter()
        for vector in range(mechanism.order**mechanism.dimension):
            words = (0 if on else ONE - 1), vector
            coins = Stream(b"".join(word.to_bytes(8, "little") for word in words))
            try:
                counts[mechanism.randomize(value, coins)] += 1
            except AssertionError:  # the stream is used up: the vector is 0, and drawn again
                continue
        row = mechanism.channel().rows[value]
        likelier = [y for y, chance in enumerate(row) if chance == max(row)]
        rest = [y for y, chance in enumerate(row) if chance == min(row)]
        assert sorted(counts) == (likelier if on else rest)
        assert len(set(counts.values())) == 1


def test_a_value_outside_the_domain_draws_nothing() -> None:
    for name, mechanism in ENUMERATED.items():
        coins = Stream(b"")
        if name != "rappor":  # it draws the cohort, which no string changes
            with pytest.raises(InvalidInput):
                mechanism.randomize(10**9, coins)
            assert coins.used == 0
