"""Losses that dominate one report, against the exact divergence of every two inputs."""

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest
from every_mechanism import CASES, POLICIES
from hypothesis import given, settings
from hypothesis import strategies as st

from ldp import InvalidInput
from ldp.core.channel import Channel
from ldp.core.exact import exp_bounds
from ldp.core.losses import Losses, bounded, losses_of, unbounded, variation_of
from ldp.core.mechanism import Mechanism
from ldp.core.policy import Policy
from ldp.mechanisms import (
    HRR,
    KRR,
    ChannelTable,
    GaussianMechanism,
    HadamardResponse,
    KRRChain,
    LaplaceMechanism,
    LocalHashing,
    OneBitMean,
    OrderedExponential,
    PiecewiseMechanism,
    PolicyTable,
    PolicyUnary,
    ProjectiveGeometry,
    SquareWave,
    SubsetSelection,
    UnaryEncoding,
    Waves,
)
from ldp.planning.design import design

EXACT = [
    KRR(2, 1.0),
    KRR(7, 0.5),
    KRR(3, 4.0),
    UnaryEncoding(4, 1.0),
    UnaryEncoding.symmetric(3, 2.0),
    SubsetSelection(6, 1.0),
    SubsetSelection(5, 0.3),
    LocalHashing(3, 0.6, prime=3),
    HRR(5, 1.0),
    HadamardResponse(5, 1.0),
    HadamardResponse(5, 1.0, blocks=1),
    HadamardResponse(6, 3.0, blocks=2),
    ProjectiveGeometry(6, 1.0),
    OneBitMean(1.0),
    PiecewiseMechanism(1.0, grid=4),
    PiecewiseMechanism(3.0, grid=6, window=2),
    SquareWave(1.0, grid=4),
]
"""Mechanisms whose losses are known in closed form."""

LOOSE: list[Mechanism] = [
    ChannelTable.from_rows(1.1, [[0.5, 0.3, 0.2], [0.25, 0.5, 0.25], [0.2, 0.2, 0.6]]),
    OrderedExponential(5, 1.0),
    LaplaceMechanism(1.0, grid=6),
    Waves((5,), 1.0),
    Waves((2, 3), 2.0),
    *(case.make(3, 1.0) for case in CASES.values()),
    *(mechanism for mechanism in POLICIES.values() if mechanism.inputs <= 6),
]
"""All others, small: their losses are bounded, or computed from tables."""
LOOSE = [mechanism for mechanism in LOOSE if mechanism.guarantee in ("pure", "policy")]


def divergence(channel: Channel, pairs: Iterable[tuple[int, int]], g: Fraction) -> Fraction:
    """The largest sum of (P - g P')_+ over pairs of inputs."""
    whole = math.lcm(*(p.denominator for row in channel.rows for p in row))
    rows = [[int(p * whole) for p in row] for row in channel.rows]
    above, below = g.numerator, g.denominator
    found = 0
    for x, other in pairs:
        excess = (below * p - above * q for p, q in zip(rows[x], rows[other], strict=True))
        found = max(found, sum(each for each in excess if each > 0))
    return Fraction(found, whole * below)


def every_pair(channel: Channel) -> list[tuple[int, int]]:
    return list(itertools.permutations(range(len(channel.rows)), 2))


def points(epsilon: float) -> list[float]:
    return [epsilon * share for share in (-1.5, -0.6, 0, 0.003, 0.3, 0.77, 1)]


def name(mechanism: Mechanism) -> str:
    return f"{mechanism.name}-{mechanism.epsilon:g}"


@pytest.mark.parametrize("mechanism", EXACT, ids=name)
def test_losses_in_closed_form_are_those_of_the_worst_two_inputs(mechanism: Mechanism) -> None:
    channel, losses = mechanism.channel(), losses_of(mechanism)
    for epsilon in points(mechanism.realised_epsilon):
        low, high = exp_bounds(Fraction(epsilon))
        exact = divergence(channel, every_pair(channel), low)
        found = losses.divergence(epsilon)
        assert divergence(channel, every_pair(channel), high) <= found
        assert found == pytest.approx(float(exact), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("mechanism", LOOSE, ids=name)
def test_losses_dominate_every_two_protected_inputs(mechanism: Mechanism) -> None:
    """So do those that a device's ledger knows, by the variation."""
    channel, losses = mechanism.channel(), losses_of(mechanism)
    variation, covered = variation_of(mechanism), mechanism.protected_pairs()
    pairs = every_pair(channel) if covered is None else list(zip(*np.nonzero(covered), strict=True))
    kept = unbounded(mechanism.epsilon)
    if variation is not None:
        kept = bounded(mechanism.epsilon, variation)
    for epsilon in points(mechanism.realised_epsilon):
        exact = divergence(channel, pairs, exp_bounds(Fraction(epsilon))[1])
        assert exact <= losses.divergence(epsilon)
        assert exact <= kept.divergence(epsilon)


@pytest.mark.parametrize("mechanism", LOOSE[:3], ids=name)
def test_losses_of_a_table_are_tight(mechanism: Mechanism) -> None:
    channel, losses = mechanism.channel(), losses_of(mechanism)
    for epsilon in points(mechanism.realised_epsilon):
        exact = float(divergence(channel, every_pair(channel), Fraction(math.exp(epsilon))))
        assert losses.divergence(epsilon) == pytest.approx(exact, rel=1e-3, abs=2e-6)


def test_masses_are_a_distribution_up_to_rounding() -> None:
    for mechanism in [*EXACT, *LOOSE]:
        losses = losses_of(mechanism)
        assert 1 <= math.fsum(losses.masses) + losses.certain <= 1 + 1e-8
        assert min(losses.masses) >= 0


rows = st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any)


@settings(max_examples=25, deadline=None)
@given(st.lists(rows, min_size=2, max_size=4))
def test_losses_dominate_any_channel(weights: list[list[int]]) -> None:
    """Also where codes rule inputs out: then some mass is at infinity."""
    made = tuple(tuple(Fraction(w, sum(row)) for w in row) for row in weights)
    channel = Channel(tuple(range(4)), made)
    losses = losses_of(channel)
    for epsilon in (-3.0, -0.5, 0.0, 0.1, 0.7, 2.5):
        exact = divergence(channel, every_pair(channel), exp_bounds(Fraction(epsilon))[1])
        assert exact <= losses.divergence(epsilon)
    certain = divergence(channel, every_pair(channel), Fraction(10**9))
    assert certain <= losses.certain <= certain + Fraction(1, 10**9)


def test_epsilon_alone_means_randomised_response() -> None:
    known, alone = losses_of(KRR(2, 1.0)), bounded(1.0)
    assert alone.masses == pytest.approx(known.masses, abs=1e-15)
    assert bounded(1.0, 1) == alone  # no epsilon-LDP mechanism has more


def test_less_variation_is_never_more_divergence() -> None:
    steps = [bounded(1.0, Fraction(i, 10)).divergence(0.3) for i in range(5)]
    assert steps == sorted(steps)
    assert bounded(1.0, 0).divergence(0.0) < 1e-15


def one_sided() -> PolicyTable:
    """Values 0 and 1 are sensitive, 2 may be revealed."""
    policy = Policy.one_sided(3, [0, 1], 1.0)
    mechanism = design(policy).mechanism
    assert not mechanism.is_mutual
    return mechanism


def test_a_policy_counts_the_pairs_that_it_protects() -> None:
    mechanism = one_sided()
    channel = mechanism.channel()
    losses = losses_of(mechanism)
    pairs = [(0, 1), (1, 0), (0, 2), (1, 2)]
    for epsilon in points(1.0):
        exact = divergence(channel, pairs, exp_bounds(Fraction(epsilon))[1])
        assert exact <= losses.divergence(epsilon)
    assert losses.divergence(1.0) < 1e-9
    # Of the pairs that it does not protect, a code tells the third value for certain.
    everything = losses_of(channel)
    assert everything.certain > 0.1
    assert everything.divergence(5.0) >= everything.certain


def test_a_policy_one_way_round_without_a_table_only_adds_up() -> None:
    mechanism = PolicyUnary.utility_optimised(20, range(10), 1.0)
    assert losses_of(mechanism) == unbounded(mechanism.realised_epsilon)


def test_a_policy_for_all_pairs_without_a_table_is_bounded_by_its_epsilon() -> None:
    mechanism = PolicyUnary.utility_optimised(20, range(20), 1.0)
    assert losses_of(mechanism) == bounded(mechanism.realised_epsilon)


@pytest.mark.parametrize(
    ("reported", "message"),
    [
        (KRRChain.calibrate(4, 0.5, 1.0), "reports that share a memo do not compose"),
        (GaussianMechanism(1.0, 1 << 40), "keeps its epsilon only but for a delta"),
        (1.0, "a mechanism or a channel is expected, got float"),
    ],
)
def test_what_does_not_compose_is_refused(reported: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        losses_of(reported)


@pytest.mark.parametrize("variation", [-0.1, 1.1, float("nan")])
def test_a_variation_is_a_probability(variation: float) -> None:
    with pytest.raises(InvalidInput, match=r"a total variation must lie in \[0, 1\]"):
        bounded(1.0, variation)


def test_losses_are_values() -> None:
    losses = losses_of(KRR(4, 1.0))
    assert losses_of(losses) == losses == Losses(**vars(losses))
    assert np.isclose(sum(losses.masses), 1)
