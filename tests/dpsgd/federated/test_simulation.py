"""Simulated trainings against plain loops, and what they refuse."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from dpsgd.federated import (
    SGD,
    Accuracy,
    ALittleIsEnough,
    FedAdam,
    FedAvg,
    Federation,
    FedMedian,
    FedTrimmedAvg,
    FedYogi,
    GeometricMedian,
    History,
    Krum,
    LabelFlip,
    LocalSGD,
    MedianNorm,
    MultiKrum,
    RecordLevel,
    Round,
    SignFlip,
    flat,
    iid,
)
from dpsgd.federated.attackers import Attack
from dpsgd.federated.drawing import Poisson
from dpsgd.federated.local import LocalTrainer
from dpsgd.federated.protection import Setting
from dpsgd.federated.strategies import Strategy
from ldp import InvalidInput

RNG = np.random.default_rng(5)
CENTRES = 2 * RNG.standard_normal((3, 6))
LABELS = RNG.integers(0, 3, 400)
FEATURES = (CENTRES[LABELS] + RNG.standard_normal((400, 6))).astype(np.float32)
CLIENTS = iid(LABELS, 10, rng=np.random.default_rng(1))

RECORDS = RecordLevel(lr=0.1, noise_multiplier=1.0, max_grad_norm=1.0)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def federation(model: nn.Module | None = None, **others: Any) -> Federation:
    given: dict[str, Any] = {"clients": CLIENTS, "strategy": FedAvg()}
    given["train"] = LocalSGD(lr=0.2, batch_size=20)
    return Federation(model or network(), FEATURES, LABELS, **given | others)


def parameters(model: nn.Module) -> NDArray[np.float32]:
    found: NDArray[np.float32] = flat.read(model).numpy()
    return found


def test_a_round_of_one_client_and_one_batch_is_a_step_of_sgd() -> None:
    model, plain = network(), network()
    train = LocalSGD(lr=0.3, batch_size=0)
    federation(model, clients=[np.arange(400)], train=train).fit(3)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.3)
    for _ in range(3):
        optimizer.zero_grad()
        loss = cross_entropy(plain(torch.as_tensor(FEATURES)), torch.as_tensor(LABELS))
        torch.autograd.backward(loss)
        optimizer.step()
    np.testing.assert_allclose(parameters(model), parameters(plain), atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.7])
@pytest.mark.parametrize("proximal", [0.0, 0.5])
def test_local_training_is_that_of_torch_with_the_proximal_term(
    momentum: float, proximal: float
) -> None:
    model, plain = network(), network()
    train = LocalSGD(lr=0.1, epochs=4, batch_size=0, momentum=momentum, proximal=proximal)
    start = torch.as_tensor(parameters(model)).clone()
    federation(model, clients=[np.arange(400)], train=train).fit(1)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=momentum)
    for _ in range(4):
        optimizer.zero_grad()
        loss = cross_entropy(plain(torch.as_tensor(FEATURES)), torch.as_tensor(LABELS))
        here = torch.cat([p.flatten() for p in flat.trained(plain)])
        torch.autograd.backward(loss + proximal / 2 * (here - start).square().sum())
        optimizer.step()
    np.testing.assert_allclose(parameters(model), parameters(plain), atol=1e-6)


def test_the_proximal_term_keeps_clients_near_the_rounds_model() -> None:
    moved = []
    for proximal in (0.0, 1.0, 5.0):
        model = network()
        before = parameters(model)
        federation(model, train=LocalSGD(lr=0.1, epochs=5, proximal=proximal)).fit(1)
        moved.append(np.linalg.norm(parameters(model) - before))
    assert moved[0] > 1.5 * moved[1] > 2 * moved[2]


def test_each_pass_uses_every_record_once_in_another_order() -> None:
    seen: list[float] = []

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        seen.extend(labels.tolist())
        return mse_loss(outputs[:, 0], labels)

    numbers = np.arange(25, dtype=np.float32)
    train = LocalSGD(lr=1e-6, epochs=2, batch_size=10, loss=loss)
    Federation(
        nn.Linear(6, 1),
        FEATURES[:25],
        numbers,
        clients=[np.arange(25)],
        train=train,
        strategy=FedAvg(),
    ).fit(1)
    assert sorted(seen[:25]) == sorted(seen[25:]) == numbers.tolist()
    assert numbers.tolist() != seen[:25] != seen[25:]


def test_updates_are_weighed_by_records_or_equally() -> None:
    clients = [np.arange(100), np.arange(100, 400)]
    start = parameters(network())

    def moved(strategy: Strategy, only: list[int] | None = None) -> NDArray[np.float32]:
        model = network()
        own = [clients[i] for i in only] if only else clients
        train = LocalSGD(lr=0.1, batch_size=0)
        federation(model, clients=own, train=train, strategy=strategy).fit(1)
        return parameters(model) - start

    first, second = moved(FedAvg(), [0]), moved(FedAvg(), [1])
    np.testing.assert_allclose(moved(FedAvg()), 0.25 * first + 0.75 * second, atol=1e-6)
    np.testing.assert_allclose(moved(FedAvg(weights="equal")), (first + second) / 2, atol=1e-6)


@pytest.mark.parametrize(
    "strategy",
    [
        FedAvg(fraction_fit=0.5),
        FedAvg(optimizer=SGD(0.5, momentum=0.5)),
        FedAdam(),
        FedYogi(),
        FedMedian(),
        FedTrimmedAvg(hostile=2),
        Krum(hostile=2),
        MultiKrum(hostile=2),
        GeometricMedian(),
        MedianNorm(),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_every_strategy_learns(strategy: Strategy) -> None:
    history = federation(strategy=strategy).fit(8, evaluate=Accuracy(FEATURES, LABELS))
    assert history.last(3)[0] > 0.9


def test_the_same_seed_gives_the_same_training() -> None:
    def trained(seed: int) -> NDArray[np.float32]:
        model = network()
        federation(model, strategy=FedAvg(fraction_fit=0.3), seed=seed).fit(3)
        return parameters(model)

    np.testing.assert_array_equal(trained(1), trained(1))
    assert (trained(1) != trained(2)).any()


def test_a_history_tells_scores_rounds_bytes_and_the_spread_of_the_end() -> None:
    told: list[Round] = []
    scores = iter([0.5, 0.9, 0.8, 1.0])
    history = federation(strategy=FedAvg(fraction_fit=0.3)).fit(
        4, evaluate=lambda model: next(scores), progress=told.append
    )
    assert history.rounds == tuple(told)
    assert [r.number for r in history.rounds] == [1, 2, 3, 4]
    assert all(len(set(r.clients)) == 3 for r in history.rounds)
    dimension = 6 * 8 + 8 + 8 * 3 + 3
    assert {(r.bytes_up, r.bytes_down) for r in history.rounds} == {(12 * dimension,) * 2}
    assert history.bytes_up == history.bytes_down == 48 * dimension
    assert history.rounds_to(0.9) == 2
    assert history.rounds_to(1.01) is None
    assert history.last(2) == pytest.approx((0.9, 0.1))
    assert history.last() == pytest.approx((0.8, np.std([0.5, 0.9, 0.8, 1.0])))


def test_a_training_ends_where_progress_says_so() -> None:
    assert federation().get_epsilon(1e-5) == math.inf
    history = federation().fit(9, progress=lambda r: r.number == 2)
    assert len(history.rounds) == 2
    with pytest.raises(InvalidInput, match="not evaluated"):
        history.last()
    with pytest.raises(InvalidInput, match="no rounds"):
        History(()).last()


def test_scores_are_taken_in_eval_mode_without_gradients() -> None:
    def check(model: nn.Module) -> float:
        assert not model.training
        assert not torch.is_grad_enabled()
        return 0.0

    model = network().train()
    federation(model).fit(1, evaluate=check)
    assert model.training
    assert Accuracy(FEATURES, LABELS, batch_size=7)(model) == Accuracy(FEATURES, LABELS)(model)


@pytest.mark.parametrize("attack", [SignFlip((0, 3)), SignFlip((0, 3), 50.0)])
def test_a_sign_flip_ruins_the_mean_and_no_robust_rule(attack: Attack) -> None:
    def end(strategy: Strategy) -> float:
        fed = federation(strategy=strategy, attack=attack)
        return fed.fit(6, evaluate=Accuracy(FEATURES, LABELS)).last(1)[0]

    assert end(FedAvg()) < 0.5
    for strategy in (FedMedian(), FedTrimmedAvg(hostile=2), Krum(hostile=2), GeometricMedian()):
        assert end(strategy) > 0.9


def test_attacks_are_what_they_say() -> None:
    honest = np.array([[1, 2], [3, 2]], np.float32)
    assert SignFlip((0,), 5.0).forge(honest) == pytest.approx([-10, -10])
    assert ALittleIsEnough((0,), 2.0).forge(honest) == pytest.approx([0, 2])
    assert LabelFlip((0,)).forge(honest) is None
    assert LabelFlip((0,), classes=3).poison(np.array([0, 1, 2])).tolist() == [2, 1, 0]


def test_label_flips_poison_the_records_of_hostile_clients_alone() -> None:
    labels = LABELS.copy()
    seen: list[int] = []

    def loss(outputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        seen.extend(wanted.tolist())
        return cross_entropy(outputs, wanted)

    attack = LabelFlip((2,), classes=3)
    train = LocalSGD(lr=0.1, batch_size=0, loss=loss)
    federation(attack=attack, train=train).fit(1)
    expected = labels.copy()
    expected[CLIENTS[2]] = 2 - expected[CLIENTS[2]]
    sent = np.concatenate(CLIENTS)
    assert np.bincount(seen).tolist() == np.bincount(expected[sent]).tolist()
    assert (labels == LABELS).all()  # what was given is as it was


@dataclass(frozen=True)
class Zeroes:
    """A protection that draws clients itself, forgets every update, and counts the rounds."""

    seen: list[Any] = field(default_factory=list)

    def start(self, setting: Setting) -> "Zeroed":
        self.seen.append(setting)
        return Zeroed(self.seen, setting)


class Zeroed:
    bytes_up = 7

    def __init__(self, seen: list[Any], setting: Setting) -> None:
        self.seen, self.setting, self.drawing = seen, setting, Poisson(setting.clients, 0.2)

    def draw(self, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return self.drawing.draw(number, rng)

    def aggregate(
        self, number: int, clients: NDArray[np.int64], updates: Iterable[NDArray[np.float32]]
    ) -> NDArray[np.float64]:
        self.seen.append((number, tuple(clients.tolist()), [update.shape for update in updates]))
        return np.zeros(self.setting.dimension)

    def get_epsilon(self, delta: float) -> float:
        return float(len(self.seen))


def test_a_protection_decides_who_takes_part_and_what_is_learned() -> None:
    model, protection = network(), Zeroes()
    before = parameters(model)
    fed = federation(model, privacy=protection, strategy=FedAvg(fraction_fit=0.2), seed=3)
    assert fed.get_epsilon(1e-5) == 0
    history = fed.fit(6)
    np.testing.assert_array_equal(parameters(model), before)
    assert protection.seen[0] == Setting(10, 2, 6, before.size, 3)
    for r, (number, clients, shapes) in zip(history.rounds, protection.seen[1:], strict=True):
        assert (r.number, r.clients) == (number, clients)
        assert shapes == [(before.size,)] * len(clients)
        assert (r.bytes_up, r.bytes_down) == (7 * len(clients), 4 * before.size * len(clients))
    assert fed.get_epsilon(1e-5) == 7
    assert fed.get_record_epsilon(1e-5) == math.inf


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"strategy": Krum(hostile=4)}, "krum with 4 hostile updates needs at least 11"),
        ({"strategy": FedTrimmedAvg(hostile=2, fraction_fit=0.4)}, "needs at least 5"),
        ({"strategy": FedMedian(), "privacy": Zeroes()}, "median cannot be used with privacy"),
        ({"strategy": MedianNorm(), "privacy": Zeroes()}, "median_norm cannot be used with"),
        ({"strategy": FedAvg(weights="records"), "privacy": Zeroes()}, 'must be "equal"'),
        ({"clients": []}, "the number of clients"),
        ({"clients": [np.arange(3), np.arange(0)]}, "client 1 must have the places"),
        ({"clients": [np.array([0, 400])]}, "client 0 has places beyond the 400 records"),
        ({"clients": [np.array([-1])]}, "client 0 has places beyond"),
        ({"clients": [np.array([3, 0]), np.array([3])]}, "record 3 occurs 2 times"),
        ({"clients": [np.array([3, 0, 3])]}, "record 3 occurs 2 times"),
        ({"attack": SignFlip((10,))}, "there are 10 clients, and 10 is none of them"),
        ({"model": nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))}, "keeps statistics"),
        ({"model": nn.Linear(6, 3).double()}, "weight must be float32, got torch.float64"),
        ({"model": nn.Tanh()}, "no parameters"),
        ({"seed": -1}, "seed"),
    ],
)
def test_what_cannot_be_trained_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        federation(**given)


@pytest.mark.parametrize("train", [LocalSGD(lr=0.1), RECORDS], ids=["sgd", "record_level"])
@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (FEATURES.astype(float), LABELS, "features must be float32, as the model's .* got float64"),
        (FEATURES[:, :5], LABELS, r"does not take records of float32 features of shape \(5,\)"),
        (LABELS[:, None].repeat(6, 1), LABELS, "does not take records of int64 features"),
        (FEATURES, LABELS.astype(np.float32), "labels must be int64, got float32"),
        (FEATURES, LABELS.astype(np.int32), "labels must be int64, got int32"),
        (FEATURES, LABELS + 1, "the model has 3 classes: labels must be 0 to 2, got 3"),
        (FEATURES, LABELS - 1, "the model has 3 classes: labels must be 0 to 2, got -1"),
        (FEATURES, LABELS[:, None], r"outputs of shape \(3,\) and labels of shape \(1,\)"),
    ],
)
def test_records_that_do_not_fit_the_model_are_refused_before_a_round(
    train: LocalTrainer, features: NDArray[Any], labels: NDArray[Any], message: str
) -> None:
    model, how = network(), {"clients": CLIENTS, "train": train, "strategy": FedAvg()}
    with pytest.raises(InvalidInput, match=message):
        Federation(model, features, labels, **how)  # type: ignore[arg-type]
    assert model.training


def test_a_test_set_that_does_not_fit_the_model_is_refused() -> None:
    with pytest.raises(InvalidInput, match="features must be float32"):
        Accuracy(FEATURES.astype(float), LABELS)(network())


def test_wrong_values_are_refused() -> None:
    for wrong in (
        {"lr": 0.0},
        {"lr": 0.1, "epochs": 0},
        {"lr": 0.1, "batch_size": -1},
        {"lr": 0.1, "momentum": 1.0},
        {"lr": 0.1, "proximal": -1.0},
        {"lr": math.nan},
    ):
        with pytest.raises(InvalidInput):
            LocalSGD(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="fraction_fit"):
        FedAvg(fraction_fit=0.0)
    with pytest.raises(InvalidInput, match="weights must be records, equal or None, got 'size'"):
        FedAvg(weights="size")
    with pytest.raises(InvalidInput, match="hostile"):
        Krum(hostile=-1)
    with pytest.raises(InvalidInput, match="400 features and 399 labels"):
        Federation(
            network(),
            FEATURES,
            LABELS[:-1],
            clients=CLIENTS,
            train=LocalSGD(lr=1.0),
            strategy=FedAvg(),
        )
    with pytest.raises(InvalidInput, match="features"):
        Accuracy(FEATURES[:0], LABELS[:0])


def test_a_diverged_client_is_refused_and_the_model_stays_as_it_was() -> None:
    model = network()
    before = parameters(model)
    fed = federation(model, train=LocalSGD(lr=1e38, epochs=3))
    with pytest.raises(InvalidInput, match="finite"):
        fed.fit(2)
    np.testing.assert_array_equal(parameters(model), before)


def test_a_federation_is_fitted_once() -> None:
    fed = federation()
    with pytest.raises(InvalidInput, match="rounds"):
        fed.fit(0)
    fed.fit(1)
    with pytest.raises(InvalidInput, match="fitted before"):
        fed.fit(1)
