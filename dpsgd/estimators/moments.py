"""Linear regression on collected rows, by unbiased moments.

Least squares needs the means of x x' and of x y only. The reports of a record are independent given
its answers, so that products of unbiased estimates are unbiased, a category's squared indicator is
the indicator, and a number's square has an estimate of its own (`ldp.estimating.regression`). So
each record gives unbiased estimates of both, whose means are all that the model is computed from;
and they lie in bounds that are known from the channels, so that nothing is clipped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dpsgd.estimators.collected import is_number
from dpsgd.estimators.features import Feature
from dpsgd.reports.channels import indicators
from dpsgd.reports.rows import Rows
from ldp.core.mechanism import FrequencyOracle, Mechanism
from ldp.errors import InvalidInput, NotReady
from ldp.estimating.regression import square_scores
from ldp.mechanisms.numbers.mean import MeanMechanism

Floats = NDArray[np.float64]
Range = tuple[float, float]


@dataclass(frozen=True, eq=False)
class _Variable:
    """Unbiased estimates of a variable and of its square, shape (n,), and the least and largest
    that any code of any level can give, by `attribute`, at a place among the model's inputs."""

    attribute: str
    place: int
    values: Floats
    squares: Floats
    range: Range
    square_range: Range


@dataclass(frozen=True, eq=False)
class Moments:
    """Unbiased estimates of the entries of x x' and then of x y, of n records.

    x is 1, then of a number itself and of a category the indicators of all values but the first;
    `places` are the places among the model's inputs of x[1:]. `vectors`, shape (n, v), lie between
    `bounds`; `pairs` are the entries of x x', below which two different indicators of one
    attribute are left out, since their product is 0.
    """

    vectors: Floats
    bounds: tuple[Floats, Floats]
    pairs: Sequence[tuple[int, int]]
    places: Sequence[int]

    def solved(self, vector: Floats, noise: Floats | None = None) -> Floats:
        """Return the coefficients of x that solve the mean of `vectors`.

        `noise` is the standard deviation of each entry's noise: where the mean of x x' is less, it
        is raised to that, so that coefficients of which the data tell nothing stay small. Raises
        `NotReady` where it is singular without noise.
        """
        count = len(self.places) + 1
        squares = np.zeros((count, count))
        squares[0, 0] = 1.0
        for (i, j), entry in zip(self.pairs, vector[: len(self.pairs)], strict=True):
            squares[i, j] = squares[j, i] = entry
        values, axes = np.linalg.eigh(squares)
        if noise is not None:
            spread = np.sqrt(np.mean(noise[: len(self.pairs)] ** 2) * count)
            values = np.maximum(values, spread)
        if not values[0] > 1e-9:
            raise NotReady("the rows are too few to tell the features apart, or some say the same")
        found: Floats = axes @ ((axes.T @ vector[len(self.pairs) :]) / values)
        return found


def moments(rows: Rows, label: str, features: Sequence[Feature]) -> Moments:
    """Return the moments of the records that answered everything that is asked.

    Raises `InvalidInput` where the label is no number, reports do not tell of a square, or there is
    no such record.
    """
    if not is_number(rows, label):
        raise InvalidInput(f"{label!r} is no number: take PrivateClassifier")
    one = np.ones(rows.n)
    x, inputs = [_Variable("", -1, one, one, (1.0, 1.0), (1.0, 1.0))], 0
    for feature in features:
        if is_number(rows, feature.name):
            x.append(_number(rows, feature.name, inputs))
        else:
            x += _categories(rows, feature.name, inputs)
        inputs += feature.width
    y = rows.reports(label).numbers()
    y_range = _scores(rows, label)
    entries, ranges, pairs = [], [], []
    for i, first in enumerate(x):
        for j, second in enumerate(x[i:], i):
            if i == j == 0 or (i < j and first.attribute == second.attribute):
                continue
            pairs.append((i, j))
            same = i == j
            entries.append(first.squares if same else first.values * second.values)
            ranges.append(first.square_range if same else _times(first.range, second.range))
    entries += [each.values * y for each in x]
    ranges += [_times(each.range, y_range) for each in x]
    asked = [rows.columns[name].levels >= 0 for name in (label, *(f.name for f in features))]
    low, high = np.array(ranges).T
    vectors = np.stack(entries, axis=1)[np.all(asked, axis=0)]
    if not len(vectors):
        raise InvalidInput(
            f"no row has answers to all of {label}, {', '.join(f.name for f in features)}"
        )
    return Moments(vectors, (low, high), pairs, [each.place for each in x[1:]])


def _number(rows: Rows, attribute: str, place: int) -> _Variable:
    squares = np.zeros(rows.n)
    for cohort in rows.reports(attribute).cohorts:
        squares[cohort.rows] = square_scores(_mean(cohort.mechanism))[cohort.codes]
    values = rows.reports(attribute).numbers()
    square_range = _range(rows, attribute, lambda mechanism: square_scores(_mean(mechanism)))
    return _Variable(attribute, place, values, squares, _scores(rows, attribute), square_range)


def _categories(rows: Rows, attribute: str, place: int) -> list[_Variable]:
    found = []
    for value, values in enumerate(rows.reports(attribute).indicators().T[1:], 1):
        between = _range(rows, attribute, partial(_indicators, value))
        found.append(_Variable(attribute, place + value, values, values, between, between))
    return found


def _scores(rows: Rows, attribute: str) -> Range:
    return _range(rows, attribute, lambda m: np.array([float(s) for s in _mean(m).scores]))


def _indicators(value: int, mechanism: Mechanism) -> Floats:
    """Return estimates of a value's indicator, among which are the least and the largest."""
    if mechanism.two_valued and isinstance(mechanism, FrequencyOracle):
        p, q = map(float, mechanism.support)
        return np.array([-q, 1 - q]) / (p - q)
    codes = np.arange(mechanism.tally_size, dtype=mechanism.code_dtype)
    return indicators(mechanism, codes)[:, value]


def _range(rows: Rows, attribute: str, of: Callable[[Mechanism], Floats]) -> Range:
    """Return the least and the largest estimate of any code at any level."""
    each = [of(mechanism) for mechanism in rows.columns[attribute].channels.values()]
    return min(float(e.min()) for e in each), max(float(e.max()) for e in each)


def _times(one: Range, other: Range) -> Range:
    corners = [a * b for a in one for b in other]
    return min(corners), max(corners)


def _mean(mechanism: Mechanism) -> MeanMechanism:
    assert isinstance(mechanism, MeanMechanism)
    return mechanism
