"""Updates as bytes: what is sent decodes to what was meant, within the norm, or is refused."""

import hashlib
import json
import math
import struct
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from declared import declared as training_message
from declared import frozen, parsed
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hearsay.federated.declaration import Encoding, Training
from hearsay.federated.encoding import UpdateRefused, decode, encode, size
from hearsay.federated.parsing import parse
from hearsay.plans.plan import mechanism_message
from hearsay.v1 import trainer_pb2
from ldp import InvalidInput, SphereCodebook
from ldp.testing import SeededCoins

KINDS = [
    Encoding("float32", 0, 0),
    Encoding("float32", 0, 3),
    Encoding("quantized", 2, 0),
    Encoding("quantized", 8, 0),
    Encoding("quantized", 11, 0),
    Encoding("quantized", 16, 0),
    Encoding("quantized", 5, 4),
]

kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.bits}-{kind.coordinates}")


def declared(kind: Encoding, dimension: int = 10, norm: float = 1.0) -> Training:
    return parsed(
        dimension=dimension,
        max_update_norm=norm,
        encoding={"kind": kind.kind, "bits": kind.bits, "coordinates": kind.coordinates},
    )


def sent(training: Training, vector: Any, seed: int = 0) -> Any:
    payload = encode(training, vector, SeededCoins(seed))
    assert len(payload) == size(training)
    return decode(training, payload)


def exact_square(vector: Any) -> Fraction:
    return sum((Fraction(float(x)) ** 2 for x in vector), Fraction(0))


def refusal(training: Training, payload: bytes) -> int:
    with pytest.raises(UpdateRefused) as caught:
        decode(training, payload)
    assert isinstance(caught.value, InvalidInput)
    return caught.value.refusal


def floats(*values: float) -> bytes:
    return np.array(values, dtype="<f4").tobytes()


def test_float32_brings_the_update_bit_for_bit() -> None:
    training = declared(KINDS[0], norm=100.0)
    vector = np.random.default_rng(0).normal(size=10).astype(np.float32)
    assert sent(training, vector).tobytes() == vector.tobytes()
    assert encode(training, vector, SeededCoins(0)) == vector.astype("<f4").tobytes()


@kinds
@settings(max_examples=30)
@given(
    vector=st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=10, max_size=10),
    norm=st.floats(1e-6, 1e6),
    seed=st.integers(0, 1000),
)
@example(vector=[1e-45] * 10, norm=1e-6, seed=0)
@example(vector=[0.0] * 10, norm=1.0, seed=0)
@example(vector=[1.0] + [0.0] * 9, norm=1.0, seed=0)
def test_what_is_decoded_is_never_above_the_norm(
    kind: Encoding, vector: list[float], norm: float, seed: int
) -> None:
    decoded = sent(declared(kind, norm=norm), vector, seed)
    assert decoded.dtype == np.float32
    assert exact_square(decoded) <= Fraction(norm) ** 2


@kinds
def test_the_mean_of_what_is_decoded_is_the_update(kind: Encoding) -> None:
    training = declared(kind, norm=100.0)
    vector = np.random.default_rng(1).normal(size=10).astype(np.float32)
    coins = SeededCoins(3)
    drawn = np.array(
        [decode(training, encode(training, vector, coins)) for _ in range(600)], dtype=np.float64
    )
    error = drawn.std(axis=0) / math.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - vector) <= 4 * error + 1e-6).all()


def test_rounding_that_lengthens_an_update_is_taken_back() -> None:
    """With two bits, the rounded vector is several times as long as the update."""
    training = declared(KINDS[2], dimension=1_000)
    vector = np.random.default_rng(2).normal(size=1_000)
    norm = float(np.linalg.norm(sent(training, vector)))
    assert 1 - 2.0**-19 < norm <= 1


def test_an_update_that_is_too_long_keeps_its_direction() -> None:
    vector = np.arange(10.0)
    decoded = sent(declared(KINDS[0]), vector).astype(np.float64)
    assert np.linalg.norm(decoded) == pytest.approx(1 - 2.0**-20, abs=1e-7)
    np.testing.assert_allclose(decoded, vector / np.linalg.norm(vector), atol=1e-6)


def test_one_coordinate_of_each_run_is_sent_with_the_run_s_weight() -> None:
    training = declared(Encoding("float32", 0, 4), dimension=10, norm=1e6)
    edges = [0, 2, 5, 7, 10]
    for seed in range(30):
        decoded = sent(training, np.ones(10), seed)
        for low, high in pairwise(edges):
            run = decoded[low:high]
            assert np.count_nonzero(run) == 1
            assert run.sum() == high - low


def test_the_norm_is_compared_exactly() -> None:
    """0.6 and 0.8 as float32 have a norm just above 1; one bit less, just below."""
    training = declared(KINDS[0], dimension=2)
    above = np.array([0.6, 0.8], dtype=np.float32)
    below = np.array([np.nextafter(above[0], np.float32(0)), above[1]])
    assert exact_square(above) > 1 >= exact_square(below)
    assert refusal(training, floats(*above)) == trainer_pb2.ABOVE_NORM
    assert decode(training, floats(*below)).tolist() == below.tolist()
    assert decode(training, floats(1, 0)).tolist() == [1, 0]
    assert refusal(training, floats(1, 1e-30)) == trainer_pb2.ABOVE_NORM


@kinds
def test_a_payload_of_another_length_is_refused(kind: Encoding) -> None:
    training = declared(kind)
    payload = encode(training, np.ones(10), SeededCoins(0))
    for wrong in (payload[:-1], payload + b"\0", b""):
        assert refusal(training, wrong) == trainer_pb2.BAD_LENGTH


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    plain, coarse = declared(KINDS[0], dimension=2), declared(KINDS[3], dimension=2)
    assert refusal(plain, floats(bad, 0)) == trainer_pb2.NOT_FINITE
    assert refusal(coarse, floats(bad) + b"\x7f\x7f") == trainer_pb2.NOT_FINITE
    assert refusal(coarse, floats(3e38) + b"\xfe\x7f") == trainer_pb2.NOT_FINITE
    with pytest.raises(InvalidInput, match="finite"):
        encode(plain, [bad, 0], SeededCoins(0))


def test_a_quantized_payload_that_no_device_writes_is_refused() -> None:
    eight, five = declared(KINDS[3], dimension=2), declared(Encoding("quantized", 5, 0), 2)
    step = floats(2.0**-8)
    assert decode(eight, step + b"\xfe\x7e").tolist() == [127 / 256, -1 / 256]
    assert refusal(eight, step + b"\xff\x7f") == trainer_pb2.BAD_PAYLOAD  # a code above 254
    assert refusal(eight, floats(-0.0) + b"\x7f\x7f") == trainer_pb2.BAD_PAYLOAD
    assert refusal(eight, floats(1.0) + b"\xfe\x7f") == trainer_pb2.ABOVE_NORM
    assert decode(five, step + b"\xef\x01").tolist() == [0, 0]
    assert refusal(five, step + b"\xef\x05") == trainer_pb2.BAD_PAYLOAD  # a spare bit is set


@kinds
@settings(max_examples=25)
@given(data=st.data())
def test_any_bytes_are_an_update_within_the_norm_or_refused(kind: Encoding, data: Any) -> None:
    training = declared(kind)
    length = size(training)
    payload = data.draw(st.binary(min_size=length, max_size=length))
    try:
        decoded = decode(training, payload)
    except UpdateRefused as refused:
        assert refused.refusal != trainer_pb2.BAD_LENGTH
    else:
        assert decoded.shape == (10,)
        assert exact_square(decoded) <= 1


def test_large_updates_are_packed_in_blocks() -> None:
    for kind in (Encoding("quantized", 3, 0), Encoding("quantized", 13, 70_001), KINDS[3]):
        training = declared(kind, 140_003, 1e6)
        vector = np.random.default_rng(4).normal(size=140_003)
        decoded = sent(training, vector)
        step = np.abs(decoded[decoded != 0]).min()
        if not kind.coordinates:
            assert np.abs(decoded - vector).max() < 1.001 * step


@pytest.mark.parametrize("vector", [[1.0] * 9, [[1.0] * 10], 1.0])
def test_an_update_of_another_shape_is_refused_on_the_device(vector: Any) -> None:
    with pytest.raises(InvalidInput, match="shape"):
        encode(declared(KINDS[0]), vector, SeededCoins(0))


def local(norm: float = 1.0, **choices: int) -> Training:
    message = training_message(max_update_norm=norm)
    message.ClearField("encoding")
    mechanism = SphereCodebook(10, 2.0, **choices)
    message.local_noise.mechanism.CopyFrom(mechanism_message(mechanism))
    return parse(frozen(message))


def test_under_local_noise_the_payload_is_a_code_and_the_vector_its_estimate() -> None:
    training = local(norm=3.0, codes=32)
    vector = np.zeros(10)
    vector[2] = 1.5
    coins = SeededCoins(1)
    payloads = [encode(training, vector, coins) for _ in range(2_000)]
    assert {len(payload) for payload in payloads} == {size(training)} == {9}
    drawn = np.array([decode(training, payload) for payload in payloads], dtype=np.float64)
    error = drawn.std(axis=0) / math.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - vector) < 4 * error).all()
    mechanism = SphereCodebook(10, 2.0, codes=32)
    assert np.linalg.norm(drawn, axis=1).max() <= 3 / mechanism.gain * (1 + 1e-6)
    assert ((drawn - vector) ** 2).sum(axis=1).mean() <= 1.05 * 9 * mechanism.squared_error


def test_under_local_noise_a_long_update_is_scaled_down_and_a_bad_one_refused() -> None:
    training = local(codes=300)
    assert len(encode(training, np.full(10, 1e30), SeededCoins(1))) == 10
    with pytest.raises(InvalidInput, match="finite"):
        encode(training, [math.nan] * 10, SeededCoins(1))
    assert refusal(training, bytes(9)) == trainer_pb2.BAD_LENGTH
    assert refusal(training, bytes(8) + b"\x2c\x01") == trainer_pb2.BAD_PAYLOAD  # direction 300
    assert decode(training, bytes(8) + b"\x2b\x01").shape == (10,)


UPDATES = json.loads(
    (Path(__file__).resolve().parents[2] / "protos/conformance/updates.json").read_text("utf-8")
)


def read_by_the_page(
    dimension: int, bits: int, coordinates: int, payload: bytes
) -> list[float] | str:
    """Return the vector of a payload by the text of docs/wire-training.md, or why there is none."""
    n, seed = coordinates or dimension, b""
    if len(payload) != (8 if coordinates else 0) + (4 + math.ceil(n * bits / 8) if bits else 4 * n):
        return "BAD_LENGTH"
    if coordinates:
        seed, payload = payload[:8], payload[8:]
    if bits:
        (step,) = struct.unpack("<f", payload[:4])
        if not math.isfinite(step):
            return "NOT_FINITE"
        written = int.from_bytes(payload[4:], "little")
        codes = [written >> bits * i & (1 << bits) - 1 for i in range(n)]
        if math.copysign(1, step) < 0 or max(codes) == (1 << bits) - 1 or written >> bits * n:
            return "BAD_PAYLOAD"
        with np.errstate(over="ignore"):
            numbers = [float(np.float32((c - (1 << bits - 1) + 1) * step)) for c in codes]
    else:
        numbers = list(struct.unpack(f"<{n}f", payload))
    if not all(map(math.isfinite, numbers)):
        return "NOT_FINITE"
    if sum(Fraction(x) ** 2 for x in numbers) > 4:
        return "ABOVE_NORM"
    if not coordinates:
        return numbers
    stream = hashlib.shake_128(b"hearsay/v1/coordinates\0" + seed).digest(8 * n)
    vector = [0.0] * dimension
    for j, (word,) in enumerate(struct.iter_unpack("<Q", stream)):
        edge, end = j * dimension // n, (j + 1) * dimension // n
        vector[edge + ((word >> 28) * (end - edge) >> 36)] = numbers[j]
    return vector


@pytest.mark.parametrize("case", UPDATES["encodings"], ids=lambda c: f"{c['bits']}-{c['kind']}")
def test_the_page_reads_the_conformance_updates(case: Any) -> None:
    seen = set()
    for update in case["updates"]:
        payload = bytes.fromhex(update["payload"])
        read = read_by_the_page(case["dimension"], case["bits"], case["coordinates"], payload)
        if isinstance(read, str):
            assert update["refusal"] == read
        else:
            assert read == list(struct.unpack("<10f", bytes.fromhex(update["vector"])))
        seen.add(read if isinstance(read, str) else "")
    assert seen >= {"", "BAD_LENGTH", "NOT_FINITE"}
    assert seen & {"ABOVE_NORM", "BAD_PAYLOAD"}
