"""Splits of epsilon for a target: beside closed forms and searches."""

import math

import numpy as np
import pytest

from ldp import InvalidInput
from ldp.planning.budget import Attribute
from ldp.planning.weights import for_target, joint_error, mutual_information


def square(epsilon: float) -> float:
    return 1 / epsilon**2


def test_where_errors_fall_as_the_square_the_target_gets_half() -> None:
    others = [Attribute("a", square, 8.0), Attribute("b", square, 1.0), Attribute("c", square, 1.0)]
    found = for_target(2.0, Attribute("y", square), others)
    assert found == pytest.approx([1.0, 0.5, 0.25, 0.25], rel=5e-3)
    assert sum(found) <= 2.0


def test_no_split_drawn_at_random_has_a_smaller_error() -> None:
    target = Attribute("y", lambda e: (math.exp(e) + 1) ** 2 / (math.exp(e) - 1) ** 2)
    others = [Attribute(f"x{j}", lambda e: 1 + 9 / e**1.5, 0.1 + j, cap=0.8) for j in range(4)]
    found = for_target(3.0, target, others)
    least = joint_error(target, others, found)
    source = np.random.default_rng(1)
    for _ in range(300):
        drawn = 3.0 * source.dirichlet(np.ones(5))
        if (drawn[1:] <= 0.8).all():
            assert joint_error(target, others, drawn.tolist()) > least * (1 - 1e-4)


def test_a_cap_holds_for_the_target_and_the_rest_goes_to_the_others() -> None:
    target = Attribute("y", square, cap=0.5)
    found = for_target(2.0, target, [Attribute("a", square), Attribute("b", square)])
    assert found == pytest.approx([0.5, 0.75, 0.75], rel=5e-3)


def test_mutual_information_is_that_of_the_table_less_its_bias() -> None:
    table = np.array([[400, 100, 0], [100, 400, 0]])
    plain = math.log(2) + 0.8 * math.log(0.8) + 0.2 * math.log(0.2)
    assert mutual_information(table) == pytest.approx(plain - 1 / 2000)
    source = np.random.default_rng(2)
    drawn = [
        np.histogram2d(source.integers(4, size=500), source.integers(3, size=500), bins=(4, 3))[0]
        for _ in range(200)
    ]
    assert np.mean([mutual_information(each) for each in drawn]) < 2e-3  # 6e-3 with the bias


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the survey has none"):
        for_target(1.0, Attribute("y", square), [])
    for table in ([1, 2], [[0, 0], [0, 0]], [[1, -1], [1, 1]]):
        with pytest.raises(InvalidInput, match="two dimensions"):
            mutual_information(table)
