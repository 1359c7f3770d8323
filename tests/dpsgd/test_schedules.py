"""Schedules: each step's own noise and norm, and what the accountant is told."""

import math
from typing import Any

import pytest
import torch
from private import make, train
from torch import nn
from torch.utils.data import TensorDataset

from dpsgd import AutomaticClipping, QuantileClipping
from dpsgd.clipping.schedules import Exponential, Linear
from ldp import InvalidInput


def test_schedules_are_what_they_say() -> None:
    assert [Exponential(2.0, 0.5, least=0.3)(i) for i in range(4)] == [2.0, 1.0, 0.5, 0.3]
    assert [Linear(1.0, 3.0, 4)(i) for i in range(6)] == [1.0, 1.5, 2.0, 2.5, 3.0, 3.0]
    with pytest.raises(InvalidInput, match="steps must be an integer >= 1"):
        Linear(1.0, 3.0, 0)


def test_each_step_is_accounted_for_with_its_own_noise() -> None:
    engine, module, optimizer, loader = make(noise=Exponential(2.0, 0.9))
    train(module, optimizer, loader, 3)
    assert [e.noise_multiplier for e in engine.accountant.history] == [2.0, 1.8, 2.0 * 0.9**2]
    assert engine.noise_multiplier == 2.0 * 0.9**3


@pytest.mark.parametrize("most", [None, 2], ids=["whole", "in parts"])
def test_each_step_has_noise_of_its_own_deviation_and_norm(most: int | None) -> None:
    module = nn.Linear(4000, 2, bias=False)
    noises, norms = Linear(1.0, 4.0, 3), Exponential(3.0, 0.5)
    engine, module, optimizer, loader = make(
        module=module,
        dataset=TensorDataset(torch.zeros(24, 4000)),
        noise=noises,
        norm=norms,
        batch=6,
        max_physical_batch_size=most,
    )
    step = 0
    for (x,) in loader:
        optimizer.zero_grad()
        module(x).sum().backward()
        optimizer.step()
        if module.weight.grad is None:
            continue
        deviation = float(module.weight.grad.std()) * 6 / (noises(step) * norms(step))
        assert abs(deviation - 1) < 4 / math.sqrt(2 * 8000)
        step += 1
    assert step == 4 == sum(e.steps for e in engine.accountant.history)


def test_a_norm_of_a_schedule_clips() -> None:
    module = nn.Linear(1, 1, bias=False)
    _, module, optimizer, loader = make(
        module=module,
        dataset=TensorDataset(torch.full((4, 1), 100.0)),
        noise=1e-12,
        norm=Exponential(1.0, 0.5),
        batch=1,
        sampling="fixed",
    )
    seen = []
    for (x,) in loader:
        optimizer.zero_grad()
        module(x).sum().backward()
        optimizer.step()
        seen.append(module.weight.grad.item())
    assert seen == pytest.approx([1.0, 0.5, 0.25, 0.125], rel=1e-5)


@pytest.mark.parametrize("bad", [-1.0, 0.0, math.nan, "2"])
def test_a_schedule_that_goes_wrong_releases_nothing(bad: Any) -> None:
    engine, module, optimizer, loader = make(noise=lambda step: 1.0 if step == 0 else bad)
    train(module, optimizer, loader, 1)
    before = [p.detach().clone() for p in module.parameters()]
    with pytest.raises(InvalidInput, match="noise_multiplier must be finite and > 0"):
        train(module, optimizer, loader, 1)
    assert all(torch.equal(p, b) for p, b in zip(module.parameters(), before, strict=True))
    assert sum(e.steps for e in engine.accountant.history) == 1
    with pytest.raises(InvalidInput, match="max_grad_norm must be finite and > 0"):
        make(norm=lambda step: bad)


def test_the_norm_is_set_between_steps_only() -> None:
    engine, module, optimizer, loader = make(norm=1.0)
    train(module, optimizer, loader, 1)
    engine.max_grad_norm = 0.5
    assert engine.max_grad_norm == 0.5
    x, _ = next(iter(loader))
    module(x).sum().backward()
    with pytest.raises(InvalidInput, match=r"after optimizer\.step"):
        engine.max_grad_norm = 0.7
    assert engine.max_grad_norm == 0.5


def test_a_policy_of_many_norms_has_none_to_set() -> None:
    engine, *_ = make(norm=AutomaticClipping())
    with pytest.raises(InvalidInput, match="no single max_grad_norm"):
        engine.max_grad_norm = 0.7
    engine, *_ = make(norm=QuantileClipping(1.0, count_noise=5.0))
    engine.max_grad_norm = 0.7
    assert engine.max_grad_norm == 0.7
