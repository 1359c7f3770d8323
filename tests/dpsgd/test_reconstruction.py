"""Records found from the updates of single clients."""

import pytest
import torch
from torch import nn

from dpsgd.auditing.reconstruction import (
    invert_dense,
    likely_label,
    match_gradient,
    mean_squared_error,
)
from dpsgd.federated import LocalSGD
from dpsgd.federated.flat import parts, read, trained
from ldp import InvalidInput


def seen(layers: nn.Sequential, record: torch.Tensor, label: int) -> dict[str, torch.Tensor]:
    """Return the negative update of a client with one record, by the parameters' names."""
    devices = LocalSGD(lr=0.3, epochs=4, batch_size=1).start(
        layers, record[None], torch.tensor([label])
    )
    update = devices.update(0, torch.tensor([0]), read(layers), 0)
    names = sorted(dict(layers.named_parameters()), key=str.encode)
    return dict(zip(names, parts(-update, trained(layers)), strict=True))


@pytest.fixture
def layers() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4))


def test_a_dense_first_layer_gives_one_record_away(layers: nn.Sequential) -> None:
    record = torch.rand(12)
    gradient = seen(layers, record, 2)
    found = invert_dense(gradient["0.weight"], gradient["0.bias"])
    assert mean_squared_error(found, record) < 1e-8
    clipped = {name: 0.01 * part for name, part in gradient.items()}  # which scales, no more
    found = invert_dense(clipped["0.weight"], clipped["0.bias"])
    assert mean_squared_error(found, record) < 1e-8
    assert likely_label(gradient["2.bias"]) == 2


@pytest.mark.slow
def test_matching_the_gradient_finds_the_record(layers: nn.Sequential) -> None:
    record = torch.rand(12)
    found = match_gradient(layers, seen(layers, record, 1), shape=(12,), label=1, steps=120)
    assert mean_squared_error(found, record) < 0.01
    assert ((found >= 0) & (found <= 1)).all()


def test_noise_as_wide_as_an_update_hides_the_record(layers: nn.Sequential) -> None:
    record = torch.rand(12)
    gradient = seen(layers, record, 1)
    norm = torch.cat([part.flatten() for part in gradient.values()]).norm()
    noisy = {name: part + norm * torch.randn_like(part) for name, part in gradient.items()}
    found = invert_dense(noisy["0.weight"], noisy["0.bias"]).clamp(0, 1)
    assert mean_squared_error(found, record) > 0.05


def test_what_is_no_gradient_of_the_model_is_refused(layers: nn.Sequential) -> None:
    with pytest.raises(InvalidInput, match="shape"):
        invert_dense(torch.ones(3, 2), torch.ones(2))
    with pytest.raises(InvalidInput, match="bias did not change"):
        invert_dense(torch.ones(3, 2), torch.zeros(3))
    with pytest.raises(InvalidInput, match=r"0\.weight"):
        match_gradient(layers, {}, shape=(12,), label=0)
    with pytest.raises(InvalidInput, match="lower bound"):
        match_gradient(layers, {}, shape=(12,), label=0, bounds=(1, 0))
    with pytest.raises(InvalidInput, match="shape"):
        mean_squared_error(torch.ones(2), torch.ones(3))
