"""Quantile clipping: where the norm goes, what the count costs, and which norm gets the noise."""

import copy
import math
from typing import Any

import pytest
import torch
from private import make
from torch import nn
from torch.utils.data import TensorDataset

from dpsgd import PerLayerClipping, PrivacyEngine, QuantileClipping
from dpsgd.accounting import combined_noise_multiplier
from dpsgd.clipping.adaptive import centred_counts
from dpsgd.clipping.current_policy import CurrentPolicy
from dpsgd.noise.sources import KeystreamNoise
from ldp import Coins, InvalidInput
from ldp.testing import SeededCoins


def wide(
    policy: QuantileClipping, inputs: torch.Tensor, batch: int, **options: Any
) -> tuple[PrivacyEngine, nn.Module, torch.optim.Optimizer, Any]:
    """A linear map of 1,000 values whose loss's gradient for a sample is the sample itself."""
    module = nn.Linear(inputs.shape[1], 1, bias=False)
    return make(
        PrivacyEngine(coins=SeededCoins(6), **options),
        module=module,
        dataset=TensorDataset(inputs),
        noise=1.0,
        norm=policy,
        batch=batch,
    )


def step(module: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    module(x).mean().backward()
    optimizer.step()


@pytest.mark.slow
@pytest.mark.parametrize("start", [0.02, 50.0], ids=["from below", "from above"])
def test_the_norm_goes_to_the_quantile_of_the_norms(start: float) -> None:
    lengths = torch.linspace(0.1, 2.1, 2000)[:, None]
    policy = QuantileClipping(start, quantile=0.7)
    engine, module, optimizer, loader = wide(policy, lengths, 400)
    seen = []
    for _ in range(40):
        for (x,) in loader:
            step(module, optimizer, x)
            seen.append(engine.max_grad_norm)
    assert sum(seen[-50:]) / 50 == pytest.approx(0.1 + 0.7 * 2.0, rel=0.05)


def test_gradients_and_count_together_are_one_release_of_what_was_asked_for() -> None:
    policy = QuantileClipping(1.0)
    gradients = policy.gradient_noise(1.3, batch=200)
    count = policy.deviation(200) / 0.5  # over its sensitivity
    assert count == 20
    assert gradients > 1.3
    assert combined_noise_multiplier([gradients, count]) == pytest.approx(1.3, rel=1e-12)


def test_gradients_and_the_counts_of_all_groups_are_one_release() -> None:
    limits, noise = {"a": 1.0, "b": 0.1, "c": 5.0}, {"a": 1.0, "b": 2.0, "c": 3.0}
    policy = QuantileClipping(PerLayerClipping(limits, noise=noise))
    norms = torch.tensor([[0.5, 2.0], [0.5, 0.01], [9.0, 1.0]])
    assert centred_counts(norms, list(limits.values())).tolist() == [0, 0, 0]
    one = centred_counts(norms[:, :1], list(limits.values()))
    assert one.tolist() == [0.5, -0.5, -0.5]
    counts = policy.deviation(200) / float(one.norm())  # over what a record moves them by
    deviations = CurrentPolicy(policy, batch=200, values=1).deviations(1.3)
    gradients = [d / limit for d, limit in zip(deviations, limits.values(), strict=True)]
    assert combined_noise_multiplier([*gradients, counts]) == pytest.approx(1.3, rel=1e-12)
    with pytest.raises(InvalidInput, match="below twice the count's noise"):
        policy.gradient_noise(1.3, batch=22)
    policy.gradient_noise(1.3, batch=23)


@pytest.mark.parametrize("most", [None, 16])
def test_each_groups_norm_follows_its_own_gradients(most: int | None) -> None:
    policy = QuantileClipping(
        PerLayerClipping({"0": 1.0, "1": 1.0}), quantile=0.5, count_noise=1e-6, rate=1.0
    )
    engine, module, optimizer, loader = make(
        module=nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)),
        dataset=TensorDataset(torch.full((40, 1), 3.0)),
        norm=policy,
        batch=40,
        sampling="fixed",
        max_physical_batch_size=most,
        noise=1e-9,
    )
    with torch.no_grad():
        module[0].weight.fill_(0.1)  # whose gradient is 15
        module[1].weight.fill_(5.0)  # whose gradient is 0.3
    for (x,) in loader:
        step(module, optimizer, x)
    clipping = engine.state_dict()["clipping"]
    up, down = math.exp(0.5), math.exp(-0.5)
    assert clipping["max_grad_norm"] == pytest.approx([up, down], rel=1e-5)
    again, *_ = make(module=copy.deepcopy(module), norm=policy, noise=1e-9)
    again.load_state_dict(engine.state_dict() | {"accountant": again.state_dict()["accountant"]})
    assert again.state_dict()["clipping"] == clipping
    with pytest.raises(InvalidInput, match="no single max_grad_norm"):
        again.max_grad_norm = 1.0
    clipping["max_grad_norm"].append(1.0)
    with pytest.raises(InvalidInput, match="the state has 3 norms, this run 2 groups"):
        again.load_state_dict(again.state_dict() | {"clipping": clipping})


@pytest.mark.parametrize("norm", [0.0, 0.5, 1.0, 1.5, 1e9])
def test_a_record_moves_the_count_by_a_half(norm: float) -> None:
    others = torch.tensor([[0.2, 0.7, 3.0]])
    with_it = torch.cat([others, torch.tensor([[norm]])], 1)
    moved = centred_counts(with_it, [1.0]) - centred_counts(others, [1.0])
    assert abs(float(moved)) == 0.5


def test_the_count_has_its_own_noise() -> None:
    clipping = CurrentPolicy(QuantileClipping(1.0), batch=300, values=1)
    clipping.factors(torch.tensor([[0.5, 0.6, 0.7, 2.0]]))
    source = KeystreamNoise(SeededCoins(8))
    counts = torch.tensor([clipping.counts(source) for _ in range(4000)])
    assert abs(float(counts.mean()) - 1.0) < 4 * 15 / math.sqrt(4000)  # 3 halves less one
    assert abs(float(counts.std()) / 15 - 1) < 4 / math.sqrt(2 * 4000)


def test_a_default_device_is_not_where_the_count_gets_its_noise() -> None:
    clipping = CurrentPolicy(QuantileClipping(1.0), batch=300, values=1)
    with torch.device("meta"):
        assert clipping.counts(KeystreamNoise(SeededCoins(8))) != [0]


def test_the_accountant_is_told_of_what_was_asked_for() -> None:
    engine, module, optimizer, loader = wide(QuantileClipping(1.0), torch.ones(64, 3), 32)
    for (x,) in loader:
        step(module, optimizer, x)
    (event,) = engine.accountant.history
    assert (event.noise_multiplier, event.steps) == (1.0, 2)


def test_noise_is_for_the_norm_that_clipped() -> None:
    # The norm falls by a fifth in each step: no gradient is longer than it.
    policy = QuantileClipping(1.0, quantile=0.01, rate=0.25)
    engine, module, optimizer, loader = wide(policy, torch.zeros(200, 4000), 100)
    multiplier = policy.gradient_noise(1.0, 100)
    for _ in range(3):
        for (x,) in loader:
            clipped_by = engine.max_grad_norm
            step(module, optimizer, x)
            assert engine.max_grad_norm < 0.9 * clipped_by
            deviation = float(module.weight.grad.std()) * 100 / (multiplier * clipped_by)
            assert abs(deviation - 1) < 4 / math.sqrt(2 * 4000)


def test_physical_batches_are_clipped_to_one_norm_and_counted_together() -> None:
    trails = []
    for most in (None, 16):
        engine, module, optimizer, loader = make(
            module=nn.Linear(1, 1, bias=False),
            dataset=TensorDataset(torch.linspace(0, 2, 40)[:, None]),
            norm=QuantileClipping(0.5, count_noise=1e-6),
            batch=40,
            sampling="fixed",
            max_physical_batch_size=most,
            noise=1e-9,
        )
        trail = []
        for _ in range(3):
            for (x,) in loader:
                step(module, optimizer, x)
                trail.append(round(engine.max_grad_norm, 6))
        trails.append(trail)
    whole, parts = trails
    assert len(set(whole)) == 3
    assert parts[2::3] == whole  # in three parts each
    assert parts[:2] == [0.5, 0.5]


def test_noise_that_leaves_no_room_for_the_count_is_refused() -> None:
    with pytest.raises(InvalidInput, match="below twice the count's noise"):
        make(norm=QuantileClipping(1.0), noise=1.0, batch=8)


@pytest.mark.parametrize(
    "options",
    [{"quantile": 1.0}, {"quantile": 0.0}, {"rate": -0.2}, {"count_noise": math.nan}],
    ids=str,
)
def test_bad_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        QuantileClipping(1.0, **options)


def test_coins_of_the_system_never_repeat_the_noise_of_a_count() -> None:
    clipping = CurrentPolicy(QuantileClipping(1.0), batch=300, values=1)
    counts = [clipping.counts(KeystreamNoise(Coins()))[0] for _ in range(50)]
    assert len(set(counts)) == 50
