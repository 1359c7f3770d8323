"""Layers that mix samples are replaced, and frozen ones are held to it."""

import copy

import pytest
import torch
from private import make, train
from torch import nn

import dpsgd
from ldp import InvalidInput


def network() -> nn.Sequential:
    torch.manual_seed(1)
    shared = nn.BatchNorm1d(4)
    inner = nn.Sequential(nn.Linear(4, 32), nn.Unflatten(1, (32, 1, 1)), nn.BatchNorm2d(32, 1e-3))
    tail = (nn.InstanceNorm2d(32, affine=True, track_running_stats=True), nn.Flatten())
    return nn.Sequential(shared, inner, *tail, nn.Linear(32, 4), shared)


def test_what_mixes_samples_is_replaced_in_a_copy_and_told() -> None:
    given = network().double()
    given[1][2].weight.data.uniform_()
    given[1][2].bias.requires_grad_(False)
    given[0].eval()
    before = copy.deepcopy(given.state_dict())
    fixed, changes = dpsgd.fix(given)
    assert [change.partition(",")[0] for change in changes] == [
        "0: BatchNorm1d(4",
        "1.2: BatchNorm2d(32",
        "2: InstanceNorm2d(32",
        "5: BatchNorm1d(4",
    ]
    assert " -> GroupNorm(2, 32, eps=0.001, affine=True" in changes[1]
    first, norm = fixed[0], fixed[1][2]
    assert first is fixed[5] and (first.num_groups, first.training) == (1, False)
    assert norm.training and norm.weight.dtype == torch.float64
    assert torch.equal(norm.weight, given[1][2].weight) and not norm.bias.requires_grad
    assert not list(fixed[2].buffers()) and torch.equal(fixed[2].weight, given[2].weight)
    assert given.state_dict().keys() == before.keys() and isinstance(given[0], nn.BatchNorm1d)
    fixed.float()
    _, module, optimizer, loader = make(module=fixed)
    train(module, optimizer, loader, 2)


def test_a_layer_in_a_block_that_is_used_twice_is_replaced_once() -> None:
    block = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    fixed, changes = dpsgd.fix(nn.Sequential(block, block))
    assert [change.partition(":")[0] for change in changes] == ["0.1", "1.1"]
    assert fixed[0] is fixed[1] and isinstance(fixed[0][1], nn.GroupNorm)


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.BatchNorm3d, nn.SyncBatchNorm])
@pytest.mark.parametrize("affine", [True, False])
def test_a_layer_by_itself_is_fixed(kind: type[nn.Module], affine: bool) -> None:
    fixed, (change,) = dpsgd.fix(kind(48, affine=affine))
    assert change.startswith(f"the module: {kind.__name__}(48")
    assert fixed.num_groups == (1 if kind is nn.BatchNorm1d else 3)
    fixed(torch.randn(2, 48, *[2] * (kind is not nn.BatchNorm1d)))


def test_what_is_frozen_or_mixes_nothing_stays() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4).eval().requires_grad_(False))
    fixed, changes = dpsgd.fix(module)
    assert changes == [] and str(fixed) == str(module)


class Activated(nn.BatchNorm1d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).relu()


@pytest.mark.parametrize("layer", [Activated(4), nn.LazyBatchNorm1d()], ids=["own", "lazy"])
def test_a_layer_of_which_little_is_known_is_refused(layer: nn.Module) -> None:
    with pytest.raises(InvalidInput, match=r"^1 .* has no shape yet, or does more than normalise"):
        dpsgd.fix(nn.Sequential(nn.Linear(4, 4), layer))


def frozen() -> nn.Module:
    norm = nn.BatchNorm1d(4).requires_grad_(False)
    norm(torch.randn(50, 4))
    return nn.Sequential(nn.Linear(4, 4), norm.eval(), nn.Linear(4, 2))


def test_a_frozen_batch_norm_is_accepted() -> None:
    module = frozen()
    kept = copy.deepcopy(module[1].state_dict())
    _, module, optimizer, loader = make(module=module)
    train(module, optimizer, loader)
    assert all(torch.equal(value, kept[key]) for key, value in module[1].state_dict().items())


@pytest.mark.parametrize("grad", [True, False])
def test_a_frozen_batch_norm_in_training_mode_is_refused_when_it_is_called(grad: bool) -> None:
    _, module, optimizer, loader = make(module=frozen())
    train(module, optimizer, loader, 1)
    module.train()
    x, _ = next(iter(loader))
    message = "BatchNorm1d was frozen, and is in training mode"
    with torch.set_grad_enabled(grad), pytest.raises(InvalidInput, match=message):
        module(x)
    assert module[1].num_batches_tracked == 1


@pytest.mark.parametrize(
    "change", [nn.Module.train, nn.Module.requires_grad_], ids=["train", "trained"]
)
def test_a_batch_norm_that_is_half_frozen_is_refused(change: object) -> None:
    module = frozen()
    change(module[1])  # type: ignore[operator]
    with pytest.raises(InvalidInput, match=r"dpsgd\.fix\(module\), or freeze it"):
        make(module=module)
