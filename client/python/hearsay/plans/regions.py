"""Regions of numbers that are sensitive, and how near numbers must be to be told apart less."""

import math
import re
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

from ldp import InvalidInput

Interval = tuple[float, float]

MOST = 16
"""The most regions of a question, or bands of its resolution."""

_RANGE = re.compile(r"(.+)\.\.(.+)")


def check_regions(regions: Sequence[Interval], low: float, high: float) -> None:
    """Raise `InvalidInput` unless the regions rise within [low, high], apart from each other, and
    leave some numbers ordinary."""
    if len(regions) > MOST:
        raise InvalidInput(f"there may be {MOST} sensitive regions, got {len(regions)}")
    for first, last in regions:
        if not low <= first <= last <= high:  # nan too
            raise InvalidInput(
                f"a sensitive region must lie in {in_words((low, high))}, with low at most high, "
                f"got {in_words((first, last))}"
            )
    for before, after in pairwise(regions):
        if after[0] <= before[1]:
            raise InvalidInput(
                f"sensitive regions must rise and not overlap, got {in_words(before)} "
                f"before {in_words(after)}"
            )
    if regions and not ordinary(regions, low, high):
        raise InvalidInput(
            "all numbers are sensitive: leave `sensitive` out, and they are protected alike"
        )


def check_bands(bands: Sequence[tuple[float, float]], low: float, high: float, cap: float) -> None:
    """Raise `InvalidInput` unless (upto, within) rise to `high`, and the cap is reached."""
    if not bands:
        if cap:
            raise InvalidInput(f"cap = {cap:g} needs a resolution, which it limits")
        return
    if len(bands) > MOST:
        raise InvalidInput(f"a resolution has {MOST} parts at most, got {len(bands)}")
    begin = low
    for upto, within in bands:
        if not begin < upto <= high:
            raise InvalidInput(
                f"the parts of a resolution must rise from {number(low)} to {number(high)}, "
                f"got upto = {number(upto)} after {number(begin)}"
            )
        if not 0 < within < math.inf:
            raise InvalidInput(f"within must be finite and > 0, got {within!r}")
        begin = upto
    if begin != high:
        raise InvalidInput(
            f"the last part of a resolution must reach {number(high)}, got upto = {number(begin)}"
        )
    if cap and not 1 <= cap < math.inf:
        raise InvalidInput(f"cap must be finite and >= 1, got {cap!r}: it is a number of `within`s")
    apart = length(bands, low)
    if (cap or 1) > apart:
        raise InvalidInput(
            f"the ends of the range are {float(apart):g} times `within` apart: a cap above that, "
            f"got {cap or 1.0:g}, would charge epsilon that no two answers use"
        )


def length(bands: Sequence[tuple[float, float]], low: float) -> Fraction:
    """Return how many times `within` the ends of the range are apart."""
    ends = [Fraction(low), *(Fraction(upto) for upto, _ in bands)]
    return sum(
        (
            (b - a) / Fraction(within)
            for (a, b), (_, within) in zip(pairwise(ends), bands, strict=True)
        ),
        Fraction(0),
    )


def ordinary(regions: Iterable[Interval], low: float, high: float) -> tuple[Interval, ...]:
    """Return the ranges between the regions, each with its ends, in order."""
    ends = [low, *(end for region in regions for end in region), high]
    return tuple((a, b) for a, b in zip(ends[::2], ends[1::2], strict=True) if a < b)


def uncovered(ranges: Iterable[Interval], allowed: Collection[str]) -> list[Interval]:
    """Return the ranges that are in no union of the allowed ones, which are written "0..800".

    Raises `InvalidInput` for an allowed range that is written otherwise.
    """
    merged: list[Interval] = []
    for a, b in sorted(map(parsed, allowed)):
        if merged and a <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
        else:
            merged.append((a, b))
    return [(a, b) for a, b in ranges if not any(c <= a and b <= d for c, d in merged)]


def parsed(text: str) -> Interval:
    """Return the ends of a range that is written "0..800"; raise `InvalidInput` otherwise."""
    found = _RANGE.fullmatch(text)
    try:
        a, b = (float(end) for end in found.groups()) if found else (math.nan, math.nan)
    except ValueError:
        a = b = math.nan
    if not a <= b:
        raise InvalidInput(f"a range of numbers is written as '0..800', got {text!r}")
    return a, b


def in_words(interval: Interval) -> str:
    """Return a range as it is written, such as "0..800"."""
    return f"{number(interval[0])}..{number(interval[1])}"


def number(value: float) -> str:
    """Return the shortest text of a double, without ".0"."""
    return repr(float(value)).removesuffix(".0")
