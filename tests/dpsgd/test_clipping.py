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

from dpsgd import (
    AdamBC,
    AutomaticClipping,
    FlatClipping,
    PerLayerClipping,
    PrivacyEngine,
    QuantileClipping,
)
from dpsgd.accounting import combined_noise_multiplier
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
    counted = policy.factors(norms).double() * norms.double()
    assert (counted <= torch.tensor(policy.limits, dtype=torch.float64)[:, None]).all()
    assert (counted.square().sum(0).sqrt() <= policy.sensitivity).all()


NOISES = {"0": 0.7, "2.weight": 2.0, "2.bias": 1.0}


@pytest.mark.parametrize(
    "policy",
    [*POLICIES.values(), PerLayerClipping(LAYERS, noise=NOISES)],
    ids=[*POLICIES, "by group"],
)
def test_the_groups_noises_are_together_what_was_asked_for(policy: ClippingPolicy) -> None:
    """A record moves group m by its norm, so that its noise multiplier is deviation / norm."""
    found = policy.deviations(1.3)
    own = [deviation / norm for deviation, norm in zip(found, policy.limits, strict=True)]
    assert combined_noise_multiplier(own) == pytest.approx(1.3, rel=1e-12)
    if isinstance(policy, PerLayerClipping) and policy.noise:
        assert [mine / own[0] for mine in own] == pytest.approx([1, 2 / 0.7, 1 / 0.7])


@pytest.mark.parametrize("secure", [False, True])
def test_each_group_gets_its_own_noise(secure: bool) -> None:
    norms, noise = {"0": 10.0, "1": 0.1}, {"0": 1.0, "1": 3.0}
    multiplier = combined_noise_multiplier(list(noise.values()))
    engine, module, optimizer, loader = make(
        PrivacyEngine(secure_mode=secure),
        module=nn.Sequential(nn.Linear(300, 100, bias=False), nn.Linear(100, 300, bias=False)),
        dataset=TensorDataset(torch.zeros(16, 300)),
        noise=multiplier,
        optimizer=AdamBC,
        norm=PerLayerClipping(norms, noise=noise),
        batch=4,
    )
    (x,) = next(iter(loader))
    module(x).sum().backward()
    optimizer.step()
    for name, parameter in module.named_parameters():
        deviation = norms[name[0]] * noise[name[0]] / 4
        assert abs(float(parameter.grad.std()) / deviation - 1) < 4 / math.sqrt(2 * 30_000)
        assert optimizer.noise_deviations[parameter] == pytest.approx(deviation)
    (event,) = engine.accountant.history
    assert event.noise_multiplier == multiplier == pytest.approx(1 / math.hypot(1, 1 / 3))


def test_short_gradients_gain_from_noise_of_their_own_beside_long_ones() -> None:
    """Norms that differ a hundredfold, with one account: the error of the short gradient."""
    errors = []
    norms = {"0": 100.0, "1": 1.0}
    for noise in (None, {"0": 1.0, "1": 1.0}):
        _, module, optimizer, loader = make(
            module=nn.Sequential(nn.Linear(50, 100, bias=False), nn.Linear(100, 50, bias=False)),
            dataset=TensorDataset(torch.zeros(16, 50)),
            noise=1.0,
            norm=PerLayerClipping(norms, noise=noise),
            batch=4,
        )
        (x,) = next(iter(loader))
        module(x).sum().backward()
        optimizer.step()
        errors.append([float(p.grad.std()) for p in module.parameters()])
    (long, short), (long_alone, short_alone) = errors
    assert short > 60 * short_alone  # 100 / sqrt(2) times the noise
    assert long_alone < 1.5 * long  # for sqrt(2) times that of the long one


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


def test_norms_and_noise_are_those_that_a_policy_was_made_with() -> None:
    norms, noise = {"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 1.0}
    policy = PerLayerClipping(norms, noise)
    before = policy.limits, policy.deviations(1.0)
    norms["a"], noise["b"] = 1e-3, 1e-3
    assert (policy.limits, policy.deviations(1.0)) == before


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
    with pytest.raises(InvalidInput, match="the noise of a must be finite"):
        PerLayerClipping({"a": 1.0}, noise={"a": value})


def test_noise_must_have_the_names_of_the_norms() -> None:
    for noise in ({}, {"a": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}):
        with pytest.raises(InvalidInput, match="noise must have the names of max_grad_norms"):
            PerLayerClipping({"a": 1.0, "b": 1.0}, noise=noise)
