"""Mechanisms that keep a policy: privacy, the literature's mechanisms, and what they refuse.

Their samplers and their wire are tested in test_exactness.py, their estimates in test_estimates.py.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from every_mechanism import POLICIES, SIZES, SMALL_POLICIES, subsets, tightness

from ldp import (
    KRR,
    InvalidInput,
    PolicySubsets,
    PolicyTable,
    PolicyUnary,
    UnaryEncoding,
    build,
)
from ldp.core.exact import ONE
from ldp.core.policy import UNLIMITED, Policy
from ldp.estimating.simplex import tangent_inverse
from ldp.mechanisms import PolicyMechanism
from ldp.planning.columns import improved_rr, utility_optimised_rr
from ldp.planning.design import design
from ldp.testing import SeededCoins

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)


# --- privacy -------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", (0.003, *EPSILONS))  # the first is no multiple of the unit
@pytest.mark.parametrize("k", SIZES)
def test_sensitive_values_are_protected_to_epsilon_and_never_less(k: int, epsilon: float) -> None:
    for v in {1, max(1, k // 3), k - 1}:
        policy = Policy.one_sided(k, range(v), epsilon)
        made: list[PolicyMechanism] = [utility_optimised_rr(k, range(v), epsilon)]
        if k <= 5:  # 2**k outputs; the ratio is a product of two bits' anyway
            made.append(PolicyUnary.utility_optimised(k, range(v), epsilon))
            made.append(PolicyUnary.utility_optimised(k, range(v), epsilon, symmetric=True))
        if k <= 8:
            made.append(subsets(policy))
        for mechanism in made:
            channel = mechanism.channel()
            policy.check(channel)
            assert mechanism.promise.implies(policy)
            assert 0.999 <= tightness(policy, channel) <= 1 + 1e-12
            assert 0.999 * epsilon <= mechanism.realised_epsilon <= epsilon


@pytest.mark.parametrize("mechanism", POLICIES.values(), ids=POLICIES)
def test_ratios_in_closed_form_are_those_of_the_whole_channel(mechanism: PolicyMechanism) -> None:
    policy = mechanism.promise
    ratios = policy.ratios(mechanism.channel().rows)
    policy.check_ratios(ratios, "it")
    for a, row in enumerate(policy.distances):
        for b, limit in enumerate(row):
            if 0 < limit < UNLIMITED:
                assert mechanism._ratios[a][b] == ratios[a][b]
    assert mechanism._worst_ratio() == policy.worst(ratios)


def test_every_report_of_utility_optimised_mechanisms_is_protected_or_reveals() -> None:
    """The two conditions of Murakami and Kawamoto's definition, which is stricter than D."""
    sensitive, factor = [0, 3], Fraction(math.exp(1)) * (1 + Fraction(1, 10**12))
    policy = Policy.one_sided(5, sensitive, 1.0)
    for mechanism in (
        utility_optimised_rr(5, sensitive, 1.0),
        PolicyUnary.utility_optimised(5, sensitive, 1.0),
        design(policy).mechanism,
    ):
        for column in zip(*mechanism.channel().rows, strict=True):
            causes = [x for x, chance in enumerate(column) if chance]
            assert causes == [x for x in causes if x not in sensitive][:1] or (
                max(column) <= factor * min(column)
            )


def test_a_plan_that_keeps_less_than_its_policy_is_refused() -> None:
    honest = utility_optimised_rr(3, [0, 1], 1.0)
    assert isinstance(honest, PolicyTable)
    for mechanism in POLICIES.values():
        policy = mechanism.promise.scaled(0.99).integers
        with pytest.raises(InvalidInput, match=f"{mechanism.name}: a value of class . can be told"):
            build(mechanism.name, mechanism.epsilon, mechanism.integers | {"policy": policy})
        with pytest.raises(InvalidInput, match="the policy lets values be told apart by"):
            build(mechanism.name, mechanism.epsilon * 0.99, mechanism.integers)
        other = Policy.uniform(mechanism.inputs + 1, 0.1).integers
        with pytest.raises(InvalidInput, match=f"the policy is for {mechanism.inputs + 1} values"):
            build(mechanism.name, mechanism.epsilon, mechanism.integers | {"policy": other})


# --- the mechanisms of the literature ------------------------------------------------------


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_utility_optimised_rr_is_that_of_murakami_and_kawamoto(epsilon: float) -> None:
    k, v, e = 5, 2, math.exp(epsilon)
    rows = np.array(utility_optimised_rr(k, range(v), epsilon).channel().rows, dtype=float)
    z = e + v - 1
    expected = np.zeros((k, k))
    expected[:, :v] = 1 / z
    expected[range(v), range(v)] = e / z
    expected[range(v, k), range(v, k)] = (e - 1) / z
    assert rows[:, :k] == pytest.approx(expected, abs=1e-11)
    assert rows[:, k].max() < 1e-11  # the blank report


def test_improved_rr_is_mangats() -> None:
    mechanism = improved_rr(2.0)
    rows = np.array(mechanism.channel().rows, dtype=float)
    expected = [[math.exp(-2), 1 - math.exp(-2)], [1, 0]]  # codes "yes" and "no"
    assert rows[:, :2] == pytest.approx(np.array(expected), abs=1e-11)
    assert mechanism.variance([0.5, 0.5], 1)[1] < KRR(2, 2.0).variance(0.5, 1)


def test_all_sensitive_makes_krr_and_oue() -> None:
    ours = np.array(utility_optimised_rr(4, range(4), 1.0).channel().rows, dtype=float)
    krr = np.array(KRR(4, 1.0).channel().rows, dtype=float)
    assert ours[:, :4] == pytest.approx(krr, abs=1e-11)
    unary = PolicyUnary.utility_optimised(4, range(4), 1.0)
    assert (unary.own[0], unary.other[0]) == UnaryEncoding(4, 1.0).integers["own"] + (
        UnaryEncoding(4, 1.0).other,
    )


def test_utility_optimised_rappor_has_the_published_bits() -> None:
    e = math.exp(1)
    oue = PolicyUnary.utility_optimised(5, [0, 1], 1.0)
    assert [own / ONE for own in oue.own] == pytest.approx([1 / 2, (e - 1) / (2 * e)])
    assert [other / ONE for other in oue.other] == pytest.approx([1 / (e + 1), 0])
    sue, half = PolicyUnary.utility_optimised(5, [0, 1], 1.0, symmetric=True), math.exp(0.5)
    assert [own / ONE for own in sue.own] == pytest.approx([half / (1 + half), (half - 1) / half])


def test_the_design_is_never_worse_than_the_mechanisms_of_the_literature() -> None:
    for k, v, epsilon in ((6, 2, 1.0), (10, 4, 2.0), (8, 1, 0.5)):
        best = design(Policy.one_sided(k, range(v), epsilon)).variance
        for other in (
            utility_optimised_rr(k, range(v), epsilon),
            PolicyUnary.utility_optimised(k, range(v), epsilon),
        ):
            assert best <= other.variance(np.full(k, 1 / k), 1).sum() * (1 + 1e-9)


# --- estimates -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name, m in SMALL_POLICIES.items() if isinstance(m, PolicySubsets)]
)
def test_no_unbiased_linear_estimate_of_all_codes_is_better(name: str) -> None:
    """Types and supports lose nothing at the uniform population: the estimate is that of GLS."""
    mechanism = POLICIES[name]
    channel = mechanism.channel()
    matrix = np.array(channel.rows, dtype=float)
    codes = np.zeros((len(channel.outputs), *mechanism.code_shape), dtype=np.uint8)
    for code, (kind, subset) in zip(codes, channel.outputs, strict=True):
        bits = np.isin(np.arange(mechanism.k), subset)
        code[0], code[1:] = kind, np.packbits(bits, bitorder="little")
    mechanism.decode(mechanism.encode(codes), len(codes))
    ours = np.array([mechanism.debias(mechanism.tally(code[None])) for code in codes]).T
    weighted = matrix / matrix.mean(axis=0)
    assert ours == pytest.approx(np.linalg.solve(weighted @ matrix.T, weighted), abs=1e-7)
    assert ours.sum(axis=0) == pytest.approx(1)
    truth = np.random.default_rng(1).dirichlet(np.ones(mechanism.k))
    variance = ours**2 @ (truth @ matrix) - truth**2
    assert mechanism.variance(truth, 1) == pytest.approx(variance)


# --- what is refused -----------------------------------------------------------------------


def test_codes_that_cannot_be_are_refused_with_the_reason() -> None:
    unary = PolicyUnary.utility_optimised(5, [0, 3], 1.0)
    with pytest.raises(InvalidInput, match="policy_unary code has a bit beyond its 5"):
        unary.decode(b"\x20", 1)
    with pytest.raises(InvalidInput, match="policy_unary code reveals two categories at once"):
        unary.decode(b"\x06", 1)
    table = improved_rr(1.0)
    with pytest.raises(InvalidInput, match="a policy_table code must be below 3, got 3"):
        table.decode(b"\x03", 1)
    mixed = utility_optimised_rr(100, [0, 1], 1.0)
    blank = bytes([2, *[255] * 12, 15])
    assert mixed.decode(blank, 1).shape == (1, 14)
    with pytest.raises(InvalidInput, match="policy_subsets type must be below 3, got 3"):
        mixed.decode(b"\x03" + blank[1:], 1)
    with pytest.raises(InvalidInput, match="policy_subsets code has a bit beyond its 100"):
        mixed.decode(blank[:-1] + b"\x1f", 1)
    with pytest.raises(InvalidInput, match="code of type 0 has 1 categories of class 0, got 2"):
        mixed.decode(bytes([0, 3, *[0] * 12]), 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sizes": (1, 0, 0)}, "one size and two weights of each for 2 classes, got 3 and"),
        ({"sizes": (3, 0, 0, 1, 2, 98)}, r"type 0 has \[3, 0\] categories of classes of \[2, 98\]"),
        ({"sizes": (2, 0, 0, 1, 2, 98)}, "class 0 cannot be outside a subset of 2 of 2"),
        ({"sizes": (0, 0, 0, 1, 2, 98)}, "class 0 cannot be in a subset of 0 of 2"),
        (
            {"weights": (1,) * 12},
            r"the weights of class 0 must sum to 2\*\*64, all below it",
        ),
    ],
)
def test_integers_that_make_no_mixture_are_refused(change, reason) -> None:
    honest = utility_optimised_rr(100, [0, 1], 1.0)
    with pytest.raises(InvalidInput, match=reason):
        build("policy_subsets", 1.0, honest.integers | change)


def test_a_mixture_that_tells_nothing_apart_is_refused() -> None:
    policy = Policy.uniform(4, 1.0).integers
    half = ONE // 2
    with pytest.raises(InvalidInput, match="the types do not tell all categories apart"):
        PolicySubsets(4, 1.0, (2, 2), (half // 2, half // 2, half // 2, half // 2), policy)
    with pytest.raises(InvalidInput, match="no category can cause type 1"):
        PolicySubsets(4, 1.0, (2, 1), (half, 0, half, 0), policy)


def test_tables_that_are_none_are_refused() -> None:
    policy = Policy.one_sided(2, [1], 1.0).integers
    half = ONE // 2
    with pytest.raises(InvalidInput, match=r"row 1 must sum to 2\*\*64, of weights below it"):
        PolicyTable(2, 1.0, (half, half, 0, ONE), policy)
    with pytest.raises(InvalidInput, match="no category can cause code 1"):
        PolicyTable(2, 1.0, (half, 0, half, half + 1, 0, half - 1), policy)
    with pytest.raises(InvalidInput, match="does not tell all categories apart"):
        PolicyTable(2, 1.0, (half, half, half, half), policy)


def test_bits_that_are_none_are_refused() -> None:
    honest = PolicyUnary.utility_optimised(5, [0, 3], 1.0)
    with pytest.raises(InvalidInput, match="one pair of own and other for each of 2 classes"):
        build("policy_unary", 1.0, honest.integers | {"own": (ONE // 2,)})
    with pytest.raises(InvalidInput, match=r"0 <= other < own < 2\*\*64 in every class"):
        build("policy_unary", 1.0, honest.integers | {"own": (1, ONE // 2)})


def test_a_wrong_policy_shows_in_what_a_client_compares() -> None:
    promised = Policy.one_sided(4, [0, 1], 1.0)
    assert utility_optimised_rr(4, [0, 1], 1.0).promise.implies(promised)
    assert not utility_optimised_rr(4, [0], 1.0).promise.implies(promised)


@pytest.mark.slow
@pytest.mark.parametrize(("exponent", "ratio"), [(0.0, 1.0), (1.5, 1.05), (2.0, 1.09)])
def test_mixtures_of_subsets_attain_the_bound_for_the_uniform_population_only(
    exponent: float, ratio: float, coins: SeededCoins
) -> None:
    k, n = 64, 100_000
    mechanism = design(Policy.one_sided(k, range(32), 1.0)).mechanism
    assert isinstance(mechanism, PolicySubsets)
    truth = np.arange(1, k + 1.0) ** -exponent
    truth /= truth.sum()
    levels = np.array(
        [
            [[float(x or 0) for x in mechanism._levels(c, t)] for t in range(mechanism.types)]
            for c in mechanism.promise.classes
        ]
    )
    codes = mechanism.randomize_many(np.random.default_rng(5).choice(k, n, p=truth), coins)
    bits = np.unpackbits(codes[:, 1:], axis=1, count=k, bitorder="little")
    # Fisher's information is the mean square of the scores, here of simulated reports.
    chances = levels[np.arange(k), codes[:, :1], 1 - bits]
    scores = chances / (chances @ truth)[:, None]
    bound = np.trace(tangent_inverse(scores.T @ scores))
    assert mechanism.variance(truth, n).sum() / bound == pytest.approx(ratio, abs=0.01)
