"""Count-mean sketches: the public family, and the error that its collisions leave."""

import hashlib

import numpy as np
import pytest

from ldp import CountMeanSketch, HadamardCountMeanSketch, InvalidInput, build
from ldp.testing import SeededCoins

SKETCHES = (CountMeanSketch, HadamardCountMeanSketch)
Sketch = type[CountMeanSketch] | type[HadamardCountMeanSketch]


def test_the_family_is_the_documented_one() -> None:
    mechanism = HadamardCountMeanSketch(50, 1.0, hashes=7, buckets=10, seed=99)
    for i in range(7):
        digest = hashlib.sha256((99).to_bytes(8, "little") + i.to_bytes(8, "little")).digest()
        a, b, c = (
            int.from_bytes(digest[8 * j : 8 * j + 8], "little") % mechanism.prime for j in range(3)
        )
        hashes = mechanism._hashed(i, np.arange(50))
        for v in range(50):
            residue = (a * v**2 + b * v + c) % mechanism.prime
            assert hashes[v] == residue * 10 // mechanism.prime


@pytest.mark.parametrize("kind", SKETCHES)
def test_the_supports_are_those_of_a_loop(kind: Sketch, coins: SeededCoins) -> None:
    mechanism = kind(20, 1.0, hashes=4, buckets=8)
    codes = mechanism.randomize_many(np.arange(300) % 20, coins)
    inner = mechanism._inner
    supports = np.zeros(20, dtype=np.int64)
    for code in codes:
        if kind is CountMeanSketch:
            function, bits = int(code["function"]), code["bits"]
        else:
            function, bits = divmod(int(code), inner.tally_size)
        own = inner.supports(inner.tally(np.array([bits], dtype=inner.code_dtype)))
        supports += own[mechanism._hashed(function, np.arange(20))]
    assert mechanism.supports(mechanism.tally(codes)).tolist() == supports.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("kind", SKETCHES)
def test_over_seeds_estimates_are_unbiased_with_the_stated_variance(
    kind: Sketch, coins: SeededCoins
) -> None:
    k, n, trials = 40, 1000, 600
    truth = np.zeros(k)
    truth[[3, 4, 5, 20]] = 0.4, 0.3, 0.2, 0.1  # neighbours too: a family of lines would fail
    generator = np.random.default_rng(3)
    errors = []
    for seed in range(1, trials + 1):
        mechanism = kind(k, 2.0, hashes=8, buckets=16, seed=seed)
        codes = mechanism.randomize_many(generator.choice(k, n, p=truth), coins)
        errors.append(mechanism.debias(mechanism.tally(codes)) - truth)
    error = np.array(errors)
    predicted = mechanism.variance(truth, n)
    assert np.all(abs(error.mean(axis=0)) <= 4 * error.std(axis=0) / trials**0.5)
    assert (np.square(error).mean(axis=0) / predicted).mean() == pytest.approx(1, abs=0.05)
    reports_alone = super(kind, mechanism).variance(truth, 10**12)
    assert reports_alone[0] == pytest.approx(
        (0.4**2 + 0.3**2 + 0.2**2 + 0.1**2) / (15 * 8), rel=0.01
    )


@pytest.mark.parametrize("kind", SKETCHES)
def test_the_noise_is_that_of_the_inner_oracle(kind: Sketch) -> None:
    # f alone, nothing else to collide with, and many buckets: SUE's and HRR's variance.
    from ldp import HRR, UnaryEncoding

    inner = {
        CountMeanSketch: UnaryEncoding.symmetric(8192, 1.0),
        HadamardCountMeanSketch: HRR(8192, 1.0),
    }[kind]
    ours = kind(100_000, 1.0, hashes=2000, buckets=8192).variance(np.zeros(100_000), 1000)
    assert ours[0] == pytest.approx(float(inner.variance(0, 1000)), rel=0.002)


def test_codes_of_unknown_functions_or_bits_are_refused() -> None:
    cms = CountMeanSketch(20, 1.0, hashes=3, buckets=12)
    with pytest.raises(InvalidInput, match="a cms function must be below 3, got 3"):
        cms.decode(bytes([3, 0, 0, 0, 0, 0]), 1)
    with pytest.raises(InvalidInput, match="bit beyond its 12"):
        cms.decode(bytes([2, 0, 0, 0, 0, 0x10]), 1)
    hcms = HadamardCountMeanSketch(20, 1.0, hashes=3, buckets=8)
    with pytest.raises(InvalidInput, match="a hcms code must be below 42, got 42"):
        hcms.decode(bytes([42]), 1)


@pytest.mark.parametrize("kind", SKETCHES)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hashes": [1 << 17]}, r"hashes must lie in 1\.\.65536, got 131072"),
        ({"buckets": [1]}, r"buckets must lie in 2\.\.32768, got 1"),
        ({"hashes": [1 << 16]}, r"hashes \* buckets must be at most 16777216, got 67108864"),
        ({"seed": [1 << 64]}, r"seed must lie in 1\.\.2\*\*64 - 1"),
        ({"prime": [1000]}, r"prime must be a prime in 1024\.\.4194304, got 1000"),
        ({"flip": [1 << 64]}, "flip must lie strictly between 0 and"),
    ],
)
def test_integers_that_make_no_sketch_are_refused(
    kind: Sketch, change: dict[str, list[int]], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        build(kind.name, 1.0, kind(50, 1.0).integers | change)
