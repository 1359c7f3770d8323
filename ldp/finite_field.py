"""Small finite fields, as tables or modular arithmetic on numpy arrays."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ldp.errors import InvalidInput

Elements = NDArray[np.int64]

MAX_EXTENSION = 1 << 10
"""The largest order that is not a prime: its addition table has MAX_EXTENSION**2 entries."""


def is_prime(n: int) -> bool:
    """Tell whether n is prime, by trial division: meant for n < 2**32."""
    return n >= 2 and all(n % d for d in range(2, math.isqrt(n) + 1))


def next_prime(n: int) -> int:
    """Return the smallest prime >= n."""
    while not is_prime(n):
        n += 1
    return n


def prime_power(n: int) -> tuple[int, int] | None:
    """Return (p, m) with n = p**m and p prime, or None."""
    if n < 2:
        return None
    p = next((d for d in range(2, math.isqrt(n) + 1) if n % d == 0), n)
    m, rest = 0, n
    while rest % p == 0:
        rest //= p
        m += 1
    return (p, m) if rest == 1 else None


def is_order(n: int) -> bool:
    """Tell whether `Field` has a field of n elements: a prime, or a prime power <= 1024."""
    power = prime_power(n)
    return power is not None and (power[1] == 1 or n <= MAX_EXTENSION)


@dataclass(frozen=True)
class Field:
    """The field of `order` elements, which are the integers 0..order-1.

    A prime field is arithmetic modulo the prime. In an extension of degree m the base-p
    digits of an element are the coefficients of its polynomial, the least significant digit
    that of 1; products are reduced by the primitive monic polynomial x**m - r(x) whose r has
    the smallest such number, so that every client builds the same field.
    Arguments are int64 arrays of elements that broadcast. Raises `InvalidInput` for an order
    that `is_order` refuses.
    """

    order: int

    def __post_init__(self) -> None:
        if not is_order(self.order):
            raise InvalidInput(
                f"a field's order is a prime, or a prime power up to {MAX_EXTENSION}, "
                f"got {self.order}"
            )

    @cached_property
    def _power(self) -> tuple[int, int]:
        power = prime_power(self.order)
        assert power is not None
        return power

    @cached_property
    def _is_prime(self) -> bool:
        return self._power[1] == 1

    @cached_property
    def _exp_log(self) -> tuple[Elements, Elements]:
        """Powers of x (twice over, so that logarithms add without a remainder), and logs."""
        p, m = self._power
        for r in range(1, self.order):
            powers = _powers_of_x(p, m, r)
            if len(powers) == self.order - 1:
                log = np.zeros(self.order, dtype=np.int64)
                log[powers] = np.arange(self.order - 1)
                return np.array(powers * 2, dtype=np.int64), log
        raise AssertionError("every finite field has a primitive element")

    @cached_property
    def _sums(self) -> Elements:
        p, m = self._power
        a, b = np.ogrid[: self.order, : self.order]
        sums = sum((a // p**i + b // p**i) % p * p**i for i in range(m))
        return np.asarray(sums, dtype=np.int64).ravel()

    @cached_property
    def _products(self) -> Elements:
        exp, log = self._exp_log
        products = exp[log[:, None] + log[None, :]]
        products[0, :] = products[:, 0] = 0
        return products.ravel()

    @cached_property
    def _inverses(self) -> Elements:
        if self._is_prime:
            inverses = [0, *(pow(a, -1, self.order) for a in range(1, self.order))]
            return np.array(inverses, dtype=np.int64)
        exp, log = self._exp_log
        return np.where(np.arange(self.order) == 0, 0, exp[(self.order - 1) - log])

    def add(self, a: Elements, b: Elements) -> Elements:
        """Return a + b."""
        return (a + b) % self.order if self._is_prime else self._sums[a * self.order + b]

    def multiply(self, a: Elements, b: Elements) -> Elements:
        """Return a b."""
        return (a * b) % self.order if self._is_prime else self._products[a * self.order + b]

    def negative(self, a: Elements) -> Elements:
        """Return -a."""
        if self._is_prime:
            return -a % self.order
        return self.multiply(a, np.int64(self._negative_one))  # type: ignore[arg-type]

    @cached_property
    def _negative_one(self) -> int:
        return int(np.flatnonzero(self._sums.reshape(self.order, -1)[1] == 0)[0])

    def inverse(self, a: Elements) -> Elements:
        """Return 1 / a, and 0 for 0."""
        return self._inverses[a]


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
    """Return the field of `order` elements, its tables shared by those who ask again."""
    return Field(order)
