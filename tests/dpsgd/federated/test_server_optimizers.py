"""The server's steps, computed by hand for one parameter."""

import math

import numpy as np
import pytest

from dpsgd.federated.server_optimizers import SGD, Adam, ServerOptimizer, Yogi, named
from ldp import InvalidInput

UPDATES = (0.5, -0.25, 0.125)


def models(optimizer: ServerOptimizer) -> list[float]:
    """The only parameter after each update, from 1."""
    model, state = np.ones(1, np.float32), optimizer.initial(1)
    found = []
    for update in UPDATES:
        given = model, state
        model, state = optimizer.step(model, np.array([update]), state)
        assert model.dtype == np.float32
        assert given[0] is not model
        found.append(float(model[0]))
    return found


def test_sgd_adds_the_update() -> None:
    assert models(SGD()) == [1.5, 1.25, 1.375]
    assert models(SGD(0.5)) == [1.25, 1.125, 1.1875]


def test_momentum_adds_what_is_left_of_earlier_updates() -> None:
    assert models(SGD(1.0, 0.5)) == [1.5, 1.5, 1.625]


@pytest.mark.parametrize("kind", [Adam, Yogi])
def test_adaptive_steps_are_those_of_the_paper(kind: type[Adam]) -> None:
    model, mean, square = 1.0, 0.0, 1e-6
    expected = []
    for update in UPDATES:
        mean = 0.9 * mean + 0.1 * update
        if kind is Yogi:
            square -= 0.01 * update**2 * math.copysign(1, square - update**2)
        else:
            square = 0.99 * square + 0.01 * update**2
        model += 0.1 * mean / (math.sqrt(square) + 1e-3)
        expected.append(model)
    np.testing.assert_allclose(models(kind(0.1)), expected, rtol=1e-6)


def test_a_training_names_its_optimizer() -> None:
    assert named("sgd", 1.0, 0.5) == SGD(1.0, 0.5)
    assert named("adam", 0.1, 0.9) == Adam(0.1, 0.9)
    assert named("yogi", 0.1, 0.9) == Yogi(0.1, 0.9)
    with pytest.raises(InvalidInput, match="optimizer must be one of sgd, adam, yogi, got 'lamb'"):
        named("lamb", 0.1, 0.9)


@pytest.mark.parametrize("kind", ["sgd", "adam", "yogi"])
def test_wrong_numbers_are_refused(kind: str) -> None:
    for rate in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InvalidInput, match="learning_rate"):
            named(kind, rate, 0.5)
    for momentum in (-0.1, 1.0, math.nan):
        with pytest.raises(InvalidInput, match="momentum"):
            named(kind, 1.0, momentum)
