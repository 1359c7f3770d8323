"""Speed of k-RR and unary encoding beside its floor: what plain numpy does without privacy.

Each group has ours and its floor in one process and one thread; what counts is their ratio.
The floors use numpy's seeded generator, and for unary encoding coins of eight bits, so they are
neither secure nor exact: they are what speed costs when it is all that matters.
"""

import math
import os

import numpy as np
import pytest

from ldp import KRR, Coins, UnaryEncoding

EPSILON = 1.0
SIZES = (128, 1024)
KRR_REPORTS = 1_000_000
UNARY_BITS = 1 << 25

sizes = pytest.mark.parametrize("k", SIZES)


def categories(k: int, n: int) -> np.ndarray:
    return np.random.default_rng(k).integers(0, k, n)


@sizes
@pytest.mark.benchmark(group="k-RR batch of 1M reports")
def test_krr_batch_ours(benchmark, k: int) -> None:
    mechanism, values = KRR(k, EPSILON), categories(k, KRR_REPORTS)
    codes = benchmark(mechanism.randomize_many, values, Coins())
    assert codes.shape == values.shape


@sizes
@pytest.mark.benchmark(group="k-RR batch of 1M reports")
def test_krr_batch_floor_insecure_numpy(benchmark, k: int) -> None:
    values, generator = categories(k, KRR_REPORTS), np.random.default_rng(1)
    p = math.exp(EPSILON) / (math.exp(EPSILON) + k - 1)

    def floor() -> np.ndarray:
        kept = generator.random(KRR_REPORTS) < p
        return np.where(kept, values, generator.integers(0, k, KRR_REPORTS))

    assert benchmark(floor).shape == values.shape


@sizes
@pytest.mark.benchmark(group="OUE batch of 32M bits")
def test_oue_batch_ours(benchmark, k: int) -> None:
    mechanism, values = UnaryEncoding(k, EPSILON), categories(k, UNARY_BITS // k)
    codes = benchmark(mechanism.randomize_many, values, Coins())
    assert codes.shape == (values.size, k // 8)


@sizes
@pytest.mark.benchmark(group="OUE batch of 32M bits")
def test_oue_batch_floor_insecure_8_bit_coins(benchmark, k: int) -> None:
    values, generator = categories(k, UNARY_BITS // k), np.random.default_rng(1)
    q = round(256 / (math.exp(EPSILON) + 1))

    def floor() -> np.ndarray:
        packed = []
        for block in np.array_split(values, 64):  # whole, it would fall out of the cache
            octets = generator.integers(0, 256, (block.size, k), dtype=np.uint8)
            bits = octets < q
            rows = np.arange(block.size)
            bits[rows, block] = octets[rows, block] < 128
            packed.append(np.packbits(bits, axis=1, bitorder="little"))
        return np.concatenate(packed)

    assert benchmark(floor).shape == (values.size, k // 8)


@sizes
@pytest.mark.benchmark(group="k-RR tally of 1M reports")
def test_krr_tally_ours(benchmark, k: int) -> None:
    mechanism = KRR(k, EPSILON)
    codes = mechanism.randomize_many(categories(k, KRR_REPORTS), Coins())
    assert benchmark(mechanism.tally, codes).n == KRR_REPORTS


@sizes
@pytest.mark.benchmark(group="k-RR tally of 1M reports")
def test_krr_tally_floor_bincount(benchmark, k: int) -> None:
    codes = KRR(k, EPSILON).randomize_many(categories(k, KRR_REPORTS), Coins())
    assert benchmark(np.bincount, codes, minlength=k).sum() == KRR_REPORTS


@sizes
@pytest.mark.benchmark(group="OUE tally of 32M bits")
def test_oue_tally_ours(benchmark, k: int) -> None:
    mechanism = UnaryEncoding(k, EPSILON)
    codes = mechanism.randomize_many(categories(k, UNARY_BITS // k), Coins())
    assert benchmark(mechanism.tally, codes).n == len(codes)


@sizes
@pytest.mark.benchmark(group="OUE tally of 32M bits")
def test_oue_tally_floor_unpack_and_sum(benchmark, k: int) -> None:
    codes = UnaryEncoding(k, EPSILON).randomize_many(categories(k, UNARY_BITS // k), Coins())

    def floor() -> np.ndarray:
        return np.unpackbits(codes, axis=1, bitorder="little").sum(axis=0)

    assert benchmark(floor).shape == (k,)


@pytest.mark.benchmark(group="16 MB of random bytes")
def test_random_bytes_ours(benchmark) -> None:
    assert benchmark(Coins().words, 1 << 21).size == 1 << 21


@pytest.mark.benchmark(group="16 MB of random bytes")
def test_random_bytes_floor_of_the_system(benchmark) -> None:
    assert len(benchmark(os.urandom, 1 << 24)) == 1 << 24
