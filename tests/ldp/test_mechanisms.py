"""What holds for every mechanism: its wire form, and what it refuses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldp import KRR, InvalidInput, Mechanism, OneBitMean, Tally, UnaryEncoding, build
from ldp.testing import SeededCoins

MECHANISMS: list[Mechanism] = [
    KRR(2, 1.0),
    KRR(300, 1.0),
    KRR(70_000, 1.0),
    UnaryEncoding(3, 1.0),
    UnaryEncoding(16, 1.0),
    UnaryEncoding.symmetric(17, 1.0),
    OneBitMean(1.0),
]
each = pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)


@each
def test_codes_survive_the_wire(mechanism: Mechanism, coins: SeededCoins) -> None:
    codes = mechanism.randomize_many(np.array([0, 1, 1, 0, 1]), coins)
    data = mechanism.encode(codes)
    assert len(data) == 5 * mechanism.code_bytes
    assert np.array_equal(mechanism.decode(data, 5), codes)


@each
def test_a_single_code_has_the_same_form_as_many(mechanism: Mechanism, coins: SeededCoins) -> None:
    data = mechanism.encode([mechanism.randomize(1, coins)])
    assert len(data) == mechanism.code_bytes
    assert mechanism.decode(data, 1).shape == (1, *mechanism.code_shape)


@each
def test_the_size_of_a_code_does_not_depend_on_the_value(
    mechanism: Mechanism, coins: SeededCoins
) -> None:
    sizes = {len(mechanism.encode([mechanism.randomize(v, coins)])) for v in (0, 1) * 50}
    assert sizes == {mechanism.code_bytes}


@each
def test_a_mechanism_survives_the_plan(mechanism: Mechanism) -> None:
    assert build(mechanism.name, mechanism.epsilon, mechanism.integers) == mechanism


@each
def test_wrong_lengths_are_refused(mechanism: Mechanism) -> None:
    size = mechanism.code_bytes
    for data in (b"", bytes(size - 1), bytes(2 * size), bytes(2 * size + 1)):
        if len(data) != size:
            with pytest.raises(InvalidInput, match=f"codes take {size} bytes, got {len(data)}"):
                mechanism.decode(data, 1)


@each
@given(data=st.data())
def test_random_bytes_decode_or_are_refused(mechanism: Mechanism, data: st.DataObject) -> None:
    raw = data.draw(st.binary(max_size=4 * mechanism.code_bytes))
    n = data.draw(st.integers(0, 4))
    try:
        codes = mechanism.decode(raw, n)
    except InvalidInput:
        return
    tally = mechanism.tally(codes)
    assert tally.n == n
    assert tally.counts.size == mechanism.tally_size
    assert mechanism.encode(codes) == raw


@each
def test_tallies_of_parts_add_up_to_the_tally_of_all(
    mechanism: Mechanism, coins: SeededCoins
) -> None:
    codes = mechanism.randomize_many(np.array([0, 1] * 500), coins)
    whole = mechanism.tally(codes)
    assert mechanism.tally(codes[:123]) + mechanism.tally(codes[123:]) == whole
    assert mechanism.tally(codes[:0]) == Tally.empty(mechanism.tally_size)


def test_bulk_tallies_are_those_of_a_plain_loop(coins: SeededCoins) -> None:
    unary = UnaryEncoding(11, 1.0)
    codes = unary.randomize_many(np.arange(11).repeat(40), coins)
    naive = [sum(int(code[v // 8]) >> v % 8 & 1 for code in codes) for v in range(11)]
    assert unary.tally(codes).counts.tolist() == naive


def test_codes_outside_the_domain_are_refused() -> None:
    with pytest.raises(InvalidInput, match="a krr code must be below 3, got 3"):
        KRR(3, 1.0).decode(b"\x00\x03", 2)
    with pytest.raises(InvalidInput, match="bit beyond its 3"):
        UnaryEncoding(3, 1.0).decode(b"\x08", 1)
    with pytest.raises(InvalidInput, match="a onebit code must be below 2, got 2"):
        OneBitMean(1.0).decode(b"\x02", 1)


@pytest.mark.parametrize("epsilon", [0, -3.0, float("nan"), float("inf"), 33, "1", True, None])
def test_an_epsilon_that_is_none_is_refused(epsilon: float) -> None:
    for make in (lambda e: KRR(4, e), lambda e: UnaryEncoding(4, e), OneBitMean):
        with pytest.raises(InvalidInput, match="epsilon must be"):
            make(epsilon)


@pytest.mark.parametrize("k", [1, 0, -1, 2.0, True, 2**40])
def test_a_domain_size_that_is_none_is_refused(k: int) -> None:
    for make in (KRR, UnaryEncoding, UnaryEncoding.symmetric):
        with pytest.raises(InvalidInput, match="k must"):
            make(k, 1.0)


@pytest.mark.parametrize("value", [-1, 4, 99, 1.0, "1", None, True])
def test_a_value_outside_the_domain_is_refused(value: int, coins: SeededCoins) -> None:
    for oracle in (KRR(4, 1.0), UnaryEncoding(4, 1.0)):
        with pytest.raises(InvalidInput, match="category"):
            oracle.randomize(value, coins)
        if not isinstance(value, bool):  # numpy makes an integer of it beside another one
            with pytest.raises(InvalidInput, match="categories"):
                oracle.randomize_many(np.array([0, value]), coins)


@pytest.mark.parametrize("value", [-1.01, 2, float("nan"), float("inf"), "0", None, True])
def test_a_number_outside_the_range_is_refused(value: float, coins: SeededCoins) -> None:
    with pytest.raises(InvalidInput, match="number"):
        OneBitMean(1.0).randomize(value, coins)
    if not isinstance(value, bool):
        with pytest.raises(InvalidInput, match="numbers"):
            OneBitMean(1.0).randomize_many(np.array([0, value]), coins)


def test_integers_of_a_plan_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"krr takes the integers \['k', 'resample'\], got"):
        KRR.from_integers(1.0, {"k": [4]})
    with pytest.raises(InvalidInput, match="resample must not be left out"):
        KRR.from_integers(1.0, {"k": [4], "resample": [0]})
    with pytest.raises(InvalidInput, match="k is one integer, got 2"):
        KRR.from_integers(1.0, {"k": [4, 4], "resample": [2**63]})
    with pytest.raises(InvalidInput, match=r"resample must lie strictly between 0 and 2\*\*64"):
        KRR.from_integers(1.0, {"k": [4], "resample": [2**64]})
    with pytest.raises(InvalidInput, match="other must be below own"):
        UnaryEncoding.from_integers(1.0, {"k": [4], "own": [5], "other": [6]})
    with pytest.raises(InvalidInput, match=r"flip must be below 2\*\*63"):
        OneBitMean.from_integers(1.0, {"flip": [2**63]})
    with pytest.raises(InvalidInput, match="unknown mechanism 'magic'; this version knows"):
        build("magic", 1.0, {})
