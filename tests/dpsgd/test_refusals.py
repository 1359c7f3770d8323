"""What the engine must not let through."""

import math
from typing import Any

import pytest
import torch
from private import BATCH, N, data, make, model, train
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, WeightedRandomSampler

from dpsgd import PrivacyEngine
from ldp import InvalidInput


@pytest.mark.parametrize("value", [-1.0, 0.0, math.nan, math.inf, "1", True])
def test_bad_noise_and_norms_are_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="noise_multiplier must be finite and > 0"):
        make(noise=value)
    with pytest.raises(InvalidInput, match="max_grad_norm must be finite and > 0"):
        make(norm=value)


@pytest.mark.parametrize(
    ("layer", "advice"),
    [
        (nn.BatchNorm1d(4), "use GroupNorm"),
        (nn.BatchNorm2d(4, affine=False), "use GroupNorm"),
        (nn.BatchNorm1d(4).eval(), "use GroupNorm"),
        (nn.SyncBatchNorm(4), "use GroupNorm"),
        (nn.LazyBatchNorm1d(), "no shape yet"),
        (nn.InstanceNorm1d(4, track_running_stats=True), "track_running_stats=False"),
        (nn.Embedding(4, 4, max_norm=1.0), "max_norm=None"),
        (nn.Embedding(4, 4, scale_grad_by_freq=True), "scale_grad_by_freq=False"),
        (nn.EmbeddingBag(4, 4, mode="max"), '"mean" or "sum"'),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_layers_that_mix_samples_are_refused(layer: nn.Module, advice: str) -> None:
    with pytest.raises(InvalidInput, match=advice):
        make(module=nn.Sequential(nn.Linear(4, 4), layer))


@pytest.mark.parametrize(
    ("criterion", "advice"),
    [
        (nn.CrossEntropyLoss(reduction="sum"), "loss_reduction says"),
        (nn.CrossEntropyLoss(weight=torch.ones(2)), "weights of the whole batch"),
    ],
    ids=["sum", "weighted"],
)
def test_losses_that_are_reduced_otherwise_are_refused(criterion: nn.Module, advice: str) -> None:
    with pytest.raises(InvalidInput, match=advice):
        make(criterion=criterion)


def test_loaders_with_a_sampling_of_their_own_are_refused() -> None:
    module = model()

    def attempt(loader: Any, **options: Any) -> None:
        PrivacyEngine().make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=loader,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            **options,
        )

    weighted = WeightedRandomSampler([1.0] * N, N)
    with pytest.raises(InvalidInput, match="WeightedRandomSampler"):
        attempt(DataLoader(data(), batch_size=BATCH, sampler=weighted))
    with pytest.raises(InvalidInput, match="batch_size"):
        attempt(DataLoader(data(), batch_size=None))
    with pytest.raises(InvalidInput, match="sampling must be one of"):
        attempt(DataLoader(data(), batch_size=BATCH), sampling="shuffled")


def test_batches_of_another_loader_are_refused() -> None:
    _, module, optimizer, _ = make()
    x, y = data().tensors
    with pytest.raises(InvalidInput, match="no batch was drawn"):
        F.cross_entropy(module(x), y).backward()
    with pytest.raises(InvalidInput, match="without a batch drawn"):
        optimizer.step()


def test_a_batch_with_records_repeated_is_refused() -> None:
    _, module, _, loader = make()
    x, y = next(iter(loader))
    with pytest.raises(InvalidInput, match="more than once"):
        F.cross_entropy(module(torch.cat([x, x])), torch.cat([y, y])).backward()


def test_a_second_backward_pass_for_one_batch_is_refused() -> None:
    _, module, _, loader = make()
    x, y = next(iter(loader))
    F.cross_entropy(module(x), y).backward()
    with pytest.raises(InvalidInput, match="second backward"):
        F.cross_entropy(module(x), y).backward()


def test_a_second_step_for_one_batch_is_refused() -> None:
    _, module, optimizer, loader = make()
    train(module, optimizer, loader, 1)
    with pytest.raises(InvalidInput, match="one batch, one step"):
        optimizer.step()


def test_a_weight_that_is_used_outside_of_its_layer_is_refused() -> None:
    class Reaching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + F.linear(x, self.inner.weight)

    _, module, _, loader = make(module=Reaching())
    x, y = next(iter(loader))
    with pytest.raises(InvalidInput, match=r"inner\.weight was used outside"):
        F.cross_entropy(module(x), y).backward()


def test_packed_sequences_are_refused() -> None:
    class Packing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(2, 3, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            rows = x.view(len(x), 2, 2)
            lengths = torch.full((len(x),), 2)
            packed = nn.utils.rnn.pack_padded_sequence(rows, lengths, batch_first=True)
            return self.rnn(packed)[1][0]

    _, module, _, loader = make(module=Packing())
    with pytest.raises(InvalidInput, match="padded batch"):
        module(next(iter(loader))[0])


def test_a_parameter_that_is_thawed_later_is_refused() -> None:
    module = model()
    module[0].requires_grad_(False)
    _, module, optimizer, loader = make(module=module)
    module[0].requires_grad_(True)
    x, y = next(iter(loader))
    F.cross_entropy(module(x), y).backward()
    with pytest.raises(InvalidInput, match="was frozen"):
        optimizer.step()


def test_samples_folded_into_another_dimension_are_refused() -> None:
    class Folding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x.view(-1, 2)).view(len(x), 4)[:, :2]

    _, module, _, loader = make(module=Folding())
    x, _ = next(iter(loader))
    with pytest.raises(InvalidInput, match="a dimension of"):
        module(x)


def test_an_optimizer_without_some_parameters_is_refused() -> None:
    module = model()
    with pytest.raises(InvalidInput, match=r"lacks 2\.weight, 2\.bias"):
        make(module=module, optimizer=lambda _, lr: torch.optim.SGD(module[0].parameters(), lr=lr))
