"""The window of a square wave for a number of few values."""

import pytest

from ldp import SquareWave
from ldp.core.repeated import Repeats
from ldp.estimating.points import precision
from ldp.estimating.windows import best_wave


def variance(wave: SquareWave) -> float:
    return precision([(wave, 1, Repeats())], wave.grid + 1).range_variance


@pytest.mark.parametrize(
    ("points", "epsilon", "window", "expected"),
    [
        (11, 1.0, 1, 9.81),
        (26, 1.0, 6, 32.60),
        (26, 2.0, 1, 4.435),
        (26, 4.0, 1, 0.381),
        (64, 1.0, 16, 88.38),
        (64, 4.0, 1, 0.814),
    ],
)
def test_the_best_windows_have_the_variances_worked_out_before(
    points: int, epsilon: float, window: int, expected: float
) -> None:
    found = best_wave(epsilon, points - 1)
    assert (found.grid, found.window) == (points - 1, window)
    assert variance(found) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 2.0, 3.0, 6.0])
def test_of_many_steps_the_few_windows_tried_have_one_as_good_as_any(epsilon: float) -> None:
    least = min(variance(SquareWave(epsilon, 80, window)) for window in range(1, 81))
    assert variance(best_wave(epsilon, 80)) <= 1.002 * least


@pytest.mark.parametrize("steps", [1, 2, 3, 512])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 32.0])
def test_there_is_a_wave_for_every_number_of_steps_and_every_epsilon(
    steps: int, epsilon: float
) -> None:
    wave = best_wave(epsilon, steps)
    assert wave.steps == steps
    assert 0.999 * epsilon < wave.realised_epsilon <= epsilon
