"""Figures of this server's process for its operator, from its metrics."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hearsay_server.serving.minutes import Minutes, Sample

_RECENT = 15 * 60
"""Seconds of the newest commits that latencies are of."""

_BAR = 10
"""Minutes that one bar of the picture stands for."""

_HOUR = 3600
_DAY = 86_400


@dataclass(frozen=True)
class Latency:
    """Seconds within which half, and 99 of 100, of the recent commits were durable.

    They are upper bounds of the histogram's classes; nan without commits.
    """

    commits: int
    half: float
    most: float


@dataclass(frozen=True)
class Bar:
    """Records a minute, between two moments."""

    begins: float
    rate: float


@dataclass(frozen=True)
class Rates:
    """Records a minute over the last day: bars of ten minutes, and the sums of whole hours."""

    bars: Sequence[Bar]
    hours: Sequence[tuple[float, int]]
    last_minute: int
    last_day: int
    since: float

    @property
    def highest(self) -> float:
        """The highest bar."""
        return max((bar.rate for bar in self.bars), default=0.0)

    @property
    def path(self) -> str:
        """The bars as the path of an SVG of 144 by 100."""
        top = self.highest or 1.0
        shapes = []
        for bar in self.bars:
            height = 100 * bar.rate / top
            if height:
                x = _DAY // (60 * _BAR) - (self.bars[-1].begins - bar.begins) / (60 * _BAR) - 1
                shapes.append(f"M{x:.0f} 100v-{max(height, 1):.1f}h.9v{max(height, 1):.1f}z")
        return "".join(shapes)


def rates(minutes: Minutes) -> Rates:
    """Return how many records came in each minute of the last day."""
    samples = minutes.samples()
    newest = samples[-1]
    from_day = [each for each in samples if each.at > newest.at - _DAY]
    bars = _sums(from_day, 60 * _BAR)
    hours = [(at, int(rows)) for at, rows in _sums(from_day, _HOUR).items()]
    return Rates(
        bars=[Bar(at, rows / _BAR) for at, rows in bars.items()],
        hours=hours,
        last_minute=newest.rows - _before(samples, newest.at - 60).rows,
        last_day=newest.rows - from_day[0].rows,
        since=minutes.began.at,
    )


def _sums(samples: Sequence[Sample], seconds: int) -> dict[float, float]:
    """Return the records of each interval of a length, by its start; empty ones included."""
    first, last = (int(samples[n].at // seconds) for n in (0, -1))
    found = {float(number * seconds): 0.0 for number in range(first, last + 1)}
    for before, after in pairwise(samples):
        # An interval's last minute ends with it: the middle tells which one it is of.
        middle = (before.at + after.at) / 2
        found[float(middle // seconds * seconds)] += after.rows - before.rows
    return found


def _before(samples: Sequence[Sample], at: float) -> Sample:
    """Return the newest sample that is not after a moment, or the first one."""
    earlier = [each for each in samples if each.at <= at]
    return earlier[-1] if earlier else samples[0]


def latency(minutes: Minutes) -> Latency:
    """Return how long recent commits took."""
    samples = minutes.samples()
    before, after = _before(samples, samples[-1].at - _RECENT), samples[-1]
    counts = [late - early for early, late in zip(before.commits, after.commits, strict=True)]
    total = int(counts[-1])

    def within(share: float) -> float:
        if not total:
            return math.nan
        return next(
            bound
            for bound, count in zip(minutes.bounds, counts, strict=True)
            if count >= share * total
        )

    return Latency(total, within(0.5), within(0.99))


def totals(counter: Any) -> Mapping[str, int]:
    """Return a counter's totals by its one label, without those that are 0, largest first."""
    found = {
        next(iter(sample.labels.values())): int(sample.value)
        for metric in counter.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.value
    }
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def value(gauge: Any) -> float:
    """Return a gauge's value, or a counter's total, that has no labels."""
    samples = next(iter(gauge.collect())).samples
    return float(samples[0].value)
