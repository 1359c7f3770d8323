"""AES-256 in counter mode by the processor's own instructions, for compiled code.

Compiled code cannot call OpenSSL without coming back to Python for each request; and OpenSSL's
counter mode encrypts one block with an instruction where newer processors take two.
"""

import platform
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numba
import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dpsgd.compiled import compiled

Words: TypeAlias = NDArray[np.uint64]
STEP = 32
"""Words that are encrypted together: 16 blocks of 128 bits."""
_IN_FLIGHT = 8
"""Registers in flight: an instruction's result takes some cycles, in which others can begin."""
_ROUNDS = 14


class Aes(NamedTuple):
    """Source: NIST, FIPS 197 and SP 800-38A, section 6.5."""

    expand: Callable[[Words], Words]
    """Takes a key of 4 words and returns its schedule of 30."""
    keystream: Callable[[Words, Words, int], None]
    """Overwrites contiguous words, a multiple of `STEP`, by the keystream of a schedule from a
    block's number on, which is a multiple of 16 below 2**63. Compiled: nothing is checked."""


@cache
def load_aes() -> Aes | None:
    """Return AES in compiled code, or None where the processor has no instructions for it."""
    return None if (blocks := _blocks_at_once()) == 0 else _compile_aes(blocks)


def _blocks_at_once() -> int:
    """Return how many blocks an instruction encrypts, of those that compiled code may use."""
    settings: Any = numba.config
    if platform.machine().lower() not in ("x86_64", "amd64") or not settings.ENABLE_AVX:
        return 0
    if (settings.CPU_NAME, settings.CPU_FEATURES) != (None, None) or settings.DISABLE_JIT:
        return 0  # another processor's code
    try:
        features = binding.get_host_cpu_features()
    except RuntimeError:  # it does not know
        return 0
    if not features.get("aes"):
        return 0
    return 2 if features.get("vaes") and features.get("avx2") else 1


def _compile_aes(blocks: int) -> Aes:
    """Return AES by instructions that encrypt 1 or 2 blocks."""
    i32, i64 = ir.IntType(32), ir.IntType(64)
    block, wide = ir.VectorType(i64, 2), ir.VectorType(i64, 2 * blocks)

    def instruction(builder: Any, name: str, vector: Any) -> Any:
        name = f"llvm.x86.aesni.{name}" + ("" if vector.count == 2 else f".{64 * vector.count}")
        module = builder.module
        kind = ir.FunctionType(vector, [vector, vector])
        return module.globals.get(name) or ir.Function(module, kind, name)

    def substitute(_context: Any, _word: Any) -> Any:
        """Apply the S-box to each byte of a word of 32 bits."""

        def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
            # Where all columns are the same, the last round's other step moves nothing.
            word = builder.zext(args[0], i64)
            both = builder.or_(word, builder.shl(word, i64(32)))
            column = block([0, 0])
            for place in range(2):
                column = builder.insert_element(column, both, i32(place))
            last = instruction(builder, "aesenclast", block)
            done = builder.call(last, [column, block([0, 0])])
            return builder.trunc(builder.extract_element(done, i32(0)), i32)

        return types.uint32(types.uint32), generate

    def encrypt_blocks(_context: Any, _out: Any, _schedule: Any, _first: Any) -> Any:
        """Write keystream at an address, by the schedule at another, from a block on."""

        def generate(target: Any, builder: Any, _signature: Any, args: Any) -> Any:
            out, schedule, first = args
            middle = instruction(builder, "aesenc", wide)
            last = instruction(builder, "aesenclast", wide)
            keys = builder.inttoptr(schedule, block.as_pointer())
            places = builder.inttoptr(out, wide.as_pointer())
            # The counter's bytes stand from the highest to the lowest, and blocks begin at a
            # multiple of 16: their numbers differ in the lowest four bits, of the last byte.
            swapped, counter = builder.bswap(first), wide([0] * wide.count)
            for at in range(blocks):
                counter = builder.insert_element(counter, swapped, i32(2 * at + 1))

            def key(number: int) -> Any:
                one = builder.load(builder.gep(keys, [i32(number)]), align=8)
                lanes = ir.VectorType(i32, wide.count)([0, 1] * blocks)
                return builder.shuffle_vector(one, one, lanes)

            for begin in range(0, STEP // 2 // blocks, _IN_FLIGHT):
                states = []
                for number in range(begin, begin + _IN_FLIGHT):
                    bits = [
                        part << 56 for at in range(blocks) for part in (0, number * blocks + at)
                    ]
                    states.append(builder.xor(builder.or_(counter, wide(bits)), key(0)))
                for number in range(1, _ROUNDS):
                    states = [builder.call(middle, [state, key(number)]) for state in states]
                for number, state in enumerate(states, begin):
                    done = builder.call(last, [state, key(_ROUNDS)])
                    builder.store(done, builder.gep(places, [i32(number)]), align=8)
            return target.get_dummy_value()

        return types.void(types.uintp, types.uintp, types.uint64), generate

    substituted: Any = intrinsic(substitute)
    encrypt: Any = intrinsic(encrypt_blocks)

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

    @compiled
    def keystream(words: Words, schedule: Words, first: int) -> None:
        out, number = np.uint64(words.ctypes.data), np.uint64(first)
        for i in range(0, words.size, STEP):
            encrypt(out + np.uint64(8 * i), schedule.ctypes.data, number + np.uint64(i // 2))

    return Aes(expand, keystream)
