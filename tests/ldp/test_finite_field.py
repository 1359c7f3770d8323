"""Finite fields: the axioms, and the one construction every client must share."""

import numpy as np
import pytest

from ldp import InvalidInput
from ldp.mechanisms.tools.finite_field import Field, is_order, is_prime, next_prime

ORDERS = (2, 3, 4, 5, 7, 8, 9, 16, 25, 27, 32, 49, 64, 81, 121, 125, 128, 169, 243, 256, 257, 65521)


@pytest.mark.parametrize("order", ORDERS)
def test_the_axioms_hold(order: int) -> None:
    f = Field(order)
    a, b, c = np.random.default_rng(order).integers(0, order, (3, 2000)).astype(np.uint32)
    assert np.array_equal(f.add(a, f.add(b, c)), f.add(f.add(a, b), c))
    assert np.array_equal(f.multiply(a, f.multiply(b, c)), f.multiply(f.multiply(a, b), c))
    assert np.array_equal(f.multiply(a, f.add(b, c)), f.add(f.multiply(a, b), f.multiply(a, c)))
    assert np.array_equal(f.add(a, b), f.add(b, a))
    assert np.array_equal(f.multiply(a, b), f.multiply(b, a))
    assert np.array_equal(f.add(a, 0), a)
    assert np.array_equal(f.multiply(a, 1), a)
    assert not f.add(a, f.negative(a)).any()
    assert np.array_equal(f.multiply(a, f.inverse(a)), a != 0)
    assert max(f.add(a, b).max(), f.multiply(a, b).max()) < order


def test_the_extensions_are_those_of_the_smallest_primitive_polynomial() -> None:
    # x**2 + x + 1, x**3 + x + 1, x**4 + x + 1 over two elements; x**2 - x - 1 over three.
    assert [int(Field(q).multiply(q // 2, 2)) for q in (4, 8, 16)] == [0b11, 0b011, 0b0011]
    assert int(Field(9).multiply(3, 3)) == 1 + 3  # x**2 = x + 1


def test_orders_are_primes_and_small_prime_powers() -> None:
    orders = [q for q in range(-1, 33) if is_order(q)]
    assert orders == [
        2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 19, 23, 25, 27, 29, 31, 32,
    ]  # fmt: skip
    assert not is_order(512)
    assert is_prime(65521)
    assert not is_prime(65521 * 3)
    assert next_prime(90) == 97


@pytest.mark.parametrize("order", [0, 1, 6, 12, 100, 512])
def test_an_order_without_a_field_is_refused(order: int) -> None:
    with pytest.raises(InvalidInput, match=f"prime power up to 256, got {order}"):
        Field(order)
