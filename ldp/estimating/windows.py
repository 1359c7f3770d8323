"""Which window of a square wave tells most about the distribution of a number of D values."""

from functools import lru_cache

from ldp.core.repeated import Repeats
from ldp.estimating.points import precision
from ldp.mechanisms.numbers.square_wave import SquareWave

_EVERY = 64
"""Steps up to which all windows are tried."""

_PARTS = 24


@lru_cache(maxsize=256)
def best_wave(epsilon: float, steps: int) -> SquareWave:
    """Return the square wave for steps + 1 evenly spaced values with the best window.

    Its grid has these values alone, and its window is the one, of those as wide as the grid at
    most, for which the share of a range of values has the least variance, on average over all
    ranges, if all values are equally frequent. With more than 64 steps the windows tried are a
    whole part of the range, as the best ones are, or nearly. The default window, made for numbers
    on a continuum, has 1.1 times that variance at epsilon 1 and 2.1 times at 4, for 26 values. Up
    to epsilon 2 the share below the middle alone may have 1.5 times the default's variance.
    Guarantee and errors: those of `WindowMechanism`. Cost: 30 ms up to 64 steps, a second for 512.
    """

    def variance(window: int) -> float:
        wave = SquareWave(epsilon, steps, window)
        return precision([(wave, 1, Repeats())], steps + 1).range_variance

    windows = set(range(1, steps + 1))
    if steps > _EVERY:
        parts = range(1, _PARTS + 1)
        windows = {width // part for width in (steps, steps + 1) for part in parts} & windows
        windows |= {1, 2, 3, 4}
    return SquareWave(epsilon, steps, min(sorted(windows), key=variance))
