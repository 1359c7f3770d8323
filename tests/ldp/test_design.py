"""Designed channels: private for every pair, as good as they claim, and no policy too odd."""

import math
from fractions import Fraction

import numpy as np
import pytest
from every_mechanism import tightness
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ldp import KRR, InvalidInput, PolicySubsets, PolicyTable, SubsetSelection
from ldp.core.policy import UNIT, UNLIMITED, Policy
from ldp.planning.columns import realise
from ldp.planning.design import design

LEVELS = (0.1, 0.5, 1.0, 2.0, 4.0)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Draw a policy for up to six values: classes, distances, a level and a weight."""
    k = draw(st.integers(2, 6))
    count = draw(st.integers(1, k))
    spread = draw(st.lists(st.integers(0, count - 1), min_size=k - count, max_size=k - count))
    classes = draw(st.permutations([*range(count), *spread]))
    distance = st.sampled_from((*LEVELS, math.inf)) | st.floats(0.05, 6)
    kind = draw(st.sampled_from(["directed", "discriminative", "one-sided"]))
    try:
        if kind == "directed":
            row = st.lists(distance, min_size=count, max_size=count)
            policy = Policy.of(classes, draw(st.lists(row, min_size=count, max_size=count)))
        elif kind == "discriminative":
            epsilons = draw(st.lists(distance, min_size=count, max_size=count))
            policy = Policy.input_discriminative(classes, epsilons)
        else:
            chosen = draw(st.sets(st.integers(0, k - 1), min_size=1))
            policy = Policy.one_sided(k, chosen, draw(st.sampled_from(LEVELS)))
        weight = Fraction(draw(st.integers(1, 3)), draw(st.integers(1, 4)))
        return policy.scaled(weight)
    except InvalidInput as refused:
        assume("protects no value" not in str(refused))
        raise


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(policy=policies(), table=st.booleans())
def test_a_design_keeps_its_policy_and_uses_it(policy: Policy, table: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not table:
            patch.setattr("ldp.planning.columns.TABLE", 0)
        result = design(policy)
    mechanism = result.mechanism
    assert isinstance(mechanism, PolicyTable if table else PolicySubsets)
    channel = mechanism.channel()  # its rows sum to one exactly, or it could not be built
    for column in zip(*channel.rows, strict=True):  # pair by pair, as the definition has it
        for x, high in enumerate(column):
            for other, low in enumerate(column):
                limit = policy.distance(x, other)
                assert limit == math.inf or high <= Fraction(math.exp(limit)) * low * (1 + 2e-15)
    policy.check(channel)
    assert 0.999 <= tightness(policy, channel) <= 1 + 1e-12
    assert result.certified
    assert -1e-9 <= result.gap <= 1e-7
    told = mechanism.variance(np.full(policy.k, 1 / policy.k), 1).sum()
    assert told == pytest.approx(result.variance, rel=1e-6)
    assert type(mechanism).from_integers(mechanism.epsilon, mechanism.integers) == mechanism
    assert mechanism.promise.implies(policy)
    assert mechanism.realised_epsilon <= policy.epsilon


@settings(max_examples=20, deadline=None)
@given(first=policies(), second=policies())
def test_a_record_of_two_attributes_keeps_the_sum_of_their_policies(
    first: Policy, second: Policy
) -> None:
    one, two = (design(policy).mechanism.channel() for policy in (first, second))
    ratio = [  # of a whole record, the worst over both reports, which are independent
        policy.ratios(channel.rows) for policy, channel in ((first, one), (second, two))
    ]
    for a, row in enumerate(ratio[0]):
        for b, r in enumerate(row):
            for c, other_row in enumerate(ratio[1]):
                for d, s in enumerate(other_row):
                    limit = first.distances[a][b] + second.distances[c][d]
                    if limit < UNLIMITED and r is not None and s is not None:
                        assert math.log(r * s) <= limit / UNIT * (1 + 1e-12)


@pytest.mark.parametrize(
    ("v", "k", "epsilon", "alpha", "published"),
    [(2, 6, 1.0, 0.4, 3.36972), (4, 10, 2.0, 0.3, 2.34804)],
)
def test_it_finds_the_optimal_utility_optimised_channel(v, k, epsilon, alpha, published) -> None:
    planned = np.array([alpha / v] * v + [(1 - alpha) / (k - v)] * (k - v))
    result = design(Policy.one_sided(k, range(v), epsilon), planned)
    assert result.variance == pytest.approx(published, abs=5e-6)
    assert result.mechanism.variance(planned, 1).sum() >= result.bound - 1e-9


def test_it_finds_the_optimal_input_discriminative_channel() -> None:
    result = design(Policy.input_discriminative([0, 0, 1, 1, 1, 1], [0.5, 2.0]))
    uniform = np.full(6, 1 / 6)
    assert result.variance == pytest.approx(46.4262, abs=5e-5)
    assert result.gap < 1e-8
    # What one strict epsilon for all would cost.
    assert KRR(6, 0.5).variance(uniform, 1).sum() == pytest.approx(87.534, abs=5e-4)
    assert SubsetSelection(6, 0.5).variance(uniform, 1).sum() == pytest.approx(65.906, abs=5e-4)


@pytest.mark.parametrize(
    ("k", "epsilon", "limit"), [(8, 1.0, 22.6114), (16, 2.0, 10.1896), (64, 1.0, 228.4010)]
)
def test_with_one_class_it_attains_the_minimax_constant(k, epsilon, limit) -> None:
    result = design(Policy.uniform(k, epsilon))
    assert result.variance == result.bound == pytest.approx(limit, abs=5e-5)
    told = result.mechanism.variance(np.full(k, 1 / k), 1).sum()
    assert told == pytest.approx(limit, abs=5e-5)


def test_classes_that_differ_in_name_only_are_one() -> None:
    """Column generation, which one class does without, finds what the closed form says."""
    split = design(Policy.of([0, 0, 0, 1, 1, 2, 2, 2], [[1.0] * 3] * 3))
    assert split.variance == pytest.approx(22.6114, abs=5e-5)


@settings(max_examples=40, deadline=None)
@given(policy=policies())
def test_treating_a_class_alike_loses_nothing(policy: Policy) -> None:
    """With a class for every value, columns of any levels are allowed, and are no better."""
    each = range(policy.k)
    single = Policy.of(each, [[policy.distance(x, y) for y in each] for x in each])
    assert design(policy).variance == pytest.approx(design(single).variance, rel=1e-7)


def test_no_random_channel_under_the_policy_beats_the_bound() -> None:
    policy = Policy.input_discriminative([0, 0, 1, 1], [0.5, 1.5])
    bound, generator = design(policy).bound, np.random.default_rng(1)
    distance = np.array([[policy.distance(x, y) for y in range(4)] for x in range(4)])
    swaps = ([0, 1, 2, 3], [1, 0, 2, 3], [0, 1, 3, 2], [1, 0, 3, 2])
    variances = []
    while len(variances) < 200:
        # Two columns within the policy, and what becomes of them when values of a class swap.
        levels = generator.uniform(-2, 0, (2, 4))
        columns = np.exp((levels[:, None] + distance).min(axis=2))
        columns = np.array([[column[swap] for swap in swaps] for column in columns])
        weights = np.linalg.lstsq(columns.sum(axis=1).T, np.ones(4), rcond=None)[0]
        channel = (weights[:, None, None] * columns).reshape(-1, 4).T
        whole = weights.min() > 0 and channel.sum(axis=1) == pytest.approx(1)
        if whole and np.linalg.matrix_rank(channel) == 4:
            information = (channel / channel.mean(axis=0)) @ channel.T
            variances.append(np.trace(np.linalg.inv(information)) - 1 / 4)
    assert bound <= min(variances) < 2 * bound


@pytest.mark.slow
def test_large_classes_are_designed_in_seconds_and_stay_a_mixture() -> None:
    policy = Policy.input_discriminative(np.repeat(range(4), 16).tolist(), [0.5, 1.0, 2.0, 4.0])
    result = design(policy)
    assert isinstance(result.mechanism, PolicySubsets)
    assert result.certified
    assert result.gap < 1e-8
    assert result.mechanism.types <= 4 + 4 * 5 // 2 + 1  # the information's entries; the blank
    strict = SubsetSelection(64, 0.5).variance(np.full(64, 1 / 64), 1).sum()
    assert result.variance < 0.8 * strict


def test_classes_too_large_to_price_every_column_are_designed_without_a_certificate() -> None:
    policy = Policy.one_sided(2000, range(1000), 1.0)
    result = design(policy)
    assert not result.certified
    assert abs(result.gap) < 1e-7
    assert result.mechanism.variance(1 / 2000, 1).sum() == pytest.approx(result.variance, rel=1e-6)


def test_the_planned_population_counts() -> None:
    policy = Policy.input_discriminative([0, 0, 1, 1], [0.5, 2.0])
    planned = np.array([0.05, 0.05, 0.45, 0.45])
    assert design(policy, planned).variance < design(policy).variance


@pytest.mark.parametrize(
    ("frequencies", "reason"),
    [
        ([0.5, 0.5], "frequencies must be a distribution of 3 values"),
        ([0.5, 0.6, -0.1], "must be a distribution"),
        ([0.5, 0.5, math.nan], "must be a distribution"),
        ([0.5, 0.5, 0.0], "must not be zero for a whole class"),
    ],
)
def test_frequencies_that_are_none_are_refused(frequencies, reason) -> None:
    with pytest.raises(InvalidInput, match=reason):
        design(Policy.one_sided(3, [0, 1], 1.0), frequencies)


def test_columns_whose_rows_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(InvalidInput, match="the rows must sum to one"):
        realise(Policy.uniform(3, 1.0), [])


def test_more_kinds_of_classes_than_can_be_searched_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ldp.planning.rays._MAX_STATES", 1000)
    generator = np.random.default_rng(3)
    distances = generator.uniform(1, 1.9, (8, 8)).tolist()
    policy = Policy.of(np.repeat(range(8), 2).tolist(), distances)
    with pytest.raises(InvalidInput, match="too many extreme columns"):
        design(policy)
