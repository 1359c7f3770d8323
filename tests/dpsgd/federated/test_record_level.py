"""DP-SGD on a client's own records: what it accounts for, and what it learns."""

import numpy as np
import pytest
import torch
from torch import nn

from dpsgd.accounting import PoissonSampling, RDPAccountant, Relation
from dpsgd.federated import Accuracy, FedAvg, Federation, RecordLevel
from dpsgd.federated.flat import read
from ldp import InvalidInput

TRAIN = RecordLevel(lr=0.5, noise_multiplier=0.8, max_grad_norm=1.0, epochs=2, batch_size=10)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    labels = torch.arange(120) % 3
    return torch.randn(120, 4) + 4 * nn.functional.one_hot(labels, 4).float(), labels


@pytest.mark.slow
def test_the_epsilon_of_a_client_is_that_of_all_rounds_it_took_part_in() -> None:
    features, labels = data()
    model = nn.Linear(4, 3)
    devices = TRAIN.start(model, features, labels)
    assert devices.get_epsilon(1e-5) == 0
    rows = {0: torch.arange(40), 1: torch.arange(40, 45), 2: torch.arange(45, 45)}
    start = read(model)
    for round_ in range(3):
        devices.update(0, rows[0], start, round_)
    assert (devices.update(2, rows[2], start, 9) == 0).all()
    once = RDPAccountant(Relation.ADD_REMOVE)
    once.step(noise_multiplier=0.8, sampling=PoissonSampling(10 / 40), steps=3 * 2 * 4)
    assert devices.get_epsilon(1e-5) == once.get_epsilon(1e-5)
    devices.update(1, rows[1], start, 5)  # five records, each in both steps
    few = RDPAccountant(Relation.ADD_REMOVE)
    few.step(noise_multiplier=0.8, sampling=PoissonSampling(1.0), steps=2)
    largest = max(few.get_epsilon(1e-5), once.get_epsilon(1e-5))
    assert devices.get_epsilon(1e-5) == pytest.approx(largest)


def test_an_update_follows_from_its_seed_and_leaves_the_round_s_model_as_it_was() -> None:
    features, labels = data()
    model = nn.Linear(4, 3)
    devices = TRAIN.start(model, features, labels)
    before = read(model)
    first, again, other = (devices.update(0, torch.arange(30), before, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(read(model), before)


@pytest.mark.slow
def test_a_federation_learns_with_records_protected() -> None:
    features, labels = data()
    model = nn.Linear(4, 3)
    clients = [np.arange(start, 120, 4) for start in range(4)]
    federation = Federation(
        model, features, labels, clients=clients, train=TRAIN, strategy=FedAvg(fraction_fit=1.0)
    )
    history = federation.fit(4, evaluate=Accuracy(features, labels))
    assert 0 < federation.get_record_epsilon(1e-5) < 60
    assert federation.get_epsilon(1e-5) == float("inf")  # no person is protected
    assert history.scores[-1] > 0.8


@pytest.mark.parametrize(
    "name", ["lr", "noise_multiplier", "max_grad_norm", "epochs", "batch_size"]
)
def test_a_number_that_makes_no_sense_is_refused(name: str) -> None:
    numbers = {"lr": 0.1, "noise_multiplier": 1.0, "max_grad_norm": 1.0}
    with pytest.raises(InvalidInput, match=name):
        RecordLevel(**numbers | {name: 0})  # type: ignore[arg-type]
