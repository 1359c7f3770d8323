"""Mechanisms that keep a policy: privacy, sampling, estimates, wire, and what they refuse."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, norm

from ldp import (
    KRR,
    Channel,
    InvalidInput,
    Mechanism,
    PolicySubsets,
    PolicyTable,
    PolicyUnary,
    Tally,
    UnaryEncoding,
    build,
)
from ldp.core.exact import ONE
from ldp.core.policy import UNIT, UNLIMITED, Policy
from ldp.estimating.simplex import tangent_inverse
from ldp.mechanisms import PolicyMechanism
from ldp.planning.columns import improved_rr, utility_optimised_rr
from ldp.planning.design import design
from ldp.testing import SeededCoins

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
SIZES = (2, 3, 4, 5, 8, 16)
DISCRIMINATIVE = Policy.input_discriminative([0, 1, 0, 1, 1, 1], [0.5, 2.0])
BLOCKS = Policy.block([0, 1, 0, 1, 1], 1.0)


def subsets(policy: Policy) -> PolicySubsets:
    """Return the policy's design as a mixture of subsets, however small it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ldp.planning.columns.TABLE", 0)
        mechanism = design(policy).mechanism
    assert isinstance(mechanism, PolicySubsets)
    return mechanism


MECHANISMS: list[PolicyMechanism] = [
    improved_rr(1.0),
    utility_optimised_rr(5, [1, 3], 1.0),
    utility_optimised_rr(100, range(10), 2.0),
    PolicyUnary.utility_optimised(5, [0, 3], 1.0),
    PolicyUnary.utility_optimised(12, [0, 3, 11], 2.0, symmetric=True),
    design(DISCRIMINATIVE).mechanism,
    subsets(DISCRIMINATIVE),
    subsets(BLOCKS),
    subsets(Policy.one_sided(9, [2, 3, 5, 8], 1.0)),
    subsets(Policy.uniform(9, 1.0)),
]
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: f"{m.name}-{m.k}")


def tightness(policy: Policy, channel: Channel) -> float:
    return max(
        math.log(ratio) * UNIT / limit
        for row, given in zip(policy.distances, policy.ratios(channel.rows), strict=True)
        for limit, ratio in zip(row, given, strict=True)
        if 0 < limit < UNLIMITED and ratio is not None
    )


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


@every_mechanism
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
    for mechanism in MECHANISMS:
        policy = mechanism.promise.scaled(0.99).integers
        with pytest.raises(InvalidInput, match=f"{mechanism.name}: a value of class . can be told"):
            build(mechanism.name, mechanism.epsilon, mechanism.integers | {"policy": policy})
        with pytest.raises(InvalidInput, match="the policy lets values be told apart by"):
            build(mechanism.name, mechanism.epsilon * 0.99, mechanism.integers)
        other = Policy.uniform(mechanism.k + 1, 0.1).integers
        with pytest.raises(InvalidInput, match=f"the policy is for {mechanism.k + 1} values"):
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


# --- sampling and estimating ---------------------------------------------------------------


def seen(mechanism: Mechanism, codes: np.ndarray, outputs: tuple) -> np.ndarray:
    """Count codes in the order of the channel's outputs."""
    if isinstance(mechanism, PolicyTable):
        return np.bincount(codes, minlength=len(outputs))
    subset = codes if isinstance(mechanism, PolicyUnary) else codes[:, 1:]
    bits = np.unpackbits(subset, axis=1, count=mechanism.k, bitorder="little")
    numbers = bits @ (1 << np.arange(mechanism.k))
    if isinstance(mechanism, PolicyUnary):
        return np.bincount(numbers, minlength=len(outputs))
    names = [t << mechanism.k | sum(1 << x for x in chosen) for t, chosen in outputs]
    counts = np.bincount(
        (codes[:, 0].astype(int) << mechanism.k) | numbers, minlength=max(names) + 1
    )
    assert counts[names].sum() == len(codes)
    return counts[names]


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism", [m for m in MECHANISMS if m.k <= 6], ids=lambda m: f"{m.name}-{m.k}"
)
def test_the_sampler_draws_from_its_channel(mechanism: PolicyMechanism, coins: SeededCoins) -> None:
    channel, n = mechanism.channel(), 1_000_000
    # Of every class; the sensitive value of Mangat's is sure of its answer.
    for value in (members[-1] for members in mechanism.promise.members):
        expected = n * np.array(channel.rows[value], dtype=float)
        codes = mechanism.randomize_many(np.full(n, value), coins)
        counts = seen(mechanism, codes, channel.outputs)
        assert counts[expected == 0].sum() == 0
        usual = expected > 1e-2  # the blank report is not
        assert counts[~usual].sum() == 0
        if usual.sum() == 1:
            continue
        shares = expected[usual] / expected[usual].sum()
        assert chisquare(counts[usual], n * shares).pvalue > 1e-4
        few = np.array([mechanism.randomize(value, coins) for _ in range(5000)])
        counts = seen(mechanism, few.astype(mechanism.code_dtype), channel.outputs)[usual]
        assert chisquare(counts, 5000 * shares).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("f", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(
    "mechanism", [m for m in MECHANISMS if m.k <= 12], ids=lambda m: f"{m.name}-{m.k}"
)
def test_estimates_are_unbiased_with_the_predicted_variance_and_coverage(
    mechanism: PolicyMechanism, f: float
) -> None:
    n, runs = 200, 4000
    k = mechanism.k
    truth = np.full(k, (1 - f) / (k - 1))
    truth[0] = f
    seed = round(100 * f) + 1000 * k
    generator, coins = np.random.default_rng(seed), SeededCoins(seed)
    values = np.where(generator.random((runs, n)) < f, 0, generator.integers(1, k, (runs, n)))
    codes = mechanism.randomize_many(values.ravel(), coins)
    codes = codes.reshape(runs, n, *mechanism.code_shape)
    error = np.array([mechanism.debias(mechanism.tally(batch)) for batch in codes]) - truth
    variance = np.broadcast_to(mechanism.variance(truth, n), (k,))
    sure = variance < 1e-12  # of what no report can hide
    assert np.abs(error[:, sure]).max(initial=0) < 1e-5
    bias = np.abs(error.mean(axis=0)[~sure]) / np.sqrt(variance[~sure] / runs)
    assert bias.max(initial=0) < 4
    total = (error**2).sum(axis=1)
    assert total.mean() == pytest.approx(variance.sum(), rel=0.05)
    if 0 < f < 1:
        covered = np.abs(error[:, 0]) < norm.ppf(0.975) * math.sqrt(variance[0])
        assert covered.mean() == pytest.approx(0.95, abs=0.02)  # counts are discrete


@pytest.mark.parametrize(
    "mechanism",
    [m for m in MECHANISMS if isinstance(m, PolicySubsets) and m.k <= 9],
    ids=lambda m: f"{m.name}-{m.k}",
)
def test_no_unbiased_linear_estimate_of_all_codes_is_better(mechanism: PolicySubsets) -> None:
    """Types and supports lose nothing at the uniform population: the estimate is that of GLS."""
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


# --- wire and plan -------------------------------------------------------------------------


@every_mechanism
def test_codes_survive_the_wire_and_a_single_code_has_their_form(
    mechanism: PolicyMechanism, coins: SeededCoins
) -> None:
    codes = mechanism.randomize_many(np.arange(300) % mechanism.k, coins)
    data = mechanism.encode(codes)
    assert len(data) == 300 * mechanism.code_bytes
    assert np.array_equal(mechanism.decode(data, 300), codes)
    for value in range(mechanism.k):
        code = mechanism.encode([mechanism.randomize(value, coins)])
        assert mechanism.decode(code, 1).shape == (1, *mechanism.code_shape)
    for length in (len(data) - 1, len(data) + 1):
        with pytest.raises(InvalidInput, match=rf"300 {mechanism.name} codes take .* got {length}"):
            mechanism.decode(bytes(length), 300)


@every_mechanism
@given(data=st.binary(max_size=30), n=st.integers(0, 4))
def test_any_bytes_decode_or_are_refused(mechanism: PolicyMechanism, data: bytes, n: int) -> None:
    try:
        codes = mechanism.decode(data, n)
    except InvalidInput:
        return
    assert mechanism.encode(codes) == data
    assert mechanism.tally(codes).n == n


@every_mechanism
def test_tallies_of_parts_add_up_to_the_tally_of_all(
    mechanism: PolicyMechanism, coins: SeededCoins
) -> None:
    codes = mechanism.randomize_many(np.arange(3000) % mechanism.k, coins)
    a, b, c = (mechanism.tally(part) for part in np.split(codes, [100, 2000]))
    assert (a + b) + c == a + (b + c) == mechanism.tally(codes)
    assert a + Tally.empty(mechanism.tally_size) == a


@every_mechanism
def test_a_plan_rebuilds_the_mechanism_and_its_integers_fit_64_bits(
    mechanism: PolicyMechanism,
) -> None:
    assert build(mechanism.name, mechanism.epsilon, mechanism.integers) == mechanism
    assert all(0 <= i < ONE for values in mechanism.integers.values() for i in values)


@every_mechanism
def test_values_outside_the_domain_are_refused(mechanism: PolicyMechanism) -> None:
    for value in (-1, mechanism.k, 0.0, True, None):
        with pytest.raises(InvalidInput, match="category"):
            mechanism.randomize(value, SeededCoins(0))
    with pytest.raises(InvalidInput, match="categories must lie in"):
        mechanism.randomize_many([0, mechanism.k], SeededCoins(0))


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
