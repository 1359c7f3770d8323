"""DP-AdamBC against the formulas of its paper, coordinate by coordinate."""

import copy
import math

import pytest
import torch
from private import BATCH, make
from torch import nn

from dpsgd import AdamBC
from dpsgd.clipping.schedules import Linear
from ldp import InvalidInput


def naive(
    start: float,
    gradients: list[float],
    deviations: list[float],
    lr: float,
    betas: tuple[float, float],
    gamma: float,
) -> float:
    first, second = betas
    m = v = noise = 0.0
    for t, (g, s) in enumerate(zip(gradients, deviations, strict=True), 1):
        m = first * m + (1 - first) * g
        v = second * v + (1 - second) * g * g
        noise = second * noise + (1 - second) * s * s
        corrected = (v - noise) / (1 - second**t)
        start -= lr * m / (1 - first**t) / math.sqrt(max(corrected, gamma))
    return start


def test_steps_are_those_of_the_paper() -> None:
    torch.manual_seed(2)
    parameter = nn.Parameter(torch.randn(5, dtype=torch.float64))
    start = parameter.detach().tolist()
    optimizer = AdamBC([parameter], lr=0.03, betas=(0.8, 0.95), gamma=1e-2)
    gradients, deviations = torch.randn(6, 5).double(), [0.5, 0.4, 0.9, 0.1, 0.7, 0.2]
    for gradient, deviation in zip(gradients, deviations, strict=True):
        parameter.grad, optimizer.noise_deviations = gradient.clone(), {parameter: deviation}
        optimizer.step()
    for i, value in enumerate(start):
        expected = naive(value, gradients[:, i].tolist(), deviations, 0.03, (0.8, 0.95), 1e-2)
        assert parameter[i].item() == pytest.approx(expected, rel=1e-12)


def test_the_noise_that_is_taken_out_is_the_noise_that_was_added() -> None:
    # Zero gradients: all of the second moment is noise, and nothing should be left of it.
    noises = Linear(2.0, 4.0, 8)
    _, module, optimizer, loader = make(
        module=nn.Linear(4, 5000, bias=False), optimizer=AdamBC, noise=noises, norm=0.3
    )
    weights = []
    for step, (x, _) in enumerate(loader):
        optimizer.zero_grad()
        (0 * module(x)).sum().backward()
        optimizer.step()
        found = optimizer.noise_deviations[module.weight]
        assert found == pytest.approx(noises(step) * 0.3 / BATCH)
        weights.append(optimizer.state[module.weight])
    state = weights[-1]
    assert float(state["square"].mean()) == pytest.approx(state["variance"], rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_its_state_goes_on_from_a_checkpoint(dtype: torch.dtype) -> None:
    parameter = nn.Parameter(torch.ones(3, dtype=dtype))
    optimizer = AdamBC([parameter], lr=0.1)
    optimizer.noise_deviations = {parameter: 0.1}

    def step(p: nn.Parameter, o: AdamBC) -> None:
        p.grad = torch.tensor([0.5, -1.0, 2.0], dtype=dtype)
        o.step()

    step(parameter, optimizer)
    again = nn.Parameter(parameter.detach().clone())
    other = AdamBC([again], lr=0.7)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    other.noise_deviations = {again: 0.1}
    step(parameter, optimizer)
    step(again, other)
    torch.testing.assert_close(parameter, again)


def test_without_an_engine_it_does_not_step() -> None:
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    with pytest.raises(InvalidInput, match="must know the noise"):
        AdamBC([parameter]).step()


def test_bad_options_are_refused() -> None:
    parameters = [nn.Parameter(torch.ones(1))]
    for options in ({"lr": 0.0}, {"gamma": math.nan}, {"betas": (0.9, 1.0)}):
        with pytest.raises(InvalidInput):
            AdamBC(parameters, **options)
