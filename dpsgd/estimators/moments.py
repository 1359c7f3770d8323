"""Linear regression on collected rows, by unbiased moments.

Least squares needs the means of x x' and of x y only. The reports of a record are independent given
its answers, so that products of unbiased estimates are unbiased, a category's squared indicator is
the indicator, and a number's square has an estimate of its own (`ldp.estimating.regression`). So
each record gives an unbiased estimate of both, whose mean is all that the model is computed from.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsgd.estimators.collected import is_number
from dpsgd.estimators.features import Feature
from dpsgd.reports.rows import Rows
from ldp.errors import InvalidInput, NotReady
from ldp.estimating.regression import square_scores
from ldp.mechanisms.numbers.mean import MeanMechanism

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """Unbiased estimates of x x', shape (n, p, p), and of x y, shape (n, p), of n records.

    x is 1, then of a number itself and of a category the indicators of all values but the first;
    `places` has the places among the model's inputs of x[1:].
    """

    squares: Floats
    products: Floats
    places: NDArray[np.intp]

    @property
    def vectors(self) -> Floats:
        """The different entries of both, but for the constant 1, shape (n, p (p + 3) / 2 - 1)."""
        upper = self.squares[:, *np.triu_indices(self.squares.shape[1])]
        return np.concatenate([upper[:, 1:], self.products], axis=1)


def moments(rows: Rows, label: str, features: Sequence[Feature]) -> Moments:
    """Return the moments of the records that answered everything that is asked.

    Raises `InvalidInput` where the label is no number, or reports do not tell of a square.
    """
    if not is_number(rows, label):
        raise InvalidInput(f"{label!r} is no number: take PrivateClassifier")
    whole = np.all(
        [rows.columns[name].levels >= 0 for name in (label, *(f.name for f in features))], 0
    )
    columns, blocks, places, inputs = [np.ones((rows.n, 1))], [np.ones((rows.n, 1, 1))], [], 0
    for feature in features:
        if is_number(rows, feature.name):
            columns.append(rows.reports(feature.name).numbers()[:, np.newaxis])
            blocks.append(_squares(rows, feature.name)[:, np.newaxis, np.newaxis])
            places.append(np.array([inputs]))
        else:
            kept = rows.reports(feature.name).indicators()[:, 1:]
            columns.append(kept)
            blocks.append(kept[:, :, np.newaxis] * np.eye(kept.shape[1]))
            places.append(inputs + np.arange(1, feature.width))
        inputs += feature.width
    x = np.concatenate(columns, axis=1)[whole]
    squares = x[:, :, np.newaxis] * x[:, np.newaxis]
    start = 0
    for block in blocks:
        own = slice(start, start + block.shape[1])
        squares[:, own, own] = block[whole]
        start = own.stop
    y = rows.reports(label).numbers()[whole]
    return Moments(squares, x * y[:, np.newaxis], np.concatenate(places))


def solved(vector: Floats, count: int, noise: float) -> Floats:
    """Return the coefficients, shape (count,), that solve the mean of `Moments.vectors`.

    Where the mean of x x' is less than its noise, it is raised to that, so that coefficients of
    which the data tell nothing stay small. Raises `NotReady` where it is singular without noise.
    """
    squares = np.zeros((count, count))
    squares[np.triu_indices(count)] = np.concatenate([[1.0], vector[:-count]])
    values, axes = np.linalg.eigh(squares + np.triu(squares, 1).T)
    values = np.maximum(values, noise * math.sqrt(count))
    if not values[0] > 1e-9:
        raise NotReady("the records are too few to tell the features apart, or some say the same")
    found: Floats = axes @ ((axes.T @ vector[-count:]) / values)
    return found


def _squares(rows: Rows, attribute: str) -> Floats:
    found = np.zeros(rows.n)
    for cohort in rows.reports(attribute).cohorts:
        assert isinstance(cohort.mechanism, MeanMechanism)
        found[cohort.rows] = square_scores(cohort.mechanism)[cohort.codes]
    return found
