"""Projective geometry response: supports that are hyperplanes over a finite field."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import MAX_OUTPUTS, Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, exp_bounds, include_threshold
from ldp.core.mechanism import Codes, Counted, FrequencyOracle, check_threshold
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.tools.finite_field import MAX_EXTENSION, Field, field, is_order

_MAX_ORDER = 65521  # the largest prime below 2**16
_MAX_POINTS = 1 << 24
_BLOCK = 1 << 13
"""Reports per block: as many as fit a core's cache."""


@dataclass(frozen=True)
class ProjectiveGeometry(Counted, FrequencyOracle):
    """Report a point of a projective space, likelier one on the category's hyperplane.

    Categories and reports are points of the projective space of `dimension` coordinates over
    the field of `order` elements (`tools.finite_field.Field`): vectors whose first coordinate
    that is not 0 is 1, numbered by the number of coordinates after it and then by those, read
    as a number to the base `order`. A report y is uniform among the points with <v, y> = 0
    with include / 2**64, otherwise uniform among the others. Any two hyperplanes meet in
    equally many points, so the oracle is pure.
    Without integers the order and dimension are those of least variance among the prime
    powers next to e**epsilon + 1 and the tightest spaces for k; orders beyond 256 are primes.
    For k >= 1024 and epsilon <= 4 the variance is within 2% of the minimax constant; for k of
    65536 or more, where the best space may be beyond the limits below, that holds up to
    epsilon = 5.5, and at 8 it can be three times the constant.
    With dimension 2 it is k-RR on order + 1 answers.
    Guarantee: epsilon-LDP for every pair of categories; with p = include / 2**64, K points and
    c of them on a hyperplane, e**realised_epsilon = p (K - c) / ((1 - p) c) <= e**epsilon.
    Cost: one code of 1, 2 or 4 bytes; a tally holds K counts, and its supports take
    O(K dimension min(order, log K)) operations (order instead of the logarithm unless the
    order is a prime). Raises `InvalidInput` unless 2 <= k <= 2**20, k <= K <= 2**24
    and order**dimension <= 2**32.
    Source: Feldman, Nelson, Nguyen and Talwar, "Private frequency estimation via projective
    geometry", ICML 2022.
    """

    name: ClassVar[str] = "projective"
    two_valued: ClassVar[bool] = True
    k: int
    epsilon: float
    order: int = 0
    dimension: int = 0
    include: int = 0

    def _calibrate(self) -> None:
        self._check_k(1 << 20)
        if self.order == 0 and self.dimension == 0:
            trials = (type(self)(self.k, self.epsilon, *s) for s in _spaces(self.k, self.epsilon))
            best = min(trials, key=lambda trial: float(trial.variance(1 / self.k, 1)))
            object.__setattr__(self, "order", best.order)
            object.__setattr__(self, "dimension", best.dimension)
        if not _is_space(self.k, self.order, self.dimension):
            raise InvalidInput(
                f"{self.name}: no space of {self.k}..{_MAX_POINTS} points has order {self.order}, "
                f"a prime or a prime power up to {MAX_EXTENSION}, and dimension {self.dimension}"
            )
        if self.include == 0:
            include = include_threshold(self._on, self._outside, self.epsilon)
            object.__setattr__(self, "include", include)
        check_threshold(f"{self.name}: include", self.include)
        if self.include * self.points <= self._on * ONE:
            raise InvalidInput(
                f"{self.name}: include must exceed a hyperplane's share of the points, "
                f"got {self.include}"
            )

    @property
    def points(self) -> int:
        """The number K of points of the space."""
        return _points(self.order, self.dimension)

    @property
    def _on(self) -> int:
        """The number of points of a hyperplane."""
        return _points(self.order, self.dimension - 1)

    @property
    def _outside(self) -> int:
        """The number of points that are not on a hyperplane."""
        return int(self.order ** (self.dimension - 1))

    @property
    def _field(self) -> Field:
        return field(self.order)

    def _worst_ratio(self) -> Fraction:
        return Fraction(self.include * self._outside, (ONE - self.include) * self._on)

    @property
    def named(self) -> None:
        return None

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        on, both = self._on, _points(self.order, self.dimension - 2)
        p = Fraction(self.include, ONE)
        return p, p * Fraction(both, on) + (1 - p) * Fraction(on - both, self._outside)

    @property
    def tally_size(self) -> int:
        return self.points

    def randomize(self, value: int, coins: Coins) -> int:
        value = self._check_value(value)
        on = coins.bernoulli(self.include)
        f, t = self._field, self.dimension
        points, levels = self._coordinates(np.array([value]))
        v, pivot = points[:, 0].tolist(), t - 1 - int(levels[0])
        y = [0] * t
        while not any(y):
            drawn = coins.below(self.order**t)
            for j in range(t - 1, -1, -1):
                drawn, y[j] = divmod(drawn, self.order)
            product = 0
            for a, b in zip(v, y, strict=True):
                product = f.add(product, f.multiply(a, b))
            y[pivot] = f.add(y[pivot], f.add(int(not on), f.negative(product)))
        free = t - 1 - next(j for j in range(t) if y[j])
        scale = f.inverse(y[t - 1 - free])
        number = 0
        for digit in y:
            number = number * self.order + int(f.multiply(scale, digit))
        return number - int(self._gaps[free])

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = self._check_values(values)
        codes = np.empty(array.size, dtype=self.code_dtype)
        for start in range(0, array.size, _BLOCK):
            block = array[start : start + _BLOCK]
            on = coins.bernoulli_many(self.include, block.size)
            codes[start : start + _BLOCK] = self._draw(block, on, coins)
        return codes

    def _draw(
        self, values: NDArray[Any], on: NDArray[np.bool_], coins: Coins
    ) -> NDArray[np.uint32]:
        """Return a uniform point on each value's hyperplane, or off it where `on` is False.

        A vector is drawn uniformly, and its coordinate at the value's leading 1 replaced by
        the only one that makes the product 0, or 1. Each point off the hyperplane has exactly
        one multiple with product 1; each on it order - 1 with product 0, and the zero vector,
        which is drawn again.
        """
        f, t = self._field, self.dimension
        v, level = self._coordinates(values)
        y = self._digits(coins.below_many(self.order**t, values.size))
        product = f.multiply(v[0], y[0])
        for j in range(1, t):
            product = f.add(product, f.multiply(v[j], y[j]))
        rows = np.arange(values.size)
        flat = y.reshape(-1)
        leading = (t - 1 - level) * values.size + rows
        change = f.add((~on).astype(np.uint32), f.negative(product))
        flat[leading] = f.add(flat.take(leading), change)
        level = _reached(self._number(y), [self.order**free for free in range(1, t)])
        scale = f.inverse(flat.take((t - 1 - level) * values.size + rows))
        codes = self._number(f.multiply(scale, y)) - self._gaps.take(level)
        again = np.flatnonzero(scale == 0)
        if again.size:
            codes[again] = self._draw(values[again], on[again], coins)
        return codes

    def _number(self, vectors: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return vectors, shape (dimension, n), as numbers to the base `order`."""
        number: NDArray[np.uint32] = vectors[0]
        for digit in vectors[1:]:
            number = number * self.order + digit
        return number

    @cached_property
    def _gaps(self) -> NDArray[np.uint32]:
        """A point's number to the base `order` minus its index, by level, shape (dimension,)."""
        levels = range(self.dimension)
        gaps = [self.order**free - _points(self.order, free) for free in levels]
        return np.array(gaps, dtype=np.uint32)

    def _coordinates(self, points: NDArray[Any]) -> tuple[NDArray[np.uint32], NDArray[np.intp]]:
        """Return the points' coordinates, (dimension, n), and the number after each leading 1."""
        ends = [_points(self.order, free) for free in range(1, self.dimension)]
        level = _reached(points, ends)
        return self._digits(points.astype(np.uint32) + self._gaps.take(level)), level

    def _digits(self, numbers: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the digits to the base `order`, most significant first: (dimension, n)."""
        digits = np.empty((self.dimension, numbers.size), dtype=np.uint32)
        for j in range(self.dimension - 1, -1, -1):
            rest = numbers // self.order
            digits[j] = numbers - rest * self.order
            numbers = rest
        return digits

    def supports(self, tally: Tally) -> NDArray[np.int64]:
        return hyperplane_counts(tally.counts, self._field, self.dimension)[: self.k]

    def _supported(self, codes: Codes, value: int) -> NDArray[Any]:
        f = self._field
        points, _ = self._coordinates(np.append(codes, value))
        product = np.zeros(len(codes), dtype=np.uint32)
        for column in points:
            product = f.add(product, f.multiply(column[:-1], column[-1:]))
        supported: NDArray[Any] = product == 0
        return supported

    def matrix(self) -> NDArray[np.float64]:
        within, without = self._chances()
        return np.where(self._incidence(), float(within), float(without))

    def channel(self) -> Channel:
        """Enumerate the k x K channel."""
        if self.points > MAX_OUTPUTS:
            raise InvalidInput(f"a channel of {self.points} codes is too large to enumerate")
        within, without = self._chances()
        rows = (tuple(within if on else without for on in row) for row in self._incidence())
        return Channel(tuple(range(self.points)), tuple(rows))

    def _chances(self) -> tuple[Fraction, Fraction]:
        """Return the probability of one point on the own hyperplane, and of one off it."""
        p = Fraction(self.include, ONE)
        return p / self._on, (1 - p) / self._outside

    def _incidence(self) -> NDArray[np.bool_]:
        """Tell which of the K points lie on each category's hyperplane, shape (k, K)."""
        f = self._field
        points, _ = self._coordinates(np.arange(self.points))
        product = np.zeros((self.k, self.points), dtype=np.uint32)
        for column in points:
            product = f.add(product, f.multiply(column[: self.k, None], column))
        on: NDArray[np.bool_] = product == 0
        return on


def _reached(numbers: NDArray[Any], bounds: list[int]) -> NDArray[np.intp]:
    """Return the number of `bounds` that each number reaches, shape (n,)."""
    reached = np.zeros(numbers.size, dtype=np.uint8)
    for bound in bounds:
        reached += numbers >= bound
    return reached.astype(np.intp)


def hyperplane_counts(counts: NDArray[np.int64], field: Field, dimension: int) -> NDArray[np.int64]:
    """Return for each point v the sum of the counts at the points y with <v, y> = 0.

    Both are indexed as in `ProjectiveGeometry`. The points split into those with first
    coordinate 0, a projective space of one dimension less, and (1, y') with y' any vector:
    <(0, u), y> = 0 needs <u, y'> = 0 of both parts, <(1, a u), (1, y')> = 0 needs
    <u, y'> = -1 / a. So one pass over the dimensions adds the counts of the vectors y'.
    """
    q = field.order
    elements = np.arange(q)
    inverse = field.inverse(elements[1:])
    opposite = field.negative(inverse)
    start, total = 1, counts[0]
    sums = np.zeros(1, dtype=np.int64)  # the only point of dimension 1 is not on its hyperplane
    for free in range(1, dimension):
        vectors = counts[start : start + q**free]
        planes = _affine_planes(vectors, field, free)
        top = np.empty(q**free, dtype=np.int64)
        top[0] = total
        first, rest = 0, np.zeros((q - 1, 1), dtype=np.int64)
        for level in range(free):
            # Vectors a (1, w): rest[a - 1] are the indices of w by the digits of a w.
            size = q**level
            if level:
                digits = field.multiply(inverse[:, None], elements) * (size // q)
                rest = (digits[:, :, None] + rest[:, None, :]).reshape(q - 1, size)
            part = sums[first + rest] + planes[opposite[:, None], first + rest]
            top[size : size * q] = part.ravel()
            first += size
        sums = np.concatenate([sums + planes[0], top])
        total += vectors.sum()
        start += vectors.size
    return sums


def _affine_planes(vectors: NDArray[np.int64], field: Field, free: int) -> NDArray[np.int64]:
    """Return for each c and point u the sum over the vectors y with <u, y> = c."""
    q = field.order
    planes = _planes_by_fourier if field.is_prime and q > _FOURIER else _planes_by_prefix
    levels = []
    for level in range(free):
        state = vectors.reshape(-1, q, q**level).sum(axis=0)  # u starts with zeros and a 1
        levels.append(planes(state, field, level))
    return np.concatenate(levels, axis=1)


_FOURIER = 16
"""The order of a prime field from which the Fourier transform is quicker."""


def _planes_by_prefix(state: NDArray[np.int64], field: Field, level: int) -> NDArray[np.int64]:
    """Return for each c and u of `level` coordinates the sum over y, first, of
    state[first, y] with first + <u, y> = c.

    The dynamic program over prefixes of Feldman et al. 2022, section 4: a state holds, by c
    and the coordinates that are still open, the sums over those already fixed by the prefix
    of u; each step exchanges one open coordinate y for one of u, adding u y to c.
    """
    q = field.order
    y = np.arange(q)
    for _ in range(level):
        state = state.reshape(q, q, -1)
        exchanged = np.empty((q, state.shape[2], q), dtype=np.int64)
        for u in range(q):
            source = field.add(y[:, None], field.negative(field.multiply(u, y)))
            exchanged[:, :, u] = state[source, y].sum(axis=1)
        state = exchanged
    return state.reshape(q, -1)


def _planes_by_fourier(state: NDArray[np.int64], field: Field, level: int) -> NDArray[np.int64]:
    """Return `_planes_by_prefix` in a prime field by Fourier transform: at frequency z of c
    the answer's transform is the state's at frequencies z and z u.

    Doubles are exact here: the error is about 1e-15 of the reports, and sums are integers.
    """
    q = field.order
    spectrum = np.fft.fftn(state.reshape((q,) * (level + 1))).reshape(q, -1)
    z = np.arange(q)[:, None]
    multiples = np.zeros((q, 1), dtype=np.int64)  # the index of z u, by z and u
    for place in (q**i for i in range(level)):
        digits = z * np.arange(q) % q * place
        multiples = (digits[:, :, None] + multiples[:, None, :]).reshape(q, -1)
    return np.rint(np.fft.ifft(spectrum[z, multiples], axis=0).real).astype(np.int64)


def _spaces(k: int, epsilon: float) -> Iterator[tuple[int, int]]:
    """Yield candidate (order, dimension): the orders next to e**epsilon + 1, and for each
    dimension the smallest order with k points."""
    ideal = min(int(exp_bounds(Fraction(epsilon))[0]) + 1, _MAX_ORDER)
    orders = [next(q for q in range(ideal, 1, -1) if is_order(q))]
    orders += [q for q in range(ideal + 1, min(2 * ideal, _MAX_ORDER) + 1) if is_order(q)][:1]
    for order in orders:
        dimension = 2
        while _points(order, dimension) < k:
            dimension += 1
        if _is_space(k, order, dimension):
            yield order, dimension
    for dimension in range(2, k.bit_length() + 1):
        order = max(2, int(k ** (1 / (dimension - 1))) - 1)
        while not (is_order(order) and _points(order, dimension) >= k):
            order += 1
        if _is_space(k, order, dimension):
            yield order, dimension


def _points(order: int, dimension: int) -> int:
    """Return the number of points of a projective space of that many coordinates."""
    return int((order**dimension - 1) // (order - 1))


def _is_space(k: int, order: int, dimension: int) -> bool:
    """Tell whether the space has k points and not too many, and its vectors fit 32 bits."""
    return (
        2 <= order <= _MAX_ORDER
        and 2 <= dimension <= 32
        and is_order(order)
        and order**dimension <= 1 << 32
        and k <= _points(order, dimension) <= _MAX_POINTS
    )
