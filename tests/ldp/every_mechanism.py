"""Every mechanism, small: the tables that what holds for all of them is tested with."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from string import ascii_lowercase
from typing import ClassVar

import pytest

from ldp import (
    HRR,
    KRR,
    LOLOHA,
    RAPPOR,
    Channel,
    ChannelTable,
    CountMeanSketch,
    DBitFlip,
    GaussianMechanism,
    HadamardCountMeanSketch,
    HadamardResponse,
    HybridMechanism,
    KRRChain,
    LaplaceMechanism,
    LocalHashing,
    Mechanism,
    OneBitMean,
    OrderedExponential,
    PiecewiseMechanism,
    PolicySubsets,
    PolicyUnary,
    PrefixHashing,
    ProjectiveGeometry,
    SetBits,
    SetSelection,
    SquareWave,
    SubsetSelection,
    SummingHistogram,
    UnaryChain,
    UnaryEncoding,
    Waves,
    thresholding_histogram,
)
from ldp.core.exact import ONE
from ldp.core.policy import UNIT, UNLIMITED, Policy
from ldp.mechanisms import PolicyMechanism
from ldp.mechanisms.tools.finite_field import next_prime
from ldp.planning import mean_design
from ldp.planning.columns import improved_rr, utility_optimised_rr
from ldp.planning.design import design

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
SIZES = (2, 3, 4, 5, 8, 16)


@dataclass(frozen=True)
class Case:
    """How to make a mechanism of k inputs, and what its channel is expected to be like.

    Sizes beyond `largest`, one of `SIZES`, have too many codes to enumerate; their worst ratio
    must be that of `largest`. `spends` is what part of epsilon the channel uses at least, and is
    below 0.999 only where the mechanism cannot help it.
    """

    make: Callable[[int, float], Mechanism]
    largest: int = 16
    spends: float | None = 0.999


def krr_rows(k: int, epsilon: float) -> list[list[float]]:
    """k-RR's channel, in doubles."""
    e = math.exp(epsilon)
    return [[(e if x == y else 1) / (e + k - 1) for y in range(k)] for x in range(k)]


class FewSeeds(PrefixHashing):
    """Prefix hashing of so few hash functions that its channel can be enumerated."""

    seeds: ClassVar[int] = 2


def prefix_hashing(k: int, epsilon: float) -> PrefixHashing:
    """Words of one letter or two, of k letters, of which one group sees the first only."""
    made = FewSeeds if k <= 5 else PrefixHashing
    return made(tuple(map(ord, ascii_lowercase[:k])), (1, 2), epsilon)


def loloha(k: int, epsilon: float) -> LOLOHA:
    chain = KRRChain.calibrate(2, epsilon, 2 * epsilon)  # few buckets and a small prime:
    prime = next_prime(max(k, 3))  # a channel that can be enumerated
    return LOLOHA(k, epsilon, 2, prime, chain.permanent, chain.instantaneous)


CASES = {
    "cms": Case(lambda k, e: CountMeanSketch(k, e, hashes=3, buckets=4)),
    "dbitflip": Case(lambda k, e: DBitFlip(k, e, 2)),
    # Not pure: a code can rule a number out. test_gaussian.py enumerates its delta.
    "gaussian": Case(lambda k, e: GaussianMechanism(e, ONE // 100, k - 1), spends=None),
    "hadamard": Case(HadamardResponse),
    "hashing": Case(lambda k, e: LocalHashing(k, e, buckets=4, prime=next_prime(max(k, 5)))),
    "hcms": Case(lambda k, e: HadamardCountMeanSketch(k, e, hashes=3, buckets=4)),
    "hrr": Case(HRR),
    "hybrid": Case(lambda k, e: HybridMechanism(e, k - 1, onebit=ONE // 3)),
    "krr": Case(KRR),
    "krr_chain": Case(lambda k, e: KRRChain.calibrate(k, e, 2 * e)),
    "laplace": Case(lambda k, e: LaplaceMechanism(e, k - 1)),
    "loloha": Case(loloha),
    "mean_table": Case(lambda k, e: mean_design.plain(e, k - 1)),
    "onebit": Case(lambda k, e: OneBitMean(e)),  # two inputs, whatever k
    "ordered": Case(OrderedExponential),
    "piecewise": Case(lambda k, e: PiecewiseMechanism(e, k - 1)),
    "prefix_hashing": Case(prefix_hashing, largest=4),
    "projective": Case(ProjectiveGeometry),
    # k filters of one bit, in one cohort. Filters, and categories below, differ in two
    # independent bits or levels, of which there are no more in a larger domain.
    "rappor": Case(lambda k, e: RAPPOR.calibrate(e, 2 * e, bits=k, hashes=1, cohorts=1), largest=8),
    "set_bits": Case(lambda k, e: SetBits(min(k, 8), e), largest=8),
    "set_selection": Case(lambda k, e: SetSelection(min(k, 5), e, 2), largest=5),
    "she": Case(lambda k, e: SummingHistogram.on_grid(k, e, 1, 1), largest=5),
    "square_wave": Case(lambda k, e: SquareWave(e, k - 1)),
    "subset": Case(SubsetSelection),
    "table": Case(lambda k, e: ChannelTable.from_rows(e, krr_rows(k, e))),
    # Thresholding throws noise away that was paid for: (2a-1)(2b-1) < (ab)**2.
    "the": Case(thresholding_histogram, largest=8, spends=0.5),
    "unary": Case(UnaryEncoding, largest=8),
    "unary_chain": Case(lambda k, e: UnaryChain.l_osue(k, e, 2 * e), largest=8),
    "waves": Case(Waves.over),
}
# Constructors whose reports take another path through the code, or have another form.
VARIANTS: dict[str, Mechanism] = {
    "another prime": LocalHashing(5, 1.0, prime=7),
    "blocks": HadamardResponse(9, 2.0),
    "indices": SubsetSelection(17, 2.5),
    "a mask of members": SetSelection(7, 0.5, 2, size=4, meet=2),
    "indices of members": SetSelection(30, 1.0, 2, size=2, meet=1),
    "two members": SetSelection(4, 1.0, 2, size=2, meet=1),
    "one member": SetSelection(12, 2.0, 3, size=1, meet=1),
    "all members in common": SetSelection(3, 1.0, 3, size=3, meet=3),
    "extension field": ProjectiveGeometry(20, 2.0, order=4, dimension=3),
    "prime field": ProjectiveGeometry(12, 1.0, order=3, dimension=3),
    "rectangular table": ChannelTable.from_rows(
        1.5, [[0.4, 0.3, 0.2, 0.1], [0.1, 0.4, 0.3, 0.2], [0.2, 0.1, 0.4, 0.3]]
    ),
    "two hashes": RAPPOR.calibrate(1.0, 2.0, bits=6, hashes=2, cohorts=1),
    "all asked": DBitFlip(5, 1.0, 5),
    "one asked": DBitFlip(4, 1.0, 1),
    "symmetric": UnaryEncoding.symmetric(5, 0.5),
    "asymmetric chain": UnaryChain.l_oue(3, 1.0, 2.0),
    "waves of a table": Waves((3, 4), 1.0),
    "finer grid": SummingHistogram.on_grid(3, 1.0, 2, 1),
}


def subsets(policy: Policy) -> PolicySubsets:
    """Return the policy's design as a mixture of subsets, however small it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ldp.planning.columns.TABLE", 0)
        mechanism = design(policy).mechanism
    assert isinstance(mechanism, PolicySubsets)
    return mechanism


LINE = Policy.of(range(5), [[min(2.0, 0.75 * abs(i - j)) for j in range(5)] for i in range(5)])
DISCRIMINATIVE = Policy.input_discriminative([0, 1, 0, 1, 1, 1], [0.5, 2.0])
POLICIES: dict[str, PolicyMechanism] = {
    "Mangat's": improved_rr(1.0),
    "uRR": utility_optimised_rr(5, [1, 3], 1.0),
    "uRR of many": utility_optimised_rr(100, range(10), 2.0),
    "uOUE": PolicyUnary.utility_optimised(5, [0, 3], 1.0),
    "uRAPPOR": PolicyUnary.utility_optimised(12, [0, 3, 11], 2.0, symmetric=True),
    "designed table": design(DISCRIMINATIVE).mechanism,
    "designed subsets": subsets(DISCRIMINATIVE),
    "blocks of values": subsets(Policy.block([0, 1, 0, 1, 1], 1.0)),
    "one-sided": subsets(Policy.one_sided(9, [2, 3, 5, 8], 1.0)),
    "uniform": subsets(Policy.uniform(9, 1.0)),
    "numbers, one-sided": mean_design.under(Policy.one_sided(6, [4, 5], 1.0)),
    "numbers on a line": mean_design.under(LINE),
}
"""Mechanisms that keep a policy, which may let some values be told apart for certain."""

SMALL_POLICIES = {name: mechanism for name, mechanism in POLICIES.items() if mechanism.inputs <= 12}
SAMPLED = {name: case.make(4, 1.0) for name, case in CASES.items()} | VARIANTS | SMALL_POLICIES
WIRED = {name: case.make(13, 1.0) for name, case in CASES.items()} | VARIANTS | POLICIES


def tightness(policy: Policy, channel: Channel) -> float:
    """Return the largest share of its distance that some pair of values uses."""
    return max(
        math.log(ratio) * UNIT / limit
        for row, given in zip(policy.distances, policy.ratios(channel.rows), strict=True)
        for limit, ratio in zip(row, given, strict=True)
        if 0 < limit < UNLIMITED and ratio is not None
    )
