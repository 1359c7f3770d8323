"""Small finite fields, as tables or modular arithmetic on numpy arrays."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp.errors import InvalidInput

_Table = NDArray[np.uint32]

MAX_EXTENSION = 1 << 8
"""The largest order that is not a prime: its tables have MAX_EXTENSION**2 entries, and beyond
it a prime is never more than 2% away."""


def is_prime(n: int) -> bool:
    """Tell whether n is prime, by trial division: meant for n < 2**32."""
    return n >= 2 and all(n % d for d in range(2, math.isqrt(n) + 1))


def next_prime(n: int) -> int:
    """Return the smallest prime >= n."""
    while not is_prime(n):
        n += 1
    return n


def _prime_power(n: int) -> tuple[int, int]:
    """Return (p, m) with n = p**m and p prime, or m = 0 where there are none; n >= 2."""
    p = next(d for d in range(2, n + 1) if n % d == 0)
    m = 1
    while p**m < n:
        m += 1
    return p, m if p**m == n else 0


def is_order(n: int) -> bool:
    """Tell whether `Field` has a field of n elements: a prime, or a prime power <= 256."""
    return is_prime(n) or (2 <= n <= MAX_EXTENSION and _prime_power(n)[1] > 0)


@dataclass(frozen=True)
class Field:
    """The field of `order` elements, which are the integers 0..order-1.

    A prime field is arithmetic modulo the prime. In an extension of degree m the base-p
    digits of an element are the coefficients of its polynomial, the least significant digit
    that of 1; products are reduced by the primitive monic polynomial x**m - r(x) whose r has
    the smallest such number, so that every client builds the same field.
    The operations take integers, or arrays of them that broadcast; those of a prime field keep
    an array's dtype, which must hold order**2. Raises `InvalidInput` for an order that
    `is_order` refuses.
    """

    order: int

    def __post_init__(self) -> None:
        if not is_order(self.order):
            raise InvalidInput(
                f"a field's order is a prime, or a prime power up to {MAX_EXTENSION}, "
                f"got {self.order}"
            )

    @cached_property
    def is_prime(self) -> bool:
        """Whether the field is arithmetic modulo a prime."""
        return is_prime(self.order)

    def add(self, a: Any, b: Any) -> Any:
        """Return a + b."""
        return self._reduced(a + b) if self.is_prime else self._sums.take(a * self.order + b)

    def multiply(self, a: Any, b: Any) -> Any:
        """Return a b."""
        return self._reduced(a * b) if self.is_prime else self._products.take(a * self.order + b)

    def negative(self, a: Any) -> Any:
        """Return -a."""
        return self._reduced(self.order - a) if self.is_prime else self._negatives.take(a)

    def inverse(self, a: Any) -> Any:
        """Return 1 / a, and 0 for 0."""
        return self._inverses.take(a)

    def _reduced(self, a: Any) -> Any:
        return a - a // self.order * self.order  # numpy has no vectorised remainder

    @cached_property
    def _exp_log(self) -> tuple[_Table, _Table]:
        """The powers of x, twice over so that logarithms add without a remainder, and logs."""
        p, m = _prime_power(self.order)
        for r in range(1, self.order):
            powers = _powers_of_x(p, m, r)
            if len(powers) == self.order - 1:
                log = np.zeros(self.order, dtype=np.uint32)
                log[powers] = np.arange(self.order - 1)
                return np.array(powers * 2, dtype=np.uint32), log
        raise AssertionError("every finite field has a primitive element")

    @cached_property
    def _sums(self) -> _Table:
        p, m = _prime_power(self.order)
        a, b = np.ogrid[: self.order, : self.order]
        sums = np.zeros((self.order, self.order), dtype=np.uint32)
        for place in (p**i for i in range(m)):
            sums += ((a // place + b // place) % p * place).astype(np.uint32)
        return sums.ravel()

    @cached_property
    def _products(self) -> _Table:
        exp, log = self._exp_log
        products: _Table = exp[log[:, None] + log]
        products[0, :] = products[:, 0] = 0
        return np.ravel(products)

    @cached_property
    def _negatives(self) -> _Table:
        sums = self._sums.reshape(self.order, self.order)
        negatives: _Table = np.argmin(sums, axis=1).astype(np.uint32)  # the b with a + b = 0
        return negatives

    @cached_property
    def _inverses(self) -> _Table:
        if self.is_prime:
            inverses = [0, *(pow(a, -1, self.order) for a in range(1, self.order))]
            return np.array(inverses, dtype=np.uint32)
        products = self._products.reshape(self.order, self.order)
        return np.array(np.argmax(products == 1, axis=1), dtype=np.uint32)  # 0 for 0


def _powers_of_x(p: int, m: int, r: int) -> list[int]:
    """Return 1, x, x**2, ... modulo x**m = r(x), up to the first repetition of 1 or 0."""
    tail = [r // p**i % p for i in range(m)]
    powers, element = [1], [1] + [0] * (m - 1)
    for _ in range(p**m):
        top = element[-1]
        element = [(c + top * t) % p for c, t in zip([0, *element[:-1]], tail, strict=True)]
        number = sum(c * p**i for i, c in enumerate(element))
        if number in (0, 1):
            break
        powers.append(number)
    return powers


@lru_cache(maxsize=8)
def field(order: int) -> Field:
    """Return the field of `order` elements, cached so that callers share its tables."""
    return Field(order)
