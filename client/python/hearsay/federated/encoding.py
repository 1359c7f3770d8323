"""Updates as bytes: what a device sends for a round, and the vector that a server reads from it.

docs/wire-training.md has the bytes. Every kind of payload decodes to one float32 vector.

Where a training declares an encoding, the norm is checked of that decoded vector: what a server
sums has an L2 norm of at most `max_update_norm`, however the device rounded. So one person's
updates change the sum by no more than the account of central noise says, whatever the payload
holds. Rounding and leaving coordinates out are for bytes. They protect nobody.

Under local noise the payload is a code of the training's mechanism, and the vector is the unbiased
estimate that a server makes of it: nearly all noise, and longer than the update.
"""

import hashlib
import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hearsay.federated import splitting
from hearsay.federated.declaration import LocalNoise, SplitNoise, Training
from hearsay.sealed import shares
from hearsay.v1 import trainer_pb2
from ldp import Coins, InvalidInput, SphereCodebook

Vector = NDArray[np.float32]

SEED_BYTES = 8
_STEP = np.dtype("<f4")
_COORDINATES = b"hearsay/v1/coordinates\0"

_WHOLE: Mapping[int, Any] = {8: np.dtype("u1"), 16: np.dtype("<u2")}
"""Codes that fill bytes."""

_MARGIN = 2.0**-20
"""A device shortens an update to this much below the bound, so that the roundings of its floats,
of at most 2**-24 each, do not carry it above."""

_BLOCK = 1 << 16
"""Coordinates handled at once: a multiple of 8, whose codes fill whole bytes."""


class UpdateRefused(InvalidInput):
    """A payload is not an update of this training; `refusal` is the wire's reason."""

    def __init__(self, refusal: trainer_pb2.Refusal, detail: str) -> None:
        super().__init__(detail)
        self.refusal = refusal


def size(training: Training) -> int:
    """Return how many bytes every payload of the training has."""
    if isinstance(training.protection, LocalNoise):
        return training.protection.mechanism.code_bytes
    if isinstance(training.protection, SplitNoise):
        return shares.size(training.splitting)
    encoding = training.encoding
    assert encoding is not None
    sent = encoding.coordinates or training.dimension
    values = 4 * sent
    if encoding.bits:
        values = _STEP.itemsize + -(-sent * encoding.bits // 8)
    return values + (SEED_BYTES if encoding.coordinates else 0)


def encode(
    training: Training, vector: ArrayLike, coins: Coins, round_: int = 0, id_: bytes = b""
) -> bytes:
    """Return the payload of an update, `size(training)` bytes. Shares for two servers are bound to
    the round and to the update's id; other payloads are not.

    `vector`, shape (dimension,), is scaled down to `max_update_norm` where it is longer. What
    `decode` returns then is
    - the vector itself with kind "float32" and all coordinates;
    - else a random vector whose mean is the vector, unless it came out longer than
      `max_update_norm`: then that is scaled down, and only its direction has nothing added;
    - under local noise a random vector whose mean is the vector, always.
    Two servers get a share each, which `decode` does not take.
    Guarantee: under local noise the payload is epsilon-LDP for every pair of vectors, and says no
    more than that; with two servers it tells either of them nothing; else it protects nobody.
    Raises `InvalidInput` for a vector of another shape, with nan or with inf.
    Cost: O(dimension), and 8 random bytes for each coordinate that is rounded; under local noise
    that of the mechanism.
    """
    bound = training.max_update_norm
    if isinstance(training.protection, SplitNoise):
        update = _checked(vector, training.dimension)
        return splitting.payload(training, update, round_, id_, coins)
    update = _shortened(_checked(vector, training.dimension), bound)
    if isinstance(training.protection, LocalNoise):
        mechanism = training.protection.mechanism
        return mechanism.encode_one(mechanism.randomize(update / np.float64(bound), coins))
    encoding = training.encoding
    assert encoding is not None
    head = b""
    if encoding.coordinates:
        head = coins.words(1).astype("<u8").tobytes()
        places, weights = _chosen(head, training.dimension, encoding.coordinates)
        update = _shortened((update[places] * weights).astype(np.float32), bound)
    if encoding.bits:
        return head + _quantized(update, encoding.bits, bound, coins)
    return head + update.astype("<f4", copy=False).tobytes()


def check(training: Training, payload: bytes) -> None:
    """Raise `UpdateRefused` for what is no update of a training; of shares the size is all that one
    server can check."""
    if isinstance(training.protection, SplitNoise):
        _check_size(training, payload)
    else:
        decode(training, payload)


def decode(training: Training, payload: bytes) -> Vector:
    """Return the vector of a payload, shape (dimension,), and finite: the same on every machine.

    Its norm is at most `max_update_norm`, compared exactly: as a real number, the sum of the
    squares of the float32 coordinates is at most the square of the bound. Under local noise it is
    at most `max_update_norm` / `gain` of the mechanism.
    Raises `UpdateRefused` with BAD_LENGTH, NOT_FINITE, ABOVE_NORM or BAD_PAYLOAD.
    Cost: O(dimension); the result may be a read-only view of the payload.
    """
    _check_size(training, payload)
    if isinstance(training.protection, LocalNoise):
        return _estimated(training.protection.mechanism, training.max_update_norm, payload)
    encoding = training.encoding
    assert encoding is not None
    sent, seed, values = encoding.coordinates, b"", payload
    if sent:
        seed, values = payload[:SEED_BYTES], payload[SEED_BYTES:]
    if encoding.bits:
        update = _dequantized(values, encoding.bits, sent or training.dimension)
    else:
        update = np.frombuffer(values, dtype="<f4").astype(np.float32, copy=False)
    _check_norm(update, training.max_update_norm)
    if sent:
        places, _ = _chosen(seed, training.dimension, sent)
        update, few = np.zeros(training.dimension, dtype=np.float32), update
        update[places] = few
    return update


def _check_size(training: Training, payload: bytes) -> None:
    if len(payload) != size(training):
        raise UpdateRefused(
            trainer_pb2.BAD_LENGTH,
            f"an update of {training.name} has {size(training):,} bytes, got {len(payload):,}",
        )


def _estimated(mechanism: SphereCodebook, bound: float, payload: bytes) -> Vector:
    try:
        (code,) = mechanism.decode(payload, 1)
    except InvalidInput as error:
        raise UpdateRefused(trainer_pb2.BAD_PAYLOAD, str(error)) from None
    return (mechanism.debias(code) * bound).astype(np.float32)


def _checked(vector: ArrayLike, dimension: int) -> Vector:
    with np.errstate(over="ignore"):  # becomes inf, which is refused
        update = np.asarray(vector).astype(np.float32)
    if update.shape != (dimension,):
        raise InvalidInput(f"an update has the shape ({dimension},), got {update.shape}")
    if not math.isfinite(_square(update)):
        raise InvalidInput("an update is made of finite numbers, got nan or inf")
    return update


# --- the norm ----------------------------------------------------------------------------------


def _square(vector: Vector) -> float:
    """Return the sum of squares, within a relative 2**-26; nan or inf where a coordinate is.

    The square of a float32 is a float64, exactly, so only the additions round: fewer than 2**26.
    """
    total = 0.0
    for start in range(0, vector.size, _BLOCK):
        with np.errstate(invalid="ignore"):  # a signalling nan of a hostile device
            block = vector[start : start + _BLOCK].astype(np.float64)
        total += float(block @ block)
    return total


def _shortened(vector: Vector, bound: float) -> Vector:
    """Return the vector, or one of its direction with a norm just below the bound."""
    factor = _factor(math.sqrt(_square(vector)), bound)
    return vector if factor == 1 else (vector.astype(np.float64) * factor).astype(np.float32)


def _factor(norm: float, bound: float) -> float:
    most = bound * (1 - _MARGIN)
    return most / norm if norm > most else 1.0


def _check_norm(vector: Vector, bound: float) -> None:
    square = _square(vector)
    if not math.isfinite(square):
        raise UpdateRefused(
            trainer_pb2.NOT_FINITE, "an update is made of finite numbers, got nan or inf"
        )
    if square > bound**2 * (1 - 2.0**-25) and _exceeds(vector, bound):
        raise UpdateRefused(
            trainer_pb2.ABOVE_NORM,
            f"the L2 norm of an update is at most {bound!r}, got {math.sqrt(square)!r}",
        )


def _exceeds(vector: Vector, bound: float) -> bool:
    """Tell exactly whether the norm is above the bound: `math.fsum` rounds but once."""
    high = bound**2
    low = float(Fraction(bound) ** 2 - Fraction(high))  # what rounding lost: a float64 holds it
    blocks = (vector[start : start + _BLOCK] for start in range(0, vector.size, _BLOCK))
    squares = ((block.astype(np.float64) ** 2).tolist() for block in blocks)
    return math.fsum(chain(chain.from_iterable(squares), [-high, -low])) > 0


# --- chosen coordinates ------------------------------------------------------------------------


def _chosen(seed: bytes, dimension: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the coordinates that a seed names, ascending, and what their values are times.

    The coordinates are cut into `count` runs, whose lengths differ by one at most. One of each
    run is sent, times the run's length, so that the mean over seeds is the whole vector.
    """
    edges = np.arange(count + 1, dtype=np.uint64) * np.uint64(dimension) // np.uint64(count)
    lengths = edges[1:] - edges[:-1]
    stream = hashlib.shake_128(_COORDINATES + seed).digest(8 * count)
    words = np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)
    # 36 bits times a length of at most 26 bits: no coordinate's chance is off by more than 2**-10.
    places = edges[:-1] + ((words >> np.uint64(28)) * lengths >> np.uint64(36))
    return places.astype(np.int64), lengths.astype(np.int64)


# --- quantizing --------------------------------------------------------------------------------


def _quantized(update: Vector, bits: int, bound: float, coins: Coins) -> bytes:
    """Return the step and the codes of an update, each coordinate rounded at random.

    A coordinate becomes one of the two multiples of the step beside it, with chances that make
    its own value the mean (Alistarh et al., "QSGD", NeurIPS 2017, section 3.1, with the largest
    magnitude in place of the norm). The step is shortened where the result is too long.
    """
    most = (1 << bits - 1) - 1
    step = _step(float(np.abs(update).max()), most)
    codes = np.empty(update.size, dtype=np.uint16)
    square = 0.0
    for start in range(0, update.size if step else 0, _BLOCK):
        block = slice(start, start + _BLOCK)
        exact = update[block] / np.float64(step)
        below = np.floor(exact)
        uniform = (coins.words(exact.size) >> np.uint64(11)) * 2.0**-53
        levels = below + (uniform < exact - below)
        square += float(levels @ levels)
        codes[block] = levels + most
    if not step:
        codes[:] = most
    step = np.float32(float(step) * _factor(float(step) * math.sqrt(square), bound))
    return step.astype(_STEP).tobytes() + _packed(codes, bits)


def _step(largest: float, most: int) -> np.float32:
    """Return the smallest float32 of which `most` reach the largest magnitude."""
    step = np.float32(largest / most)
    return step if float(step) * most >= largest else np.nextafter(step, np.float32(np.inf))


def _dequantized(data: bytes, bits: int, count: int) -> Vector:
    most = (1 << bits - 1) - 1
    step = np.frombuffer(data[: _STEP.itemsize], dtype=_STEP).astype(np.float32)[0]
    if not np.isfinite(step):
        raise UpdateRefused(
            trainer_pb2.NOT_FINITE, "the step of an update is finite, got nan or inf"
        )
    if np.signbit(step):
        raise UpdateRefused(trainer_pb2.BAD_PAYLOAD, f"the step of an update is >= 0, got {step}")
    codes = _unpacked(data[_STEP.itemsize :], bits, count)
    if codes.max() > 2 * most:
        raise UpdateRefused(
            trainer_pb2.BAD_PAYLOAD,
            f"a code of {bits} bits is at most {2 * most}, got {codes.max()}",
        )
    levels = codes.astype(np.float32)
    levels -= most
    with np.errstate(over="ignore"):  # becomes inf, which is refused
        levels *= step
    return levels


def _packed(codes: NDArray[np.uint16], bits: int) -> bytes:
    """Return the codes, `bits` each, the least significant bit first, filled up with zeros."""
    if bits in _WHOLE:
        return codes.astype(_WHOLE[bits]).tobytes()
    parts = []
    for start in range(0, codes.size, _BLOCK):
        octets = codes[start : start + _BLOCK].astype("<u2").view(np.uint8).reshape(-1, 2)
        each = np.unpackbits(octets, axis=1, count=bits, bitorder="little")
        parts.append(np.packbits(each, bitorder="little").tobytes())
    return b"".join(parts)


def _unpacked(data: bytes, bits: int, count: int) -> NDArray[np.uint16]:
    if bits in _WHOLE:
        return np.frombuffer(data, dtype=_WHOLE[bits]).astype(np.uint16)
    octets = np.frombuffer(data, dtype=np.uint8)
    spare = -count * bits % 8
    if spare and octets[-1] >> 8 - spare:
        raise UpdateRefused(trainer_pb2.BAD_PAYLOAD, "the last bits of an update are not zero")
    codes = np.empty(count, dtype=np.uint16)
    for start in range(0, count, _BLOCK):
        block = codes[start : start + _BLOCK]
        taken = octets[start * bits // 8 : -(-(start + block.size) * bits // 8)]
        each = np.unpackbits(taken, count=block.size * bits, bitorder="little")
        wide = np.packbits(each.reshape(-1, bits), axis=1, bitorder="little")
        block[:] = wide[:, 0] if bits <= 8 else wide[:, 0] | wide[:, 1].astype(np.uint16) << 8
    return codes
