"""Trainings whose updates are codes: what is learned, what is spent, what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from dpsgd.federated import Accuracy, FedAvg, Federation, FedMedian, LocalSGD, LocalUpdates
from dpsgd.federated.protection import Setting
from ldp import InvalidInput, SphereCodebook

RNG = np.random.default_rng(5)
LABELS = RNG.integers(0, 2, 600)
FEATURES = np.where(LABELS[:, None] == 1, 1, -1) * [1.0, -0.5] + RNG.normal(size=(600, 2))
CLIENTS = [np.array([i]) for i in range(600)]
STEP = LocalSGD(lr=1.0, batch_size=0)


def federation(privacy: LocalUpdates, strategy: FedAvg | FedMedian | None = None) -> Federation:
    torch.manual_seed(0)
    return Federation(
        nn.Linear(2, 2, bias=False),
        FEATURES.astype(np.float32),
        LABELS,
        clients=CLIENTS,
        train=STEP,
        strategy=strategy or FedAvg(fraction_fit=0.25),
        privacy=privacy,
    )


def test_a_small_model_learns_from_codes() -> None:
    local = federation(LocalUpdates(epsilon=2.0, max_update_norm=1.0, codes=16))
    history = local.fit(4, evaluate=Accuracy(FEATURES.astype(np.float32), LABELS))
    assert history.rounds[-1].score is not None
    assert history.rounds[-1].score > 0.8
    # The code of a codebook of 16 has 9 bytes.
    assert {each.bytes_up for each in history.rounds} == {150 * 9}
    assert 1.99 < local.get_epsilon(1e-6) <= 2


def test_the_mean_of_the_estimates_is_the_mean_update() -> None:
    setting = Setting(clients=2_000, per_round=2_000, rounds=1, dimension=5, seed=3)
    training = LocalUpdates(epsilon=3.0, max_update_norm=2.0, codes=16).start(setting)
    update = np.array([1, 0, -1, 0.5, 0], dtype=np.float32)
    clients = training.draw(1, np.random.default_rng(0))
    off = training.aggregate(1, clients, (update for _ in clients)) - update
    one = SphereCodebook(5, 3.0, 16).squared_error * 2.0**2
    assert np.linalg.norm(off) < 3 * np.sqrt(one / 2_000)


def test_updates_beyond_the_norm_are_scaled_down() -> None:
    setting = Setting(clients=2_000, per_round=2_000, rounds=1, dimension=2, seed=3)
    training = LocalUpdates(epsilon=4.0, max_update_norm=0.5, codes=16).start(setting)
    clients = training.draw(1, np.random.default_rng(0))
    update = np.array([300, -400], dtype=np.float32)
    found = training.aggregate(1, clients, (update for _ in clients))
    np.testing.assert_allclose(found, [0.3, -0.4], atol=0.045)


def test_an_update_that_is_not_finite_counts_as_zeros() -> None:
    setting = Setting(clients=9, per_round=9, rounds=1, dimension=2, seed=3)
    how = LocalUpdates(epsilon=4.0, max_update_norm=0.5, codes=16)
    found = []
    for update in ([0.0, 0.0], [np.nan, 1.0], [-np.inf, 1.0]):
        training = how.start(setting)
        clients = training.draw(1, np.random.default_rng(0))
        sent = np.array(update, dtype=np.float32)
        found.append(training.aggregate(1, clients, (sent for _ in clients)).tolist())
    assert found[0] == found[1] == found[2]


def test_every_participation_is_spent() -> None:
    setting = Setting(clients=30, per_round=10, rounds=6, dimension=2, seed=3)
    training = LocalUpdates(epsilon=1.0, max_update_norm=1.0, codes=16, participations=2).start(
        setting
    )
    rng, seen = np.random.default_rng(1), np.zeros(30, dtype=int)
    assert training.get_epsilon(0) == 0
    for number in range(1, 7):
        clients = training.draw(number, rng)
        seen[clients] += 1
        training.aggregate(number, clients, (np.zeros(2, np.float32) for _ in clients))
        assert training.get_epsilon(0) == pytest.approx(seen.max(), rel=1e-9)
    assert seen.max() == 2


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInput, match="participations"):
        federation(LocalUpdates(epsilon=1.0, max_update_norm=1.0)).fit(5)
    with pytest.raises(InvalidInput, match="median cannot be used with privacy"):
        federation(LocalUpdates(epsilon=1.0, max_update_norm=1.0), FedMedian())
    setting = Setting(clients=9, per_round=1, rounds=1, dimension=199_210, seed=0)
    with pytest.raises(InvalidInput, match="dimension"):
        LocalUpdates(epsilon=1.0, max_update_norm=1.0).start(setting)
    for wrong in ({"epsilon": 0.0}, {"max_update_norm": 0.0}, {"codes": 1}, {"participations": 0}):
        with pytest.raises(InvalidInput):
            LocalUpdates(**{"epsilon": 1.0, "max_update_norm": 1.0} | wrong)
