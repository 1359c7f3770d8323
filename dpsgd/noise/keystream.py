"""Keystreams for compiled code: AES-256 by the processor's own instructions, or else ChaCha20.

Compiled code cannot call OpenSSL without coming back to Python, where threads wait for each other;
and OpenSSL's counter mode encrypts one block with an instruction where newer processors take two.
ChaCha20 is for processors that lack these: AES by tables is slow, and its time tells of the key.
"""

import platform
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dpsgd.noise.compiled import compiled
from ldp import InvalidInput

Words: TypeAlias = NDArray[np.uint64]
Keystream: TypeAlias = Callable[[Words, Words, int], None]
STEP = 64
"""Words generated per step: 32 blocks of AES, 8 of ChaCha."""
_IN_FLIGHT = 8
"""Blocks, or pairs of them, in flight: an instruction takes cycles, in which others can begin."""
_ROUNDS = 14
_settings: Any = numba.config
_I32, _I64 = ir.IntType(32), ir.IntType(64)


class Cipher(NamedTuple):
    """A cipher with keys of 256 bits, for compiled code, where nothing is checked."""

    expand: Callable[[Words], Words]
    """Takes a key of 4 words and returns its schedule."""
    size: int
    """The number of words of a schedule."""
    keystream: Keystream
    """Overwrites contiguous words, a multiple of `STEP`, by a schedule's keystream from a 128-bit
    block on: a multiple of 32 below 2**63. Compiled."""


@cache
def load_cipher() -> Cipher:
    """Return AES where numba may use the processor's instructions for it, and ChaCha20 elsewhere.

    Raises `InvalidInput` where numba's compilation is disabled.
    """
    if _settings.DISABLE_JIT:
        raise InvalidInput("noise is drawn by compiled code: unset NUMBA_DISABLE_JIT")
    return compile_aes(blocks) if (blocks := blocks_at_once()) else compile_chacha()


def blocks_at_once() -> int:
    """Return how many AES blocks one instruction encrypts: 0 without AES, 2 with VAES and AVX2."""
    if platform.machine().lower() not in ("x86_64", "amd64") or not _settings.ENABLE_AVX:
        return 0
    if (_settings.CPU_NAME, _settings.CPU_FEATURES) != (None, None):
        return 0  # another processor's code
    try:
        features = binding.get_host_cpu_features()
    except RuntimeError:  # the processor is unknown
        return 0
    if not features.get("aes"):
        return 0
    return 2 if features.get("vaes") and features.get("avx2") else 1


def compile_aes(blocks: int) -> Cipher:
    """Return AES-256 in counter mode, by instructions that encrypt 1 or 2 blocks.

    Source: NIST, FIPS 197 and SP 800-38A, section 6.5.
    """
    substituted: Any = intrinsic(_substitute)

    @compiled
    def go_on(schedule: NDArray[np.uint32]) -> None:
        """Complete a schedule that begins with the key."""
        constant = 1
        for i in range(8, schedule.size):
            word = schedule[i - 1]
            if i % 8 == 0:
                word = substituted(np.uint32(word >> 8 | word << 24)) ^ constant
                constant *= 2
            elif i % 8 == 4:
                word = substituted(word)
            schedule[i] = schedule[i - 8] ^ word

    def expand(key: Words) -> Words:
        schedule = np.empty(4 * (_ROUNDS + 1), np.uint32)
        schedule[:8] = key.view(np.uint32)
        go_on(schedule)
        return schedule.view(np.uint64)

    return Cipher(expand, 2 * (_ROUNDS + 1), _compile_keystream(partial(_write_aes, blocks)))


def compile_chacha() -> Cipher:
    """Return ChaCha20, with a counter of 64 bits and a nonce of zeros.

    Eight blocks are computed together, in vectors of the same 32-bit word of each block.
    Source: Bernstein, "ChaCha, a variant of Salsa20", 2008.
    """
    return Cipher(np.copy, 4, _compile_keystream(_write_chacha))


def _compile_keystream(write: Callable[[Any, Any, Any, Any], None]) -> Any:
    """Compile write(builder, out, schedule, first), which makes `STEP` words, into a keystream.

    The keystream is called with the addresses of its output and of the cipher's schedule, and with
    the index of the first pair of words.
    """

    def written(_context: Any, _out: Any, _schedule: Any, _first: Any) -> Any:
        def generate(target: Any, builder: Any, _signature: Any, args: Any) -> Any:
            write(builder, *args)
            return target.get_dummy_value()

        return types.void(types.uintp, types.uintp, types.uint64), generate

    step: Any = intrinsic(written)

    @compiled
    def keystream(words: Words, schedule: Words, first: int) -> None:
        out, number = np.uint64(words.ctypes.data), np.uint64(first)
        for i in range(0, words.size, STEP):
            step(out + np.uint64(8 * i), schedule.ctypes.data, number + np.uint64(i // 2))

    return keystream


def _instruction(builder: Any, name: str, vector: Any) -> Any:
    """Return an instruction for AES, of two vectors of the same type."""
    name = f"llvm.x86.aesni.{name}" + ("" if vector.count == 2 else f".{64 * vector.count}")
    kind = ir.FunctionType(vector, [vector, vector])
    return builder.module.globals.get(name) or ir.Function(builder.module, kind, name)


def _substitute(_context: Any, _word: Any) -> Any:
    """Apply the S-box of AES to each byte of a word of 32 bits."""

    def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        # Where all columns are the same, the last round's ShiftRows moves nothing.
        block = ir.VectorType(_I64, 2)
        word = builder.zext(args[0], _I64)
        both, column = builder.or_(word, builder.shl(word, _I64(32))), block([0, 0])
        for place in range(2):
            column = builder.insert_element(column, both, _I32(place))
        done = builder.call(_instruction(builder, "aesenclast", block), [column, block([0, 0])])
        return builder.trunc(builder.extract_element(done, _I32(0)), _I32)

    return types.uint32(types.uint32), generate


def _write_aes(blocks: int, builder: Any, out: Any, schedule: Any, first: Any) -> None:
    block, wide = ir.VectorType(_I64, 2), ir.VectorType(_I64, 2 * blocks)
    middle = _instruction(builder, "aesenc", wide)
    last = _instruction(builder, "aesenclast", wide)
    keys = builder.inttoptr(schedule, block.as_pointer())
    places = builder.inttoptr(out, wide.as_pointer())
    # The counter's bytes stand from the highest to the lowest. The first block's number is a
    # multiple of 32: the blocks after it differ in the last byte.
    swapped, counter = builder.bswap(first), wide([0] * wide.count)
    for at in range(blocks):
        counter = builder.insert_element(counter, swapped, _I32(2 * at + 1))

    def key(number: int) -> Any:
        one = builder.load(builder.gep(keys, [_I32(number)]), align=8)
        lanes = ir.VectorType(_I32, wide.count)([0, 1] * blocks)
        return builder.shuffle_vector(one, one, lanes)

    for begin in range(0, STEP // 2 // blocks, _IN_FLIGHT):
        states = []
        for number in range(begin, begin + _IN_FLIGHT):
            bits = [part << 56 for at in range(blocks) for part in (0, number * blocks + at)]
            states.append(builder.xor(builder.or_(counter, wide(bits)), key(0)))
        for number in range(1, _ROUNDS):
            states = [builder.call(middle, [state, key(number)]) for state in states]
        for number, state in enumerate(states, begin):
            done = builder.call(last, [state, key(_ROUNDS)])
            builder.store(done, builder.gep(places, [_I32(number)]), align=8)


def _write_chacha(builder: Any, out: Any, schedule: Any, first: Any) -> None:
    row = ir.VectorType(_I32, 8)
    keys = builder.inttoptr(schedule, _I32.as_pointer())
    places = builder.inttoptr(out, row.as_pointer())

    def alike(value: Any) -> Any:
        one = builder.insert_element(row([0] * 8), value, _I32(0))
        return builder.shuffle_vector(one, one, row([0] * 8))

    # Blocks are of four pairs of words. The first one's number is a multiple of 8: the later ones
    # differ in the lower half.
    block = builder.lshr(first, _I64(2))
    halves = [builder.trunc(part, _I32) for part in (block, builder.lshr(block, _I64(32)))]
    constants = np.frombuffer(b"expand 32-byte k", "<u4").tolist()
    begin = [row([constant] * 8) for constant in constants]
    begin += [alike(builder.load(builder.gep(keys, [_I32(i)]), align=4)) for i in range(8)]
    begin += [builder.or_(alike(halves[0]), row(list(range(8)))), alike(halves[1])]
    begin += [row([0] * 8)] * 2

    rows = list(begin)
    columns = [(i, 4 + i, 8 + i, 12 + i) for i in range(4)]
    diagonals = [(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)]
    for a, b, c, d in 10 * (columns + diagonals):
        for to, by, turned, bits in (a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7):
            rows[to] = builder.add(rows[to], rows[by])
            mixed = builder.xor(rows[turned], rows[to])
            left = builder.shl(mixed, row([bits] * 8))
            rows[turned] = builder.or_(left, builder.lshr(mixed, row([32 - bits] * 8)))
    for number, (value, start) in enumerate(zip(rows, begin, strict=True)):
        place = builder.gep(places, [_I32(number)])
        builder.store(builder.add(value, start), place, align=8)
