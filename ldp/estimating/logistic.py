"""Logistic regression on categories, from randomised records, with standard errors."""

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ldp.core.mechanism import Categorical, Counted
from ldp.errors import InvalidInput, NotReady
from ldp.estimating.regression import (
    BLOCK,
    Factors,
    Fit,
    Indicator,
    Number,
    Product,
    Records,
    between,
    checked,
    compressed,
    method_of,
    plain,
    precision_weights,
    sandwich,
)

Floats = NDArray[np.float64]

MAX_CELLS = 5000
"""The most combinations of the values of a model's regressors."""

_STEPS = 60

_FAR = 50.0
"""A coefficient beyond which there is no solution: no odds are e**50."""


def logistic(
    records: Sequence[Records],
    response: Indicator,
    columns: Sequence[Product],
    *,
    alike: bool = False,
) -> Fit:
    """Fit P(response) = 1 / (1 + exp(-x b)), the columns x being products of indicators.

    The corrected score: b solves mean(s) = 0 of s = x~ y~ - sum over the cells c of w(c)
    sigma(x(c) b) x(c), where x~, y~ and w are a record's unbiased estimates of the columns, the
    response and the cells' indicators. The covariance is J**-1 cov(s) J**-1 / n. `alike` and
    repeats are as of `linear`. Cost: O(n cells columns / (values of the first attribute)), of
    different records where tallies count codes.

    Raises `InvalidInput` as `linear`, for a number among the columns, and for more than
    `MAX_CELLS` cells; `NotReady` where the equations have no solution, as noise may have it
    that many cells have negative shares, or a cell has nobody with one of the two answers.
    """
    for column in columns:
        if any(isinstance(variable, Number) for variable in column):
            raise InvalidInput(
                "a logistic regression is on categories: collect the number in bins, or fit a "
                "linear one"
            )
    given = checked(records, response, columns)
    cells = Cells(given[0], columns)
    n = sum(each.n for each in given)
    scores = [_Scores(each, response, columns, cells) for each in given]
    weights = np.ones(len(given))
    value = _newton(scores, weights, cells.design, n)
    spreads = [own.spread(value) for own in scores]
    if alike and len(given) > 1:
        weights = precision_weights(given, spreads)
        value = _newton(scores, weights, cells.design, n)
        spreads = [own.spread(value) for own in scores]
    each = zip(weights, scores, strict=True)
    shares: Floats = np.sum([w * own.shares for w, own in each], axis=0) / n
    slope = _slope(shares, cells.design, value)
    apart = np.zeros_like(slope)
    if not alike:
        apart = between(given, [own.away(cells.design, value) for own in scores])
    covariance = sandwich(slope, given, weights, spreads, apart)
    return Fit(value, covariance, n, method_of(given, alike), naive_fit(given, response, columns))


def naive_fit(
    records: Sequence[Records], response: Indicator, columns: Sequence[Product]
) -> Floats:
    """Return the fit that takes the codes for the truth; nan where a code is no value."""
    nan = np.full(len(columns), np.nan)
    places = {v.place for column in columns for v in column} | {response.place}
    for own in records:
        for place in places:
            mechanism = own.mechanisms[place]
            if not isinstance(mechanism, Counted) or mechanism.tally_size != mechanism.parameters:
                return nan
    pieces = []
    for own in records:
        kept, weight = compressed(own)

        def taken(variable: Indicator, kept: Records = kept) -> Floats:
            found: Floats = (kept.codes[variable.place] == variable.value).astype(float)
            return found

        x = np.ones((kept.n, len(columns)))
        for number, column in enumerate(columns):
            for variable in column:
                assert isinstance(variable, Indicator)
                x[:, number] *= taken(variable)
        pieces.append((x, taken(response), weight))
    x, y, weight = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    value = np.zeros(len(columns))
    for _ in range(_STEPS):
        chance = expit(x @ value)
        slope = (x.T * (weight * chance * (1 - chance))) @ x
        move = np.linalg.lstsq(slope, x.T @ (weight * (y - chance)), rcond=None)[0]
        value = value + move
        if np.abs(value).max() > _FAR:
            return nan
        if np.abs(move).max() < 1e-10:
            break
    return value


class Cells:
    """The combinations of the values of the attributes in a model's columns."""

    def __init__(self, records: Records, columns: Sequence[Product]) -> None:
        self.places = sorted({variable.place for column in columns for variable in column})
        sizes = []
        for place in self.places:
            mechanism = records.mechanisms[place]
            if not isinstance(mechanism, Categorical):
                raise InvalidInput(f"{mechanism.name} has no values")
            sizes.append(mechanism.k)
        if prod(sizes) > MAX_CELLS:
            raise InvalidInput(
                f"a logistic regression is on {MAX_CELLS} combinations of values at most, "
                f"got {' x '.join(map(str, sizes))}"
            )
        self.sizes = tuple(sizes)
        grid = dict(zip(self.places, np.indices(self.sizes), strict=True))
        design = np.ones((*self.sizes, len(columns)))
        for number, column in enumerate(columns):
            for variable in column:
                assert isinstance(variable, Indicator)
                design[..., number] *= grid[variable.place] == variable.value
        self.design = design.reshape(-1, len(columns))

    def contracted(self, factors: Factors, table: Floats) -> Floats:
        """Return the sums over cells of the records' w(c) table(c), of shape (n, parameters)."""
        found = np.broadcast_to(
            table.reshape(1, *self.sizes, -1), (factors.n, *self.sizes, table.shape[-1])
        )
        for place in self.places:
            found = np.einsum("nc,nc...->n...", factors.categories(place), found)
        return found

    def shares(self, factors: Factors, weight: Floats) -> Floats:
        """Return the sums over the records of their estimates of the cells, shape (cells,)."""
        found = weight[:, None]
        for place in self.places:
            own = factors.categories(place)
            found = (found[:, :, None] * own[:, None, :]).reshape(factors.n, -1)
        total: Floats = found.sum(axis=0)
        return total


class _Scores:
    """The sums of the corrected score over some records."""

    def __init__(
        self, records: Records, response: Indicator, columns: Sequence[Product], cells: Cells
    ) -> None:
        self._records, self._weights = compressed(records)
        self._response, self._columns, self._cells = response, columns, cells
        self.shares = np.zeros(len(cells.design))
        self.right = np.zeros(len(columns))
        for factors, weight, right in self._blocks():
            self.shares += cells.shares(factors, weight)
            self.right += weight @ right

    def _blocks(self) -> Iterator[tuple[Factors, Floats, Floats]]:
        step = max(1, min(BLOCK, (1 << 22) // self._cells.design.size))
        for start in range(0, self._records.n, step):
            block = slice(start, start + step)
            factors = Factors(self._records, block)
            y = factors.of(self._response)
            right = np.stack([plain(factors, column) * y for column in self._columns], axis=1)
            yield factors, self._weights[block], right

    def away(self, design: Floats, value: Floats) -> Floats:
        """Return the sum over the records of s."""
        found: Floats = self.right - design.T @ (self.shares * expit(design @ value))
        return found

    def spread(self, value: Floats) -> Floats:
        """Return the sum over the records of s s', about the mean of s."""
        design = self._cells.design
        table = expit(design @ value)[:, None] * design
        p = len(self._columns)
        total, second, n = np.zeros(p), np.zeros((p, p)), 0.0
        for factors, weight, right in self._blocks():
            s = right - self._cells.contracted(factors, table)
            total += weight @ s
            second += (s.T * weight) @ s
            n += weight.sum()
        return second - np.outer(total, total) / n


def _slope(shares: Floats, design: Floats, value: Floats) -> Floats:
    """Return the sum over cells of shares sigma (1 - sigma) x x'."""
    chance = expit(design @ value)
    found: Floats = (design.T * (shares * chance * (1 - chance))) @ design
    return found


def _newton(scores: Sequence[_Scores], weights: Floats, design: Floats, n: int) -> Floats:
    """Solve the mean corrected score; raise `NotReady` where it has no solution."""
    each = list(zip(weights, scores, strict=True))
    shares = np.sum([w * own.shares for w, own in each], axis=0) / n
    right = np.sum([w * own.right for w, own in each], axis=0) / n
    # The steps are those of the most likely shares' information: it is positive definite.
    positive = np.maximum(shares, 0) + 1e-3 / shares.size
    value = np.zeros(design.shape[1])

    def away(value: Floats) -> Floats:
        found: Floats = right - design.T @ (shares * expit(design @ value))
        return found

    score = away(value)
    for step in range(_STEPS):
        slope = _slope(shares, design, value)
        if np.linalg.eigvalsh(slope).min() <= 0:
            slope = _slope(positive, design, value)
        try:
            move = np.linalg.solve(slope, score)
        except np.linalg.LinAlgError:
            break
        size = min(1.0, 4 / max(np.abs(move).max(), 1e-12))
        while size > 1e-6:
            tried = away(value + size * move)
            if np.abs(tried).max() < np.abs(score).max() or step == 0:
                break
            size /= 2
        value, score = value + size * move, tried
        if np.abs(score).max() < 1e-10:
            if np.linalg.eigvalsh(_slope(shares, design, value)).min() > 0:
                return np.asarray(value)
            break
        if np.abs(value).max() > _FAR:
            break
    raise NotReady(
        f"the equations of this logistic regression have no solution in {n} randomised records: "
        "collect more, leave columns out, or fit by maximum likelihood"
    )
