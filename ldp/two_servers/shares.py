"""Additive shares modulo 2**bits: each of the two is uniform, and together they are the value.

Share A is a seed of 32 bytes, share B is the value minus the numbers that the seed stands for: the
keystream of AES-256 in counter mode from a counter of zero, in little-endian words of `bits` bits.
One server that has one share learns nothing of the value, as far as AES-256 is a pseudorandom
function; both together have the value.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.coins import Coins
from ldp.errors import InvalidInput, needs

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

SEED_BYTES = 32

_BLOCK = 16
"""Bytes of a block of AES, by which a buffer for what it encrypts must be larger, less one."""

_DTYPES: dict[int, np.dtype[np.unsignedinteger]] = {
    16: np.dtype("<u2"),
    32: np.dtype("<u4"),
    64: np.dtype("<u8"),
}

Words = NDArray[np.unsignedinteger]
"""Numbers modulo 2**bits: unsigned integers of 16, 32 or 64 bits, which wrap around."""


def dtype(bits: int) -> np.dtype[np.unsignedinteger]:
    """Return the little-endian dtype of numbers modulo 2**bits; bits are 16, 32 or 64."""
    if bits not in _DTYPES:
        raise InvalidInput(f"bits must be 16, 32 or 64, got {bits}")
    return _DTYPES[bits]


def expand(seed: bytes, dim: int, bits: int) -> Words:
    """Return the `dim` numbers that a seed stands for, shape (dim,).

    Raises `InvalidInput` unless the seed has 32 bytes and dim >= 0, and `MissingExtra` without
    the cryptography package.
    """
    if dim < 0:
        raise InvalidInput(f"dim must be at least 0, got {dim}")
    kind = dtype(bits)
    return np.frombuffer(_keystream(seed).update(bytes(dim * kind.itemsize)), dtype=kind)


def _keystream(seed: bytes) -> "CipherContext":
    """Return what encrypts zeros into the keystream of a seed."""
    with needs("sums over two servers", "fast"):
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    if len(seed) != SEED_BYTES:
        raise InvalidInput(f"a seed has {SEED_BYTES} bytes, got {len(seed)}")
    return Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()


def split(values: ArrayLike, bits: int, coins: Coins) -> tuple[bytes, bytes]:
    """Return the two shares of integers: a seed, and the rest as bytes.

    `values` has shape (dim,); negative numbers are taken modulo 2**bits. The rest has
    dim * bits / 8 bytes. Raises `InvalidInput` unless the values are integers.
    """
    values = np.asarray(values)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise InvalidInput(
            f"values must be integers of shape (dim,), got {values.dtype} of shape {values.shape}"
        )
    seed = coins.words(SEED_BYTES // 8).astype("<u8").tobytes()
    rest = values.astype(dtype(bits)) - expand(seed, values.size, bits)
    return seed, rest.astype(dtype(bits), copy=False).tobytes()


def parse(rest: bytes, dim: int, bits: int) -> Words:
    """Return share B as numbers, shape (dim,), or raise `InvalidInput` for another length."""
    kind = dtype(bits)
    if len(rest) != dim * kind.itemsize:
        raise InvalidInput(f"share B has {len(rest)} bytes, where {dim * kind.itemsize} are due")
    return np.frombuffer(rest, dtype=kind)


def sum_seeds(seeds: Iterable[bytes], dim: int, bits: int) -> Words:
    """Return the sum of the numbers of seeds modulo 2**bits, shape (dim,), which is not negative.

    Raises as `expand` for a seed.
    """
    kind = dtype(bits)
    total: Words = np.zeros(dim, dtype=kind)
    zeros = bytes(total.nbytes)
    stream = bytearray(
        total.nbytes + _BLOCK - 1
    )  # one for all: new memory costs as much as the sum
    numbers = np.frombuffer(stream, dtype=kind, count=dim)
    for seed in seeds:
        _keystream(seed).update_into(zeros, stream)
        np.add(total, numbers, out=total)
    return total


def sum_rests(rests: Iterable[bytes], dim: int, bits: int) -> Words:
    """Return the sum of shares B modulo 2**bits, shape (dim,), from their bytes.

    Raises `InvalidInput` for a share of another length.
    """
    kind = dtype(bits)
    size = dim * kind.itemsize
    total: Words = np.zeros(dim, dtype=kind)
    for rest in rests:
        if len(rest) != size:
            raise InvalidInput(f"share B has {len(rest)} bytes, where {size} are due")
        np.add(total, np.frombuffer(rest, kind), out=total)
    return total


def join(a: Words, b: Words, bits: int) -> NDArray[np.int64]:
    """Return the sum that two sums of shares hide, centred: in -2**(bits-1)..2**(bits-1)-1.

    It is the sum of the devices' integers where that one lies in this range.
    """
    if a.shape != b.shape or {a.dtype, b.dtype} != {dtype(bits)}:
        raise InvalidInput(f"sums of {a.dtype} {a.shape} and of {b.dtype} {b.shape} do not match")
    signed: NDArray[np.int64] = (a + b).view(f"<i{bits // 8}").astype(np.int64)
    return signed
