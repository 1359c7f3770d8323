"""Features in the numbers that a model takes, by bounds and values that are public."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsgd.accounting.events import shown
from ldp import InvalidInput

Floats = NDArray[np.float64]
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Feature:
    """One feature: a number, in public bounds or as it is given, or one of public values.

    A number between bounds becomes one in [-1, 1], and one outside them the nearer end; then
    `center` is taken away and `spread` divided by, which are public or privately released. A value
    becomes 1 in a column of its own, and what is none of the values is 0 in all of them.
    """

    name: str
    bounds: Bounds | None = None
    values: tuple[Any, ...] | None = None
    center: float = 0.0
    spread: float = 1.0

    @property
    def width(self) -> int:
        """The number of columns that the model takes."""
        return 1 if self.values is None else len(self.values)

    def encoded(self, column: NDArray[Any]) -> Floats:
        """Return the model's columns, shape (n, width), of a column, shape (n,)."""
        if self.values is None:
            numbers = scaled(np.asarray(column, dtype=np.float64), self.bounds)
            return (numbers[:, np.newaxis] - self.center) / self.spread
        return np.stack([column == value for value in self.values], axis=1).astype(np.float64)


def scaled(numbers: Floats, bounds: Bounds | None) -> Floats:
    """Return numbers on the scale [-1, 1] of their bounds, the nearer end where outside."""
    if bounds is None:
        return numbers
    low, high = bounds
    return 2 * (np.clip(numbers, low, high) - low) / (high - low) - 1


def features_of(
    names: Sequence[str], bounds: Any, values: Mapping[Any, Any] | None
) -> list[Feature]:
    """Return the features of these names, by what a user says of them.

    `bounds` is (low, high) of all features, each a number or one for each feature, or a mapping of
    names or positions to (low, high); `values` a mapping of them to values. Raises `InvalidInput`
    for what is not of this form, or names no feature.
    """
    ends: dict[int, Bounds] = {}
    if isinstance(bounds, Mapping):
        for key, pair in bounds.items():
            ends[_position(names, key)] = check_bounds(f"feature_bounds of {key!r}", pair)
    elif bounds is not None:
        try:
            low, high = (np.broadcast_to(np.asarray(end, float), len(names)) for end in bounds)
        except (TypeError, ValueError, OverflowError):
            raise InvalidInput(
                "feature_bounds must be (low, high), each a number or one for each of the "
                f"{len(names)} features, or a mapping of features to (low, high), "
                f"got {shown(bounds)}"
            ) from None
        for i, pair in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            ends[i] = check_bounds(f"feature_bounds of {names[i]!r}", pair)
    listed = {_position(names, key): tuple(each) for key, each in (values or {}).items()}
    for i, each in listed.items():
        if len(set(each)) < max(2, len(each)):
            raise InvalidInput(
                f"feature {names[i]!r} must have two different values at least, got {each}"
            )
        ends.pop(i, None)
    return [Feature(name, ends.get(i), listed.get(i)) for i, name in enumerate(names)]


def encode(features: Sequence[Feature], table: NDArray[Any]) -> Floats:
    """Return a table of features, shape (n, features), in the model's columns."""
    columns = [feature.encoded(table[:, i]) for i, feature in enumerate(features)]
    return np.concatenate(columns, axis=1)


def check_bounds(name: str, pair: Any) -> Bounds:
    """Return (low, high) as floats; raise `InvalidInput` unless they are finite and low < high."""
    try:
        low, high = map(float, pair)
    except (TypeError, ValueError, OverflowError):
        low = high = math.nan
    if not (low < high and math.isfinite(high - low)):
        raise InvalidInput(
            f"{name} must be two finite numbers (low, high), low < high, got {shown(pair)}"
        )
    return low, high


def _position(names: Sequence[str], key: Any) -> int:
    if key in names:
        return names.index(key)
    if isinstance(key, int) and 0 <= key < len(names):
        return key
    raise InvalidInput(f"there is no feature {key!r}; the features are {', '.join(names)}")
