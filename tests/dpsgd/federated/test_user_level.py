"""User-level privacy of federated trainings: accounts, participation, and what is released."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsgd.accounting import (
    PoissonSampling,
    RDPAccountant,
    Relation,
    calibrate_noise_multiplier,
    gaussian_epsilon,
)
from dpsgd.clipping.schedules import Exponential
from dpsgd.federated.protection import Protected, Protection, Setting
from dpsgd.federated.user_level import ToeplitzFTRL, TreeFTRL, UserLevel
from ldp import InvalidInput

SETTING = Setting(clients=40, per_round=4, rounds=12, dimension=300, seed=7)


def updates(clients: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
    rng = np.random.default_rng(5)
    for _ in clients:
        yield rng.normal(size=SETTING.dimension).astype(np.float32)


def run(kind: Protection, setting: Setting = SETTING) -> tuple[Protected, list[NDArray[np.int64]]]:
    protected, rng, drawn = kind.start(setting), np.random.default_rng(1), []
    for number in range(1, setting.rounds + 1):
        drawn.append(protected.draw(number, rng))
        made = protected.aggregate(number, drawn[-1], updates(drawn[-1]))
        assert made.shape == (setting.dimension,)
    return protected, drawn


@pytest.mark.parametrize(
    ("clients", "per_round", "delta", "noises"),
    [
        (10_000, 100, 1e-5, (1.0802, 0.7123, 0.5003)),
        (100_000, 1_000, 1e-6, (1.1844, 0.7660, 0.5326)),
    ],
)
def test_the_noise_of_federated_averaging(
    clients: int, per_round: int, delta: float, noises: tuple[float, ...]
) -> None:
    sampling = PoissonSampling(per_round / clients)
    for epsilon, expected in zip((1, 3, 8), noises, strict=True):
        accountant = RDPAccountant(Relation.ADD_REMOVE)
        noise = calibrate_noise_multiplier(accountant, epsilon, delta, sampling=sampling, steps=100)
        assert noise == pytest.approx(expected, abs=2e-4)


def test_user_level_has_the_account_of_poisson_samples() -> None:
    protected, drawn = run(UserLevel(max_update_norm=1.0, noise_multiplier=1.1))
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    accountant.step(noise_multiplier=1.1, sampling=PoissonSampling(0.1), steps=12)
    assert protected.get_epsilon(1e-5) == accountant.get_epsilon(1e-5)
    assert len({len(clients) for clients in drawn}) > 2  # coins, not a fixed number


def test_a_noise_that_changes_over_rounds_is_accounted_for_round_by_round() -> None:
    noise, norm = Exponential(2.0, 0.9), Exponential(1.0, 0.8)
    protected, _ = run(UserLevel(max_update_norm=norm, noise_multiplier=noise))
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    for number in range(12):
        accountant.step(noise_multiplier=2.0 * 0.9**number, sampling=PoissonSampling(0.1))
    assert protected.get_epsilon(1e-5) == pytest.approx(accountant.get_epsilon(1e-5))
    setting = Setting(clients=40, per_round=4, rounds=12, dimension=20_000, seed=7)
    started = UserLevel(max_update_norm=norm, noise_multiplier=noise).start(setting)
    for number in (1, 4):
        made = started.aggregate(number, np.array([], dtype=np.int64), iter(()))
        expected = 2.0 * 0.9 ** (number - 1) * 0.8 ** (number - 1) / 4
        assert made.std() == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("kind", [TreeFTRL, ToeplitzFTRL])
def test_ftrl_is_one_gaussian_mechanism(kind: type[TreeFTRL] | type[ToeplitzFTRL]) -> None:
    value = kind(max_update_norm=1.0, noise_multiplier=3.0, participations=2, separation=4)
    protected, _ = run(value)
    expected = gaussian_epsilon(3.0 / value.sensitivity(12), 1e-5)
    assert protected.get_epsilon(1e-5) == pytest.approx(expected)
    fresh = value.start(SETTING)
    assert fresh.get_epsilon(1e-5) == 0
    fresh.aggregate(1, np.array([], dtype=np.int64), iter(()))
    assert 0 < fresh.get_epsilon(1e-5) <= expected


@pytest.mark.parametrize("kind", [TreeFTRL, ToeplitzFTRL])
def test_nobody_takes_part_more_often_than_is_accounted_for(
    kind: type[TreeFTRL] | type[ToeplitzFTRL],
) -> None:
    value = kind(max_update_norm=1.0, noise_multiplier=3.0, participations=2, separation=4)
    _, drawn = run(value)
    for client in range(SETTING.clients):
        rounds = [number for number, clients in enumerate(drawn) if client in clients]
        assert len(rounds) <= 2
        assert (np.diff(rounds) >= 4).all()


@pytest.mark.parametrize(
    "kind",
    [
        TreeFTRL(max_update_norm=0.5, noise_multiplier=1e-3, participations=1, separation=1),
        ToeplitzFTRL(max_update_norm=0.5, noise_multiplier=1e-3, participations=1, separation=1),
        UserLevel(max_update_norm=0.5, noise_multiplier=1e-3),
    ],
)
def test_updates_are_clipped_and_one_that_diverged_counts_as_zeros(kind: Protection) -> None:
    vectors = np.random.default_rng(3).normal(size=(3, 300)).astype(np.float32)
    vectors[1] *= 1e-3
    broken = vectors[2].copy()
    broken[5] = np.nan
    given = iter([vectors[0], vectors[1], broken])
    made = kind.start(replace(SETTING, rounds=10)).aggregate(1, np.arange(3), given)
    expected = vectors[0] / np.linalg.norm(vectors[0]) * 0.5 + vectors[1]
    assert made * 4 == pytest.approx(expected, abs=5e-3)


def test_what_protects_nobody_is_refused() -> None:
    numbers = {
        "max_update_norm": 1.0,
        "noise_multiplier": 1.0,
        "participations": 1,
        "separation": 1,
    }
    for name in numbers:
        with pytest.raises(InvalidInput, match=name):
            TreeFTRL(**numbers | {name: 0})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="bands"):
        ToeplitzFTRL(**numbers, bands=0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="noise_multiplier"):
        UserLevel(max_update_norm=1.0, noise_multiplier=-1.0)
