"""Noise of rounds from a seed: its distribution, its bits, and what an adversary can tell."""

import hashlib
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from dpsgd.accounting import gaussian_epsilon
from dpsgd.federated import exact_sums
from dpsgd.federated.exact_sums import ExactSum
from dpsgd.federated.round_noise import RoundNoise
from dpsgd.noise.keyed import KeyedNormals, _quantile
from ldp import InvalidInput
from ldp.planning.prefix_sums import coefficients, sensitivity

SEED = bytes(range(32))


def made(mechanism: str, dimension: int = 5, seed: bytes = SEED, **changed: Any) -> RoundNoise:
    numbers: dict[str, Any] = {
        "rounds": 8,
        "bands": 4 if mechanism == "toeplitz" else 0,
        "participations": 2,
        "separation": 4,
        "noise_multiplier": 2.0,
        "max_update_norm": 1.0,
    }
    return RoundNoise(mechanism, dimension=dimension, seed=seed, **numbers | changed)  # type: ignore[arg-type]


def released(noise: RoundNoise, rounds: int = 8) -> NDArray[np.float64]:
    return np.array([noise.release(t, noise.sum()) for t in range(1, rounds + 1)])


def toeplitz(rounds: int, bands: int) -> NDArray[np.float64]:
    c = coefficients(bands) / 2**32
    return np.array(
        [[c[t - s] if 0 <= t - s < bands else 0.0 for s in range(rounds)] for t in range(rounds)]
    )


def tree_gram(rounds: int) -> NDArray[np.float64]:
    """Return how many nodes of a tree two rounds have in common."""
    common = np.zeros((rounds, rounds))
    for height in range(rounds.bit_length()):
        nodes = np.arange(rounds) >> height
        common += nodes[:, None] == nodes
    return common


@pytest.mark.parametrize("bands", [1, 3, 8])
def test_toeplitz_noise_is_the_inverse_of_the_root_times_normal_values(bands: int) -> None:
    noise = made("toeplitz", 50, bands=bands)
    deviation = 2.0 * (1 + 1 / 4096) / noise.spacing
    fresh = np.array([KeyedNormals(SEED).integers(t, 50, deviation) for t in range(8)])
    expected = np.linalg.solve(toeplitz(8, bands), fresh * noise.spacing)
    found = released(noise)
    assert np.abs(found - expected).max() < 4 * noise.spacing
    assert (np.rint(found / noise.spacing) * noise.spacing == found).all()


@pytest.mark.parametrize("mechanism", ["toeplitz", "tree"])
def test_the_covariance_of_the_noise_is_that_of_the_mechanism(mechanism: str) -> None:
    size = 40_000
    matrix = toeplitz(8, 4)
    gram = matrix.T @ matrix if mechanism == "toeplitz" else tree_gram(8)
    expected = 4 * np.linalg.inv(gram)
    found = released(made(mechanism, size))
    errors = np.sqrt((np.outer(expected.diagonal(), expected.diagonal()) + expected**2) / size)
    assert (np.abs(found @ found.T / size - expected) < 4.5 * errors).all()


@pytest.mark.parametrize("mechanism", ["toeplitz", "tree"])
def test_a_round_that_is_made_again_has_the_same_bits(mechanism: str) -> None:
    once = released(made(mechanism))
    for number in (1, 5, 8):
        fresh = made(mechanism)
        assert (fresh.release(number, fresh.sum()) == once[number - 1]).all()
        assert (fresh.release(number, fresh.sum()) == once[number - 1]).all()
    other = released(made(mechanism, seed=bytes(32)))
    assert not np.isin(other, once).any()


@pytest.mark.parametrize("mechanism", ["toeplitz", "tree"])
@pytest.mark.parametrize("bands", [1, 4])
def test_a_dropped_round_leaves_its_noise_to_the_next(mechanism: str, bands: int) -> None:
    bands = bands if mechanism == "toeplitz" else 0
    once = released(made(mechanism, bands=bands))
    noise = made(mechanism, bands=bands)
    noise.release(2, noise.sum(), since=0)
    assert (noise.release(6, noise.sum(), since=2) == once[2:6].sum(axis=0)).all()


HASHES = {
    "toeplitz": "17350f71a149a08a5e630a4a21c4a35860ce1c305aa6829d53519c3b21df4a95",
    "tree": "0d4ddc54476b40f15f73e62ffe58045848cefa52f7aaf3c11178fd6afa392dd9",
}
"""SHA-256 of round 8 of 20,000 parameters: of every machine, for ever."""


@pytest.mark.parametrize("mechanism", HASHES)
def test_the_noise_has_the_bits_that_it_always_had(mechanism: str) -> None:
    noise = made(mechanism, 20_000)
    bits = noise.release(8, noise.sum()).astype("<f8").tobytes()
    assert hashlib.sha256(bits).hexdigest() == HASHES[mechanism]


@pytest.mark.slow
def test_without_torch_or_numba_the_bits_are_the_same() -> None:
    code = """
import sys, hashlib
for name in ("torch", "numba"): sys.modules[name] = None
from dpsgd.federated.round_noise import RoundNoise
for mechanism, bands in (("toeplitz", 4), ("tree", 0)):
    noise = RoundNoise(mechanism, rounds=8, bands=bands, participations=2, separation=4,
        noise_multiplier=2.0, max_update_norm=1.0, dimension=20000, seed=bytes(range(32)))
    print(hashlib.sha256(noise.release(8, noise.sum()).tobytes()).hexdigest())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == list(HASHES.values())


def test_keyed_values_are_normal_and_exact_quantiles() -> None:
    values = KeyedNormals(SEED).row(3, 100_000)
    assert stats.kstest(values, "norm").pvalue > 0.01
    assert (KeyedNormals(SEED).row(3, 20_000) == values[:20_000]).all()
    chances = 2.0 ** -np.linspace(1, 128, 500)
    assert _quantile(chances) == pytest.approx(-special.ndtri(chances), rel=1e-14)


@pytest.mark.parametrize("bits", [12, 17.5, 49])
def test_keyed_integers_are_normal_values_blurred_evenly(bits: float) -> None:
    # Without the blur, the chances of single integers tell which multiples a double can have.
    normals, deviation = KeyedNormals(SEED), 2.0**bits
    width = normals.width(deviation)
    assert width == min(2 ** int(bits - 12), 2**32)
    made, values = normals.integers(3, 50_000, deviation), normals.row(3, 50_000)
    assert (made[:20_000] == normals.integers(3, 20_000, deviation)).all()
    blur = made - np.rint(values * deviation)
    assert -(width // 2) == blur.min() if width < 100 else blur.min() >= -(width // 2)
    assert blur.max() <= max(0, width // 2 - 1)
    if width > 1:
        assert stats.chisquare(np.bincount(blur.astype(int) % 16, minlength=16)).pvalue > 0.01
        assert abs(np.corrcoef(blur, values)[0, 1]) < 4 / math.sqrt(blur.size)
        assert blur.std() == pytest.approx(width / math.sqrt(12), rel=0.02)


def test_the_order_of_updates_does_not_matter_and_sums_are_exact() -> None:
    rng = np.random.default_rng(2)
    updates = rng.normal(size=(30, 700)) * 10.0 ** rng.integers(-3, 3, (30, 1))
    first = ExactSum(700, 5.0).add_all(updates)
    second = ExactSum(700, 5.0).add_all(updates[::-1])
    assert (first.units == second.units).all()
    norms = np.linalg.norm(updates.astype(float), axis=1, keepdims=True)
    expected = (updates * np.minimum(1, 5 / norms)).sum(axis=0)
    assert np.abs(first.value() - expected).max() <= 30 * first.spacing + 1e-13


def test_no_update_adds_more_than_its_norm() -> None:
    rng = np.random.default_rng(3)
    for scale in (1e-3, 0.9999999, 1.0, 1.0000001, 1e30):
        for dimension in (1, 3, 3000):
            update = rng.normal(size=dimension)
            update *= scale / np.linalg.norm(update)
            total = ExactSum(dimension, 1.0)
            total.add(update)
            square = sum(unit * unit for unit in total.units.tolist())
            assert square <= round(1 / total.spacing) ** 2
            if scale <= 0.9999999:
                assert total.value() == pytest.approx(update, abs=total.spacing)


@pytest.mark.parametrize("dimension", [1, 2047, 40_001])
def test_compiled_sums_are_those_of_numpy_to_the_bit(
    dimension: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    updates = rng.standard_normal((40, dimension), np.float32) / np.float32(math.sqrt(dimension))
    updates[::2] *= rng.choice(np.array([1e-20, 0.5, 3.0, 1e18], np.float32), (20, 1))
    updates[7].flags.writeable = False  # the view of a payload
    plain = ExactSum(dimension, 1.0).add_all(updates)
    monkeypatch.setattr(exact_sums, "_COMPILE", 0)
    assert exact_sums._loops(updates[0])
    found = ExactSum(dimension, 1.0).add_all(updates)
    assert (found.units == plain.units).all()
    for value in (np.inf, np.nan):
        updates[1, -1] = value
        with pytest.raises(InvalidInput, match="finite"):
            found.add(updates[1])
    assert found.updates == 40
    assert (found.units == plain.units).all()


def test_without_numba_a_large_sum_is_made_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    update = np.linspace(-1, 1, 300, dtype=np.float32)
    expected = ExactSum(300, 1.0).add_all([update])
    monkeypatch.setattr(exact_sums, "_COMPILE", 0)
    monkeypatch.setattr(exact_sums, "_compiled", exact_sums._compiled.__wrapped__)
    monkeypatch.setattr("importlib.import_module", missing)
    assert (ExactSum(300, 1.0).add_all([update]).units == expected.units).all()


@pytest.mark.parametrize(
    "update", [np.zeros(3), np.array([0, np.nan]), np.array([np.inf, 0]), np.array([1e200, 0])]
)
def test_a_bad_update_is_refused_and_the_sum_is_unharmed(update: NDArray[np.float64]) -> None:
    total = ExactSum(2, 1.0)
    total.add(np.array([0.5, 0.0]))
    with pytest.raises(InvalidInput):
        total.add(update)
    assert total.updates == 1
    assert total.value().tolist() == [0.5, 0.0]


@pytest.mark.parametrize("mechanism", ["toeplitz", "tree"])
def test_neighbours_can_be_told_apart_as_the_account_says_and_no_better(mechanism: str) -> None:
    noise_multiplier, people = 1.5, 20_000
    matrix = toeplitz(8, 4)
    if mechanism == "tree":  # the lower triangle with the same products of columns
        matrix[:] = np.linalg.cholesky(tree_gram(8)[::-1, ::-1])[::-1, ::-1].T
    direction = matrix @ np.array([1, 0, 0, 0, 1, 0, 0, 0])  # the best test: the likelihood ratio
    most = sensitivity(mechanism, 8, 4 if mechanism == "toeplitz" else 0, 2, 4)  # type: ignore[arg-type]
    assert np.linalg.norm(direction) == pytest.approx(most)
    noise = made(
        mechanism, people, noise_multiplier=noise_multiplier, max_update_norm=math.sqrt(people)
    )
    without = released(noise)
    sums = [noise.sum() for _ in range(8)]
    for t in (0, 4):  # each coordinate is one world of its own, with an update of norm 1
        sums[t].add(np.ones(people))
    with_person = np.array([noise.release(t + 1, total) for t, total in enumerate(sums)])
    apart = direction @ matrix @ (with_person - without) / most
    assert apart == pytest.approx(np.full(people, most), abs=0.01)
    other = direction @ matrix @ without / most / (noise_multiplier * math.sqrt(people))
    shift = most / noise_multiplier  # in each world the noise is as wide as the account says
    assert other.std() == pytest.approx(1, rel=0.02)
    assert stats.kstest(other / (1 + 1 / 4096), "norm").pvalue > 0.01
    delta = 1e-2
    epsilon = gaussian_epsilon(noise_multiplier / most, delta)
    for threshold in np.linspace(-1, 2, 13):
        true = np.mean(other + shift > threshold)
        false = np.mean(other > threshold)
        slack = 4 * math.sqrt((true + math.exp(2 * epsilon) * false) / people)
        assert true <= math.exp(epsilon) * false + delta + slack


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"seed": bytes(31)}, "32 bytes"),
        ({"seed": "x" * 32}, "32 bytes"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"max_update_norm": math.nan}, "max_update_norm"),
        ({"dimension": 0}, "dimension"),
        ({"bands": 9}, "bands"),
        ({"noise_multiplier": 1e9}, "too fine"),
        ({"noise_multiplier": 2.0**24, "dimension": 1 << 15, "rounds": 1, "bands": 1}, "too fine"),
    ],
)
def test_impossible_noise_is_refused(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        made("toeplitz", **{"participations": 1, "separation": 1} | changed)


def test_rounds_that_do_not_follow_are_refused() -> None:
    noise = made("toeplitz")
    for number, since in ((0, 0), (9, 8), (3, 3), (3, -1)):
        with pytest.raises(InvalidInput):
            noise.release(number, noise.sum(), since=since)
    with pytest.raises(InvalidInput, match="same training"):
        noise.release(1, ExactSum(5, 1.0))
