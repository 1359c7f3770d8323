"""Federated trainings: the aggregation of updates, and a simulated round beside a plain loop.

The floors are numpy's mean and median of an array, and the same local steps of one model in one
loop of torch's SGD.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from dpsgd.federated import FedAvg, Federation, LocalSGD, iid, rules
from dpsgd.federated.architectures import build
from dpsgd.federated.exact_sums import ExactSum

UPDATES = 500
DIMENSION = 200_000
CLIENTS, RECORDS = 100, 60


@pytest.fixture(scope="module")
def updates() -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((UPDATES, DIMENSION), np.float32)


MEANS: dict[str, Callable[[NDArray[np.float32]], object]] = {
    "numpy's floor": lambda updates: updates.mean(axis=0),
    "numpy's floor in float64": lambda updates: updates.mean(axis=0, dtype=np.float64),
    "exact sums": lambda updates: ExactSum(DIMENSION, 1.0).add_all(updates).value(),
    "a stream": lambda updates: rules.mean(iter(updates)),
    "a weighted stream": lambda updates: rules.mean(iter(updates), list(range(1, 1 + UPDATES))),
}


@pytest.mark.benchmark(group=f"mean of {UPDATES} updates of {DIMENSION} floats")
@pytest.mark.parametrize("how", MEANS)
def test_means(benchmark, updates: NDArray[np.float32], how: str) -> None:
    benchmark(MEANS[how], updates)


@pytest.mark.benchmark(group=f"robust rules, {UPDATES} updates of {DIMENSION} floats")
@pytest.mark.parametrize("rule", ["numpy's median", *(r for r in rules.RULES if r != "mean")])
def test_robust_rules(benchmark, updates: NDArray[np.float32], rule: str) -> None:
    hostile = 50 if rule in ("trimmed_mean", "krum", "multi_krum") else 0
    work = rules.RULES.get(rule, lambda updates, _: np.median(updates, axis=0))
    benchmark.pedantic(work, (updates, hostile), rounds=1)


@pytest.mark.benchmark(group=f"2NN, {CLIENTS} clients of {RECORDS} records, batches of 10")
@pytest.mark.parametrize("how", ["a plain loop", "a simulated round"])
def test_a_round(benchmark, how: str) -> None:
    rng = np.random.default_rng(0)
    features = torch.as_tensor(rng.random((CLIENTS * RECORDS, 784), np.float32))
    labels = torch.as_tensor(rng.integers(0, 10, len(features)))
    split = iid(labels, CLIENTS, rng=rng)

    def plain() -> None:
        model = build("2nn", 784, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch, wanted in zip(features.split(10), labels.split(10), strict=True):
            optimizer.zero_grad()
            cross_entropy(model(batch), wanted).backward()
            optimizer.step()

    def simulated() -> None:
        Federation(
            build("2nn", 784, 10),
            features,
            labels,
            clients=split,
            train=LocalSGD(lr=0.1),
            strategy=FedAvg(),
        ).fit(1)

    benchmark(plain if how == "a plain loop" else simulated)
