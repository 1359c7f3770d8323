"""Policies: what they promise, how they are made, and what is refused."""

import math
from fractions import Fraction

import pytest

from ldp import KRR, Channel, InvalidInput, SubsetSelection
from ldp.core.policy import UNIT, UNLIMITED, Policy

INF = math.inf


def test_one_epsilon_for_all_is_what_an_ldp_mechanism_keeps() -> None:
    policy = Policy.uniform(4, 1.0)
    policy.check(KRR(4, 1.0).channel())
    policy.check(SubsetSelection(4, 0.5).channel())
    with pytest.raises(InvalidInput, match=r"can be told from one of class 0 by 1\.01, more than"):
        policy.check(KRR(4, 1.01).channel())
    assert policy.epsilon == 1.0
    assert policy.ordinary == ()


def test_the_direction_of_a_distance_counts() -> None:
    half, zero = Fraction(1, 2), Fraction(0)
    mangat = Channel(("no", "yes"), ((half, half), (zero, Fraction(1))))
    Policy.one_sided(2, [1], 1.0).check(mangat)
    with pytest.raises(InvalidInput, match="a value of class 0 can be told from one of class 1 by"):
        Policy.one_sided(2, [0], 1.0).check(mangat)
    with pytest.raises(InvalidInput, match="by inf, more than the 1 of the policy"):
        Policy.uniform(2, 1.0).check(mangat)


def test_a_distance_is_no_longer_than_a_way_round() -> None:
    policy = Policy.of([0, 1, 2], [[0, 1, 9], [INF, 0, 0.5], [INF, INF, 0]])
    assert policy.distance(0, 2) == 1.5
    assert policy.distance(2, 0) == INF
    assert policy.distance(1, 1) == 0
    assert policy.ordinary == (2,)


def test_classes_are_apart_by_the_smaller_epsilon_and_at_most_twice_the_least() -> None:
    policy = Policy.input_discriminative([0, 0, 1, 1, 2], [0.5, 2.0, INF])
    assert policy.distance(0, 1) == policy.distance(0, 2) == policy.distance(4, 1) == 0.5
    assert policy.distance(2, 3) == policy.distance(2, 4) == 1.0
    assert policy.epsilon == 1.0


def test_a_block_may_be_revealed_and_its_values_not() -> None:
    policy = Policy.block([0, 0, 1, 1, 1], 2.0)
    assert policy.distance(0, 1) == policy.distance(3, 4) == 2.0
    assert policy.distance(0, 3) == INF
    assert policy.ordinary == ()


def test_all_sensitive_is_plain_ldp() -> None:
    assert Policy.one_sided(3, [2, 0, 1], 1.0) == Policy.uniform(3, 1.0)
    assert Policy.one_sided(3, [2, 0], 1.0).ordinary == (1,)


def test_a_share_scales_all_distances_and_never_rounds_up() -> None:
    policy = Policy.one_sided(3, [0, 1], 1.0).scaled(Fraction(1, 3))
    assert policy.distance(0, 2) == pytest.approx(1 / 3)
    assert 3 * policy.distances[0][1] < UNIT
    assert policy.distance(2, 0) == INF
    assert Fraction(policy.epsilon) * UNIT >= policy.distances[0][1]


def test_a_policy_survives_the_plan() -> None:
    for policy in (
        Policy.uniform(2, 0.1),
        Policy.input_discriminative([1, 0, 1], [1.0, 3.0]),
        Policy.one_sided(5, [3], 32.0),
    ):
        assert Policy.from_integers(policy.integers) == policy
        assert all(0 <= i <= UNLIMITED for i in policy.integers)
    for bad in ([], [0], [2, 0, 1], [1, UNIT], [3, 0, 0, 0, *[UNIT] * 4]):
        with pytest.raises(InvalidInput):
            Policy.from_integers(bad)


def test_a_stricter_policy_implies_a_looser_one_whatever_its_classes() -> None:
    strict, loose = Policy.uniform(4, 1.0), Policy.one_sided(4, [1, 2], 1.0)
    assert strict.implies(loose)
    assert not loose.implies(strict)
    assert loose.implies(Policy.one_sided(4, [2], 1.0))
    assert not loose.implies(Policy.one_sided(4, [3], 1.0))
    assert not strict.implies(Policy.uniform(4, 0.9))
    assert not strict.implies(Policy.uniform(5, 1.0))
    # One value against itself is no pair.
    assert Policy.of([0, 0, 1], [[1, 1], [1, 0]]).implies(Policy.uniform(3, 1.0))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Policy.block([0, 1, 1], 1.0), "class 0 has one value, which a block policy"),
        (lambda: Policy.one_sided(3, [], 1.0), "no value is sensitive"),
        (lambda: Policy.one_sided(3, [1, 1], 1.0), "a sensitive value is listed twice"),
        (lambda: Policy.one_sided(3, [3], 1.0), r"a sensitive value must lie in 0\.\.2, got 3"),
        (lambda: Policy.one_sided(3, [1], 0.0), "epsilon must be finite and > 0"),
        (lambda: Policy.uniform(1, 1.0), "a policy is for 2 values or more, got 1"),
        (lambda: Policy.uniform(3, 33.0), "epsilon must be at most 32"),
        (lambda: Policy.uniform(3, 1.0).scaled(0), "share of the budget must be finite and > 0"),
        (lambda: Policy.uniform(3, 1.0).scaled(INF), "share of the budget must be finite"),
        (lambda: Policy.uniform(3, 1.0).scaled(50), r"must lie in \(0, 32\] or be infinite"),
        (lambda: Policy.uniform(3, 2.0**-40).scaled(2.0**-40), "are one value"),
        (lambda: Policy.of([0, 0], [[0.0]]), "values at distance zero cannot be told apart"),
        (lambda: Policy.of([0, 0], [[INF]]), "protects no value"),
        (lambda: Policy.of([0, 1], [[1, INF], [INF, 1]]), "protects no value"),
        (lambda: Policy.of([0, 2], [[1, 1], [1, 1]]), r"2 classes must be numbered 0\.\.1"),
        (lambda: Policy.of([0, 0], [[1, 1], [1, 1]]), "all have values"),
        (lambda: Policy.of([0, 1], [[1, 1], [1]]), "distances must be 2 rows of 2"),
        (lambda: Policy.of([0, 0], [[math.nan]]), "a distance must be a number >= 0"),
        (lambda: Policy.input_discriminative([0, 1], [1.0]), "must be numbered"),
        (lambda: Policy.input_discriminative([0, 0, 1], [INF, INF]), "protects no value"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_with_the_reason(make, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        make()


def test_a_channel_for_other_values_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the policy is for 3 values, got 2 rows"):
        Policy.uniform(3, 1.0).check(KRR(2, 1.0).channel())
