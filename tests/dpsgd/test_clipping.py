"""Clipping policies: what counts of a gradient, against a loop over single samples."""

import copy
import math
from typing import Any

import pytest
import torch
from oracle import by_loop, keep
from private import N, make
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset

from dpsgd import AutomaticClipping, FlatClipping, PerLayerClipping, QuantileClipping
from dpsgd.clipping.policies import ClippingPolicy
from ldp import InvalidInput

LAYERS = {"0": 0.3, "2.weight": 0.2, "2.bias": 0.05}


def small() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def clipped(policy: ClippingPolicy, sample: list[torch.Tensor]) -> list[torch.Tensor]:
    """What the policy's definition makes of one sample's gradients of `small`."""
    whole = math.sqrt(sum(float(g.norm()) ** 2 for g in sample))
    match policy:
        case AutomaticClipping(gamma):
            return [g / (whole + gamma) for g in sample]
        case FlatClipping(most):
            return [g * min(1, most / whole) for g in sample]
    first = math.hypot(sample[0].norm(), sample[1].norm())
    lengths = [first, first, float(sample[2].norm()), float(sample[3].norm())]
    norms = [LAYERS["0"], LAYERS["0"], LAYERS["2.weight"], LAYERS["2.bias"]]
    return [g * min(1, c / n) for g, c, n in zip(sample, norms, lengths, strict=True)]


POLICIES = {
    "flat": FlatClipping(0.4),
    "automatic": AutomaticClipping(),
    "by layer and parameter": PerLayerClipping(LAYERS),
    "quantile": QuantileClipping(0.4),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_sums_what_a_loop_over_samples_does(name: str) -> None:
    policy, module = POLICIES[name], small()
    inputs = torch.randn(7, 4, dtype=torch.float64) * torch.logspace(-4, 2, 7)[:, None].double()

    def loss(output: Any) -> torch.Tensor:
        return (output**2).sum()

    samples = by_loop(copy.deepcopy(module), [inputs], loss)
    keeper = keep(module, policy)
    loss(module(inputs)).backward()
    expected = [sum(parts) for parts in zip(*(clipped(policy, s) for s in samples), strict=True)]
    for ours, theirs in zip(keeper.take_sums(), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-3, 1.0, 1e6, 1e18], ids=str)
def test_no_gradient_counts_for_more_than_the_sensitivity(name: str, length: float) -> None:
    policy = POLICIES[name]
    norms = torch.rand(policy.groups, 1000) * length
    counted = (policy.factors(norms).double() * norms.double()).square().sum(0).sqrt()
    assert (counted <= policy.sensitivity).all()


def test_automatic_clipping_adds_noise_for_norm_one() -> None:
    module = nn.Linear(400, 50, bias=False)
    dataset = TensorDataset(torch.zeros(16, 400))
    _, module, optimizer, loader = make(
        module=module, dataset=dataset, noise=2.0, norm=AutomaticClipping(), batch=4
    )
    (x,) = next(iter(loader))
    module(x).sum().backward()
    optimizer.step()
    deviation = float(module.weight.grad.std()) * 4 / 2.0
    assert abs(deviation - 1) < 4 / math.sqrt(2 * 20_000)


def test_per_layer_clipping_clips_each_parameter() -> None:
    norms = {"0.weight": 0.3, "0.bias": 0.1, "2.weight": 0.2, "2.bias": 0.05}
    policy = PerLayerClipping(norms)
    assert policy.sensitivity == pytest.approx(math.hypot(*norms.values()))
    dataset = TensorDataset(100 * torch.randn(N, 4), torch.zeros(N, dtype=torch.long))
    _, module, optimizer, loader = make(
        dataset=dataset, noise=1e-9, norm=policy, batch=1, sampling="fixed"
    )
    for x, y in loader:
        (10 * F.cross_entropy(module(x) + 5 * y[:, None], 1 - y)).backward()
        optimizer.step()
        grads = {name: p.grad.norm().item() for name, p in module.named_parameters()}
        assert all(grads[name] <= norm * (1 + 1e-6) for name, norm in norms.items())
        assert grads["2.bias"] == pytest.approx(0.05, rel=1e-5)


def test_norms_of_groups_make_up_the_whole() -> None:
    evenly = PerLayerClipping.evenly(["a", "b", "c", "d"], 2.0)
    assert evenly.max_grad_norms == dict.fromkeys("abcd", 1.0)
    sized = PerLayerClipping.by_dimension({"a": 300, "b": 100}, 2.0)
    assert sized.max_grad_norms == pytest.approx({"a": math.sqrt(3), "b": 1.0})
    assert evenly.sensitivity == pytest.approx(2.0) == sized.sensitivity


def test_groups_are_those_that_are_trained() -> None:
    with pytest.raises(InvalidInput, match=r"no norm for 2\.weight"):
        make(norm=PerLayerClipping({"0": 1.0}))
    with pytest.raises(InvalidInput, match="not trained: 3"):
        make(norm=PerLayerClipping({"0": 1.0, "2": 1.0, "3": 1.0}))


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, True])
def test_bad_norms_of_policies_are_refused(value: Any) -> None:
    for build in (FlatClipping, AutomaticClipping, QuantileClipping):
        with pytest.raises(InvalidInput, match="must be finite and > 0"):
            build(value)
    with pytest.raises(InvalidInput, match="the max_grad_norm of a must be finite"):
        PerLayerClipping({"a": value})
