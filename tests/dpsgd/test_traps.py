"""What shipped libraries got wrong, one test for each: the traps, by name."""

import logging
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from models import Adapted, Branches, Dropping, Language, Twice
from oracle import Recording, by_loop, check, keep
from private import BATCH, N, data, make, model, train
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from dpsgd import FlatClipping, PrivacyEngine, QuantileClipping
from dpsgd.accounting import (
    FixedSizeSampling,
    NoSampling,
    PoissonSampling,
    RDPAccountant,
    Relation,
    calibrate_noise_multiplier,
)
from ldp import InvalidInput
from ldp.testing import SeededCoins

B = 5

LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "conv padded in circles": (
        lambda: nn.Conv2d(2, 3, 3, padding=2, padding_mode="circular"),
        lambda: torch.randn(B, 2, 5, 5),
    ),
    "grouped conv": (lambda: nn.Conv2d(4, 6, 3, groups=2), lambda: torch.randn(B, 4, 6, 6)),
    "embedding's padding row": (
        lambda: nn.Embedding(4, 3, padding_idx=1),
        lambda: torch.randint(4, (B, 9)),
    ),
    "linear on rank 4": (lambda: nn.Linear(4, 3), lambda: torch.randn(B, 2, 3, 4)),
    "expanded position ids": (lambda: Language("expanded"), lambda: torch.randint(17, (B, 4))),
    "position ids of no batch": (lambda: Language("flat"), lambda: torch.randint(17, (B, 4))),
    "layer norm without bias": (lambda: nn.LayerNorm(4, bias=False), lambda: torch.randn(B, 3, 4)),
    "unused layer": (Branches, lambda: torch.randn(B, 3)),
    "the same layer twice": (lambda: Twice(nn.Linear(4, 4)), lambda: torch.randn(B, 4)),
    "embedding and head tied": (lambda: Language("flat"), lambda: torch.randint(17, (B, 30))),
    "LoRA adapters": (
        lambda: nn.Sequential(Adapted(nn.Linear(4, 6), 2), nn.ReLU(), Adapted(nn.Linear(6, 3), 2)),
        lambda: torch.randn(B, 3, 4),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_and_norms_are_those_of_single_samples(name: str) -> None:
    torch.manual_seed(9)
    build, inputs = LAYERS[name]
    given = inputs()
    check(build().double(), given.double() if given.is_floating_point() else given)


@pytest.mark.parametrize("name", LAYERS)
def test_no_sample_moves_the_sum_by_more_than_the_norm(name: str) -> None:
    torch.manual_seed(9)
    build, inputs = LAYERS[name]
    module, given = build(), inputs()
    keeper = keep(module, FlatClipping(0.01))
    sums = []
    for batch in (given, given[1:]):
        out = module(batch)
        (100 * out.square().sum()).backward()
        sums.append(torch.cat([s.flatten() for s in keeper.take_sums()]).double())
    assert float((sums[0] - sums[1]).norm()) == pytest.approx(0.01, rel=1e-3)


def test_a_padding_row_is_not_trained() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(4, 3, padding_idx=1)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.embedding(ids).sum(1)

    dataset = TensorDataset(torch.randint(4, (N, 9)), torch.zeros(N, dtype=torch.long))
    _, module, optimizer, loader = make(module=Words(), dataset=dataset)
    train(module, optimizer, loader)
    weight = module.embedding.weight
    assert not weight[1].any()
    assert weight.grad[[0, 2, 3]].all()


def test_dropout_in_a_layer_without_a_rule_is_drawn_for_each_sample() -> None:
    with warnings.catch_warnings(action="ignore"):
        module = Dropping()
        keeper = keep(module, Recording(1e9))
    output = module(torch.ones(B, 50))
    output.sum().backward()
    assert not torch.equal(output[0], output[1])
    torch.testing.assert_close(keeper.take_sums()[0], output.detach().sum(0))


def test_batch_norm_without_parameters_is_refused() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False).train())
    with pytest.raises(InvalidInput, match=r"1 \(BatchNorm1d\) .* use GroupNorm"):
        make(module=module)


@pytest.mark.parametrize("noise", [-1.0, math.nan, 0.0])
def test_noise_of_no_width_is_refused(noise: float) -> None:
    with pytest.raises(InvalidInput, match="noise_multiplier must be finite and > 0"):
        make(noise=noise)


@pytest.mark.parametrize("norm", [0.0, -1.0, math.nan])
def test_norms_that_are_none_are_refused(norm: float) -> None:
    with pytest.raises(InvalidInput, match="max_grad_norm must be finite and > 0"):
        make(norm=norm)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e38])
def test_one_spoilt_sample_counts_as_zero_and_spoils_no_other(bad: float) -> None:
    module = nn.Linear(4, 2)
    inputs = torch.randn(B, 4)
    (clean,) = (by_loop(module, [inputs[1:]], lambda out: out.square().sum()),)
    keeper = keep(module, FlatClipping(1e3))
    inputs[0, 2] = bad
    module(inputs).square().sum().backward()
    for i, summed in enumerate(keeper.take_sums()):
        torch.testing.assert_close(summed, sum(sample[i] for sample in clean))


def test_a_weighted_sampler_is_refused() -> None:
    module = model()
    sampler = WeightedRandomSampler([1.0] * N, N)
    with pytest.raises(InvalidInput, match="WeightedRandomSampler draws records with a rate"):
        PrivacyEngine().make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=DataLoader(data(), batch_size=BATCH, sampler=sampler),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )


def test_sums_are_divided_by_the_expected_size_not_by_the_realised_one() -> None:
    module = nn.Linear(1, 1, bias=False)
    _, module, optimizer, loader = make(
        module=module, dataset=TensorDataset(torch.full((N, 1), 9.0)), noise=1e-9, norm=1.0
    )
    sizes = []
    for (x,) in loader:
        optimizer.zero_grad()
        module(x).mean().backward()
        optimizer.step()
        assert module.weight.grad.item() == pytest.approx(len(x) / BATCH, rel=1e-5, abs=1e-6)
        sizes.append(len(x))
    assert len(set(sizes)) > 1


def test_nothing_tells_how_many_records_there_are_or_were_drawn(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(action="error"):
        engine, module, optimizer, loader = make(dataset=data(59))
        train(module, optimizer, loader)
    assert "".join(capfd.readouterr()) == caplog.text == ""
    with pytest.raises(InvalidInput) as refused:
        make(dataset=data(59), batch=60)
    assert "59" not in str(refused.value)
    assert set(engine.state_dict()["accountant"]["history"][0]) == {
        "noise_multiplier",
        "sampling",
        "steps",
    }


def test_the_count_of_adaptive_clipping_is_centred() -> None:
    policy = QuantileClipping(1.0)
    for norm in (0.5, 2.0):
        moved = policy.centred_count(torch.tensor([[norm]]))
        assert abs(float(moved)) == 0.5  # the sensitivity that gradient_noise assumes
    assert policy.gradient_noise(1.0, 20) == pytest.approx((1 - (2 * 1.0) ** -2) ** -0.5)


def test_noise_is_for_the_norm_that_clipped_not_for_the_next() -> None:
    module = nn.Linear(5000, 1, bias=False)
    engine, module, optimizer, loader = make(
        module=module,
        dataset=TensorDataset(torch.zeros(N, 5000)),
        norm=QuantileClipping(1.0, quantile=0.01, rate=2.0, count_noise=4.0),
    )
    (x,) = next(iter(loader))
    module(x).mean().backward()
    optimizer.step()
    assert engine.max_grad_norm < 0.5
    multiplier = (1 - 8.0**-2) ** -0.5
    deviation = float(module.weight.grad.std()) * BATCH / multiplier
    assert abs(deviation - 1.0) < 4 / math.sqrt(2 * 5000)


@pytest.mark.parametrize("noise", [math.nan, -1.0, 0.0])
def test_an_accountant_refuses_noise_that_is_none(noise: float) -> None:
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    with pytest.raises(InvalidInput, match="noise_multiplier must be finite and > 0"):
        accountant.step(noise_multiplier=noise, sampling=PoissonSampling(0.01))
    assert accountant.history == ()


@pytest.mark.parametrize("delta", [1.0, 2.0, 0.0, -0.1, math.nan])
def test_deltas_that_are_no_probabilities_are_refused(delta: float) -> None:
    engine, module, optimizer, loader = make()
    train(module, optimizer, loader, 1)
    with pytest.raises(InvalidInput, match="delta must lie strictly between 0 and 1"):
        engine.get_epsilon(delta)


def test_steps_of_a_negative_number_are_refused() -> None:
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    with pytest.raises(InvalidInput, match="steps must be an integer >= 0"):
        accountant.step(noise_multiplier=1.0, sampling=PoissonSampling(0.01), steps=-5)


def test_an_empty_history_costs_nothing() -> None:
    engine, *_ = make()
    assert engine.get_epsilon(1e-5) == 0.0


def test_epsilon_has_no_floor() -> None:
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    accountant.step(noise_multiplier=1.0, sampling=PoissonSampling(0.0), steps=100)
    assert accountant.get_epsilon(1e-5) == 0.0
    accountant.step(noise_multiplier=100.0, sampling=PoissonSampling(0.01))
    assert 0 < accountant.get_epsilon(1e-5) < 0.01  # orders to 63 end at 0.103


def test_calibration_does_not_overshoot() -> None:
    sampling = PoissonSampling(256 / 60_000)
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    noise = calibrate_noise_multiplier(accountant, 1.0, 1e-5, sampling=sampling, steps=14_062)
    accountant.step(noise_multiplier=noise, sampling=sampling, steps=14_062)
    assert 1 - 1e-5 < accountant.get_epsilon(1e-5) <= 1


@pytest.mark.parametrize("records", [64, 65, 71])
def test_the_rate_is_that_of_the_records_not_of_the_batches(records: int) -> None:
    engine, module, optimizer, loader = make(dataset=data(records))
    train(module, optimizer, loader, 1)
    (event,) = engine.accountant.history
    assert event.sampling == PoissonSampling(BATCH / records)


@pytest.mark.parametrize(
    ("sampling", "accounted", "relation"),
    [
        ("shuffle", NoSampling(), Relation.REPLACE_SPECIAL),
        ("fixed", FixedSizeSampling(BATCH, N), Relation.REPLACE_ONE),
    ],
)
def test_batches_that_are_not_poisson_have_no_epsilon_of_poisson(
    sampling: str, accounted: Any, relation: Relation
) -> None:
    engine, module, optimizer, loader = make(sampling=sampling)
    train(module, optimizer, loader, 1)
    assert engine.accountant.history[0].sampling == accounted
    assert engine.accountant.relation is relation
    poisson, other, stepper, batches = make(PrivacyEngine(coins=SeededCoins(1)))
    train(other, stepper, batches, 1)
    assert engine.get_epsilon(1e-5) > poisson.get_epsilon(1e-5)
