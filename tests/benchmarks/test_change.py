"""Speed of what is asked about change over time: a year of days, 64 values."""

import numpy as np
import pytest

from ldp import UnaryEncoding
from ldp.core.tally import Tally
from ldp.estimating.change import Parts, breaks, difference, series, trend

DAYS, VALUES, PANELS = 365, 64, 16


def year(panels: int = 1) -> list[list[Parts]]:
    mechanism, rng = UnaryEncoding(VALUES, 1.0), np.random.default_rng(1)
    return [
        [{"all": (mechanism, Tally(3200, rng.integers(900, 1000, VALUES)))} for _ in range(DAYS)]
        for _ in range(panels)
    ]


@pytest.mark.benchmark(group="change over 365 periods of 64 values")
@pytest.mark.parametrize("panels", [0, PANELS])
def test_trend(benchmark, panels: int) -> None:
    (whole,), parts = year(), year(panels)
    found = benchmark(lambda: trend(series(whole, parts), range(DAYS)))
    assert found.value.shape == (VALUES,)


@pytest.mark.benchmark(group="change over 365 periods of 64 values")
def test_difference_between_the_ends(benchmark) -> None:
    (whole,) = year()
    found = benchmark(lambda: difference(series([whole[0], whole[-1]])))
    assert found.value.shape == (VALUES,)


@pytest.mark.benchmark(group="change over 365 periods of 64 values")
def test_breaks(benchmark) -> None:
    (whole,) = year()
    assert benchmark(lambda: breaks(series(whole))).value.shape == (VALUES,)
