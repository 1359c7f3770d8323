"""Linear regression from randomised records, with standard errors.

The reports of a record are independent given the record. So whatever is a sum of products, one
factor for each attribute, has an unbiased estimate in every record: the product of unbiased
estimates. The normal equations of least squares are such sums, and so is the score of a logistic
regression on categories (`ldp.estimating.logistic`): solving the mean of these estimates gives a
consistent estimate, whose error is that of the estimating equations (Carroll, Ruppert, Stefanski
and Crainiceanu, "Measurement error in nonlinear models", 2006, sections 5.4 and 7.1: corrected
scores, for errors whose distribution is known, as here it is exactly).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, prod

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ldp.core.intervals import Interval, interval
from ldp.core.mechanism import Categorical, Codes, Counted, Mechanism
from ldp.core.repeated import Repeats
from ldp.errors import InvalidInput, NotReady
from ldp.estimating.pairs import reading
from ldp.mechanisms.numbers.mean import MeanMechanism

Floats = NDArray[np.float64]

MAX_COLUMNS = 64
"""The most columns of a model."""

BLOCK = 1 << 12
"""Records that are worked on at once."""

FEW = 10
"""The least records for each equation of a level whose spread is taken for known."""

_SAME = 1e-12
"""The share of an equation's own square below which its spread over the records is rounding."""

_EXACT = 1e-8
"""By how much a square may be estimated with a bias, on the scale where it is 1 at most."""

CLEAR = 3.0
"""Standard errors by which the regressors' least eigenvalue must exceed zero, without a warning."""


@dataclass(frozen=True)
class Indicator:
    """The variable that is 1 where an attribute, by its place in the records, has a value."""

    place: int
    value: int


@dataclass(frozen=True)
class Number:
    """The variable that is an attribute's number, in units in which it lies in [low, high]."""

    place: int
    low: float = -1.0
    high: float = 1.0


Variable = Indicator | Number
Product = tuple[Variable, ...]
"""Variables of different attributes, multiplied; the empty product is 1, an intercept."""


@dataclass(frozen=True, eq=False)
class Records:
    """Records that report the same attributes at the same levels.

    `mechanisms` are those of the attributes; `codes` has for each the codes of all records, in
    the same order, as `Mechanism.decode` returns them. `repeats` is as of `Cohorts`.
    """

    mechanisms: Sequence[Mechanism]
    codes: Sequence[Codes]
    repeats: Repeats = field(default_factory=Repeats)

    def __post_init__(self) -> None:
        sizes = {len(codes) for codes in self.codes}
        if len(self.mechanisms) != len(self.codes) or len(sizes) > 1:
            raise InvalidInput(
                f"{len(self.mechanisms)} attributes need as many arrays of codes, of one length, "
                f"got {len(self.codes)} of {sorted(sizes)}"
            )

    @property
    def n(self) -> int:
        """The number of records."""
        return len(self.codes[0]) if self.codes else 0


@dataclass(frozen=True, eq=False)
class Fit:
    """The coefficients of a regression, one for each column, with their covariance.

    `naive` are the coefficients that one would get by taking randomised answers for true ones;
    nan where there are none. It `is_doubtful` where the columns can hardly be told apart.
    """

    value: Floats
    covariance: Floats
    n: int
    method: str
    naive: Floats
    is_doubtful: bool = False

    @property
    def standard_error(self) -> Floats:
        """The standard errors of the coefficients."""
        error: Floats = np.sqrt(np.maximum(np.diag(self.covariance), 0))
        return error

    @property
    def z(self) -> Floats:
        """The coefficients in standard errors; 0 where the error is 0, and so unknown."""
        error = self.standard_error
        return np.divide(self.value, error, out=np.zeros_like(error), where=error > 0)

    @property
    def p_value(self) -> Floats:
        """The p-values of the two-sided tests that each coefficient is zero."""
        p: Floats = 2 * ndtr(-np.abs(self.z))
        return p

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Interval:
        """Return Wald intervals; with `simultaneous` all cover at once (Bonferroni).

        Raises `InvalidInput` unless 0 < confidence < 1.
        """
        together = self.value.size if simultaneous else 1
        no_bounds = -inf, inf
        return interval(self.value, self.standard_error, no_bounds, confidence, together=together)


@lru_cache(maxsize=64)
def square_scores(mechanism: MeanMechanism) -> Floats:
    """Return an unbiased estimate of the square of a number from each code, shape (codes,).

    The number is that on the grid, whose square is above the true one by less than 1 / steps**2
    on average. Exact by the channel: a combination of 1, z and z**2, z being the code's score,
    where there is one, else the shortest solution. Raises `InvalidInput` where no function of the
    code is unbiased for the square, as for one bit.
    """
    grid = np.linspace(-1, 1, mechanism.steps + 1)
    channel = mechanism.matrix()
    scores = reading(mechanism).slope[:, 1]
    powers = np.stack([np.ones_like(scores), scores, scores**2], axis=1)
    if mechanism.steps > 1:
        found = powers @ np.linalg.lstsq(channel @ powers, grid**2, rcond=None)[0]
        if np.abs(channel @ found - grid**2).max() < _EXACT:
            return np.asarray(found)
        if channel.size <= 1 << 20:
            found = np.linalg.lstsq(channel, grid**2, rcond=None)[0]
            if np.abs(channel @ found - grid**2).max() < _EXACT:
                return np.asarray(found)
    raise InvalidInput(
        f"{mechanism.name} reports tell nothing of a number's square, which a regressor needs: "
        "it can only be what is explained, or be collected by piecewise"
    )


def linear(
    records: Sequence[Records],
    response: Variable,
    columns: Sequence[Product],
    *,
    alike: bool = False,
) -> Fit:
    """Regress the response on the columns by least squares.

    Of each record, M estimates x x' and m estimates x y without bias; the coefficients b solve
    mean(M) b = mean(m), and have the covariance mean(M)**-1 cov(m - M b) mean(M)**-1 / n, whatever
    the residuals' distribution (Huber's sandwich). All records count alike, and so b is of the
    people who answered, at whatever level, and its covariance allows for levels whose people
    differ; if `alike`, all levels are samples of one population, and count by the precision of
    their equations. With repeats the covariance is multiplied by their factor
    (`ldp.core.repeated`). Cost: O(n columns**2), in blocks of records.

    Raises `InvalidInput` for an attribute that is in the response and in a column, or twice in
    one, for columns that are no product of variables of their attributes, and where a number's
    square cannot be estimated; `NotReady` where there are fewer records than columns, too few to
    tell the columns apart, or where all say the same of the response, so that its spread is not
    known. Source: Carroll et al. 2006, section 5.4; the M of a number is from
    the exact channel.
    """
    given = checked(records, response, columns)
    equations = [_Equations(each, response, columns) for each in given]
    n = sum(each.n for each in given)
    weights = np.ones(len(given))
    matrix, value, spreads = _least_squares(equations, weights, n)
    if alike and len(given) > 1:
        weights = precision_weights(given, spreads)
        matrix, value, spreads = _least_squares(equations, weights, n)
    apart = (
        np.zeros_like(matrix) if alike else between(given, [own.away(value) for own in equations])
    )
    covariance = sandwich(matrix, given, weights, spreads, apart)
    spread = np.sum([w**2 * own for w, own in zip(weights, spreads, strict=True)], axis=0) + apart
    squares = n * (np.abs(matrix) @ np.abs(value)) ** 2
    if (np.diag(spread) <= _SAME * squares).any():
        raise NotReady(
            f"{n} randomised records say the same of what is explained: collect more, or there is "
            "no telling how far the coefficients are off"
        )
    clear = _is_clear(equations, weights, matrix, n)
    return Fit(value, covariance, n, method_of(given, alike), _naive(equations), not clear)


def _least_squares(
    equations: Sequence["_Equations"], weights: Floats, n: int
) -> tuple[Floats, Floats, list[Floats]]:
    """Return the mean M of weighed records, the b that solves them, and the spreads at b."""
    each = list(zip(weights, equations, strict=True))
    matrix: Floats = np.sum([w * own.matrix for w, own in each], axis=0) / n
    right: Floats = np.sum([w * own.right for w, own in each], axis=0) / n
    value = _solved(matrix, right, n)
    return matrix, value, [own.spread(value) for own in equations]


def precision_weights(records: Sequence[Records], spreads: Sequence[Floats]) -> Floats:
    """Return weights of each level's records by the precision of their equations, of mean one.

    `spreads` are the sums of s s' of each level's records. Levels with fewer than `FEW` records for
    each equation count as the least precise one: their own spread is hardly known.
    """
    counts = np.array([own.n for own in records], dtype=float)
    known = counts >= FEW * len(spreads[0])
    if not known.any():
        return np.ones_like(counts)
    traces = np.array([np.trace(spread) for spread in spreads])
    precise = counts / np.where(known, traces, 1)
    precise[~known] = precise[known].min()
    weights: Floats = precise * counts.sum() / (precise @ counts)
    return weights


def between(records: Sequence[Records], totals: Sequence[Floats]) -> Floats:
    """Return the part of the sum of s s' that is between levels whose people differ.

    `totals` are the sums of s of each level's records. Who answers at which level is a sample; as
    the same people may come at several levels, the largest factor of repeats multiplies it.
    """
    each = zip(records, totals, strict=True)
    found: Floats = np.sum([np.outer(total, total) / own.n for own, total in each], axis=0)
    return max(own.repeats.factor for own in records) * found


def sandwich(
    slope: Floats,
    records: Sequence[Records],
    weights: Floats,
    spreads: Sequence[Floats],
    apart: Floats,
) -> Floats:
    """Return the covariance of the solution of mean equations of this slope.

    `spreads` are the sums of s s' of each level's records, which have these weights, about the
    level's own mean; `apart` is what levels add whose people differ (`between`).
    """
    n = sum(own.n for own in records)
    each = zip(weights, records, spreads, strict=True)
    inner = np.sum([w**2 * own.repeats.factor * spread for w, own, spread in each], axis=0) + apart
    inverse = np.linalg.inv(slope)
    covariance: Floats = inverse @ inner @ inverse.T / n**2
    return covariance


def method_of(records: Sequence[Records], alike: bool) -> str:
    """Return the name of a corrected fit's method."""
    if len(records) == 1:
        return "corrected"
    return f"corrected, {'pooled' if alike else 'stratified'}"


def checked(
    records: Sequence[Records], response: Variable, columns: Sequence[Product]
) -> list[Records]:
    """Return the records that there are; raise `InvalidInput` for a model that cannot be."""
    if not 1 <= len(columns) <= MAX_COLUMNS:
        raise InvalidInput(f"a model has 1..{MAX_COLUMNS} columns, got {len(columns)}")
    for column in columns:
        places = [variable.place for variable in column]
        if len(set(places)) < len(places):
            raise InvalidInput("a column has one variable of an attribute, got two")
        if response.place in places:
            raise InvalidInput("what is explained cannot explain itself")
    if len(set(columns)) < len(columns):
        raise InvalidInput("a model has each column once, got one twice")
    given = [each for each in records if each.n]
    n = sum(each.n for each in given)
    if n <= len(columns):
        raise NotReady(f"{n} records are too few for a model of {len(columns)} columns")
    return given


class Factors:
    """The estimates of variables in some records, each computed once."""

    def __init__(self, records: Records, block: slice) -> None:
        self._records = records
        self._block = block
        self._counted: dict[int, Floats] = {}
        self._kept: dict[tuple[Variable, bool], Floats] = {}
        self.n = len(records.codes[0][block])

    def categories(self, place: int) -> Floats:
        """Return the estimates of the values' indicators of an attribute, shape (n, k)."""
        if place not in self._counted:
            mechanism = self._records.mechanisms[place]
            codes = self._records.codes[place][self._block]
            if isinstance(mechanism, Counted):
                self._counted[place] = reading(mechanism).slope[codes]
            else:
                counts = mechanism.each_counted(codes).astype(float)
                self._counted[place] = reading(mechanism).of(counts)
        return self._counted[place]

    def of(self, variable: Variable, *, squared: bool = False) -> Floats:
        """Return the estimates of a variable or of its square, shape (n,)."""
        key = variable, squared
        if key not in self._kept:
            self._kept[key] = self._computed(variable, squared)
        return self._kept[key]

    def _computed(self, variable: Variable, squared: bool) -> Floats:
        mechanism = self._records.mechanisms[variable.place]
        if isinstance(variable, Indicator):
            if not isinstance(mechanism, Categorical) or not 0 <= variable.value < mechanism.k:
                raise InvalidInput(f"{mechanism.name} has no value {variable.value}")
            found: Floats = self.categories(variable.place)[:, variable.value]
            return found
        if not isinstance(mechanism, MeanMechanism):
            raise InvalidInput(f"{mechanism.name} reports no number")
        middle, half = (variable.low + variable.high) / 2, (variable.high - variable.low) / 2
        scores = reading(mechanism).slope[:, 1]
        table = middle + half * scores
        if squared:
            table = middle**2 + 2 * middle * half * scores + half**2 * square_scores(mechanism)
        numbers: Floats = table[self._records.codes[variable.place][self._block]]
        return numbers

    def product(self, one: Product, other: Product) -> Floats | None:
        """Return the estimates of the product of two columns; None where it is always zero."""
        found = np.ones(self.n)
        theirs = {variable.place: variable for variable in other}
        for variable in one:
            same = theirs.pop(variable.place, None)
            if same is None:
                found *= self.of(variable)
            elif isinstance(variable, Number):
                found *= self.of(variable, squared=True)
            elif same == variable:
                found *= self.of(variable)
            else:
                return None
        for variable in theirs.values():
            found *= self.of(variable)
        return found


class _Equations:
    """The normal equations that some records estimate: sums over them."""

    def __init__(self, records: Records, response: Variable, columns: Sequence[Product]) -> None:
        self._records, self._response, self._columns = records, response, columns
        p = len(columns)
        self.matrix = np.zeros((p, p))
        self.right = np.zeros(p)
        self.squares = np.zeros((p, p))
        """Of the products of the estimates of the columns, as if they were the columns."""
        for each, weight, m, right in self._blocks():
            self.matrix += np.tensordot(weight, m, axes=1)
            self.right += weight @ right
            taken = np.stack([plain(each, column) for column in columns], axis=1)
            self.squares += (taken.T * weight) @ taken

    def _blocks(self) -> Iterator[tuple["Factors", Floats, Floats, Floats]]:
        """Yield the factors, weights, M and m of blocks of different records."""
        records, weights = compressed(self._records)
        p = len(self._columns)
        for start in range(0, records.n, BLOCK):
            block = slice(start, start + BLOCK)
            each = Factors(records, block)
            m = np.zeros((each.n, p, p))
            for a in range(p):
                for b in range(a, p):
                    found = each.product(self._columns[a], self._columns[b])
                    if found is not None:
                        m[:, a, b] = m[:, b, a] = found
            y = each.of(self._response)
            right = np.stack([plain(each, column) * y for column in self._columns], axis=1)
            yield each, weights[block], m, right

    def away(self, value: Floats) -> Floats:
        """Return the sum over the records of s, s being m - M b."""
        found: Floats = self.right - self.matrix @ value
        return found

    def spread(self, value: Floats) -> Floats:
        """Return the sum over the records of s s', about the mean of s."""
        p = len(self._columns)
        total, second, n = np.zeros(p), np.zeros((p, p)), 0.0
        for _, weight, m, right in self._blocks():
            s = right - m @ value
            total += weight @ s
            second += (s.T * weight) @ s
            n += weight.sum()
        return second - np.outer(total, total) / n

    def along(self, direction: Floats) -> tuple[float, float]:
        """Return the sums over the records of q and q**2, q being direction' M direction."""
        first = second = 0.0
        for _, weight, m, _ in self._blocks():
            q = np.einsum("i,nij,j->n", direction, m, direction)
            first += float(weight @ q)
            second += float(weight @ q**2)
        return first, second


def plain(factors: Factors, column: Product) -> Floats:
    """Return the estimates of a column."""
    found = factors.product(column, ())
    assert found is not None
    return found


def compressed(records: Records) -> tuple[Records, Floats]:
    """Return the different records, and how often each comes, where tallies count codes and the
    combinations of codes are fewer than the records; else all records, each once."""
    counted = all(isinstance(m, Counted) for m in records.mechanisms)
    sizes = [m.tally_size for m in records.mechanisms]
    if not counted or prod(sizes) >= records.n:
        return records, np.ones(records.n)
    places = np.ravel_multi_index([codes.astype(np.intp) for codes in records.codes], sizes)
    counts = np.bincount(places, minlength=prod(sizes))
    seen = np.flatnonzero(counts)
    codes = np.unravel_index(seen, sizes)
    return Records(records.mechanisms, codes, records.repeats), counts[seen].astype(float)


def _solved(matrix: Floats, right: Floats, n: int) -> Floats:
    """Solve the mean equations; raise `NotReady` where they tell the columns not apart."""
    scale = np.sqrt(np.abs(np.diag(matrix)))
    least = 0.0
    if (np.diag(matrix) > 0).all():
        least = np.linalg.eigvalsh(matrix / np.outer(scale, scale)).min()
    if least <= 1e-9:
        raise NotReady(
            f"{n} records are too few to tell the columns of this model apart, or some columns "
            "say the same: collect more, or leave some out"
        )
    return np.asarray(np.linalg.solve(matrix, right))


def _is_clear(equations: Sequence[_Equations], weights: Floats, matrix: Floats, n: int) -> bool:
    """Tell whether the regressors' least eigenvalue is above its noise."""
    scale = 1 / np.sqrt(np.diag(matrix))
    values, vectors = np.linalg.eigh(matrix * np.outer(scale, scale))
    direction = scale * vectors[:, 0]
    sums = [own.along(direction) for own in equations]
    variance = sum(w**2 * second for w, (_, second) in zip(weights, sums, strict=True)) / n**2
    return bool(values[0] > CLEAR * np.sqrt(variance))


def _naive(equations: Sequence[_Equations]) -> Floats:
    """Return the least squares that take each report's estimates for the truth."""
    squares = np.sum([own.squares for own in equations], axis=0)
    right = np.sum([own.right for own in equations], axis=0)
    return np.asarray(np.linalg.lstsq(squares, right, rcond=None)[0])
