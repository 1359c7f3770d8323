"""Speed of the oracles with structured supports, beside floors measured in the same run.

Floors are what plain numpy or numba do with the same number of reports: an insecure k-RR for
the clients, an insecure subset for subset selection, a straightforward compiled loop for the
tally of local hashing, numpy's own transform of as many numbers for the estimates.
"""

from collections.abc import Callable

import numpy as np
import pytest

from ldp import (
    HRR,
    Coins,
    HadamardResponse,
    LocalHashing,
    Mechanism,
    ProjectiveGeometry,
    SubsetSelection,
    Tally,
)

EPSILON = 1.0
N = 200_000
SUBSETS = 20_000
FAST = (HRR, HadamardResponse, LocalHashing, ProjectiveGeometry)

sizes = pytest.mark.parametrize("k", [128, 1024])


def categories(k: int, n: int) -> np.ndarray:
    return np.random.default_rng(k).integers(0, k, n)


@sizes
@pytest.mark.benchmark(group="structured clients, batch of 200k reports")
@pytest.mark.parametrize("kind", FAST, ids=lambda kind: kind.name)
def test_clients(benchmark: Callable, kind: type[Mechanism], k: int) -> None:
    benchmark(kind(k, EPSILON).randomize_many, categories(k, N), Coins())


@sizes
@pytest.mark.benchmark(group="structured clients, batch of 200k reports")
def test_clients_floor_insecure_krr(benchmark: Callable, k: int) -> None:
    values, generator = categories(k, N), np.random.default_rng(1)
    benchmark(lambda: np.where(generator.random(N) < 0.5, generator.integers(0, k, N), values))


@sizes
@pytest.mark.benchmark(group="subset selection, batch of 20k reports")
def test_subsets(benchmark: Callable, k: int) -> None:
    benchmark(SubsetSelection(k, EPSILON).randomize_many, categories(k, SUBSETS), Coins())


@sizes
@pytest.mark.benchmark(group="subset selection, batch of 20k reports")
def test_subsets_floor_insecure_partition(benchmark: Callable, k: int) -> None:
    size, generator = SubsetSelection(k, EPSILON).size, np.random.default_rng(1)
    keys = np.float32
    benchmark(
        lambda: generator.random((SUBSETS, k), dtype=keys).argpartition(size, axis=1)[:, :size]
    )


@sizes
@pytest.mark.benchmark(group="local hashing tally, 200k reports")
def test_hashing_tally(benchmark: Callable, k: int) -> None:
    mechanism = LocalHashing(k, EPSILON)
    codes = mechanism.randomize_many(categories(k, N), Coins())
    mechanism.tally(codes)  # compiles
    benchmark(mechanism.tally, codes)


@sizes
@pytest.mark.benchmark(group="local hashing tally, 200k reports")
def test_hashing_tally_floor_compiled_loop(benchmark: Callable, k: int) -> None:
    numba = pytest.importorskip("numba")
    generator = np.random.default_rng(1)
    seeds, y = generator.integers(0, 1 << 30, N, dtype=np.uint32), categories(4, N)

    @numba.njit
    def count(seeds: np.ndarray, y: np.ndarray, counts: np.ndarray) -> None:
        for i in range(seeds.size):
            for v in range(counts.size):
                mixed = np.uint32(np.uint32(seeds[i] ^ np.uint32(v)) * np.uint32(0x9E3779B1))
                counts[v] += np.uint32(mixed >> np.uint32(30)) == y[i]

    count(seeds[:1], y[:1], np.zeros(k, np.int64))
    benchmark(count, seeds, y, np.zeros(k, np.int64))


@sizes
@pytest.mark.benchmark(group="subset selection tally, 20k reports")
def test_subsets_tally(benchmark: Callable, k: int) -> None:
    mechanism = SubsetSelection(k, EPSILON)
    benchmark(mechanism.tally, mechanism.randomize_many(categories(k, SUBSETS), Coins()))


@sizes
@pytest.mark.benchmark(group="subset selection tally, 20k reports")
def test_subsets_tally_floor_unpack_and_sum(benchmark: Callable, k: int) -> None:
    masks = np.random.default_rng(1).integers(0, 256, (SUBSETS, k // 8), dtype=np.uint8)
    benchmark(lambda: np.unpackbits(masks, axis=1).sum(axis=0))


@pytest.mark.benchmark(group="estimates of 2**20 categories")
@pytest.mark.parametrize(
    "kind", [HRR, HadamardResponse, ProjectiveGeometry], ids=lambda kind: kind.name
)
def test_estimates(benchmark: Callable, kind: type[Mechanism]) -> None:
    mechanism = kind(1 << 20, EPSILON)
    counts = np.random.default_rng(1).integers(0, 9, mechanism.tally_size)
    benchmark(mechanism.debias, Tally(int(counts.sum()), counts))


@pytest.mark.benchmark(group="estimates of 2**20 categories")
def test_estimates_floor_numpy_fourier_transform(benchmark: Callable) -> None:
    benchmark(np.fft.rfft, np.random.default_rng(1).random(1 << 20))
