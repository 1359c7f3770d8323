"""Gradients of convolutions in each form, part by part, against autograd for single samples."""

import pytest
import torch
from oracle import squared_norms
from torch import Tensor, nn

from dpsgd.gradients.persample import Dense
from dpsgd.layers import convolution

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
LAYERS: dict[str, tuple[Convolution, tuple[int, ...], str]] = {
    "kept": (nn.Conv2d(2, 3, 3, stride=(2, 1), padding=(1, 0)), (6, 5), "kept"),
    "kept, 1d, groups": (nn.Conv1d(4, 6, 3, dilation=2, groups=2), (12,), "kept"),
    "kept, 3d": (nn.Conv3d(1, 2, 2, padding=1), (3, 4, 3), "kept"),
    "kept, strides": (nn.Conv2d(1, 3, (2, 4), stride=2, padding=(0, 3)), (4, 7), "kept"),
    "kept, 3d, strides": (nn.Conv3d(1, 2, (2, 3, 2), stride=(2, 1, 2)), (5, 4, 9), "kept"),
    "formed": (nn.Conv2d(6, 8, 3), (5, 5), "formed"),
    "formed, padded": (nn.Conv2d(6, 8, 3, stride=2, padding=(2, 1)), (5, 6), "formed"),
    "formed, one channel": (nn.Conv2d(1, 4, (12, 2)), (12, 4), "formed"),
    "formed, groups": (nn.Conv2d(12, 16, 3, groups=2), (5, 5), "formed"),
    "Gram": (nn.Conv2d(6, 8, 3), (3, 4), "Gram"),
    "Gram, 1d, padded": (nn.Conv1d(9, 9, 4, padding=1, dilation=2), (6,), "Gram"),
    "Gram, strides": (nn.Conv2d(2, 60, (40, 2), stride=(4, 1), groups=2), (42, 4), "Gram"),
    "Gram, 3d, groups": (nn.Conv3d(6, 8, 2, groups=2), (2, 3, 2), "Gram"),
}


def one_by_one(layer: Convolution, inputs: Tensor, outputs: Tensor) -> Tensor:
    found = []
    for sample, gradient in zip(inputs, outputs, strict=True):
        loss = (layer(sample[None]) * gradient).sum()
        found += torch.autograd.grad(loss, [layer.weight])
    return torch.stack(found)


@pytest.mark.parametrize("together", [1, 200, 3000, 1 << 19])
@pytest.mark.parametrize("layout", ["channels first", "channels last"])
@pytest.mark.parametrize("name", LAYERS)
def test_every_part_counts_for_itself(
    name: str, layout: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, size, form = LAYERS[name]
    layer = layer.double()
    monkeypatch.setattr(convolution, "_CACHED", together)  # parts of 1 to all 7 samples
    monkeypatch.setattr(convolution, "_KEPT", 1.0)
    grams = []
    gram_squares = convolution.gram_squares
    monkeypatch.setattr(convolution, "gram_squares", lambda *a: grams.append(0) or gram_squares(*a))
    torch.manual_seed(2)
    inputs = torch.randn(7, layer.in_channels, *size, dtype=torch.float64)
    outputs = torch.randn_like(layer(inputs))
    if layout == "channels last":
        inputs, outputs = (v.movedim(1, -1).contiguous().movedim(-1, 1) for v in (inputs, outputs))
    expected = one_by_one(layer, inputs, outputs)
    padding = [low for low, _ in convolution._sides(layer)]
    with torch.no_grad():
        unfolded = convolution.Unfolded(layer, padding, inputs, outputs)
        gradients = convolution.weight_gradients(unfolded)
        assert isinstance(gradients, Dense if form == "kept" else convolution.Unfolded)
        dropped = torch.tensor([True, False, False, True, False, False, True])
        factors = torch.rand(7, dtype=torch.float64)
        shape = (-1, *[1] * (expected.ndim - 1))
        for form_, wanted in (
            (gradients, expected),
            (gradients.without(dropped), expected.masked_fill(dropped.view(shape), 0)),
        ):
            torch.testing.assert_close(squared_norms(form_), wanted.flatten(1).square().sum(1))
            torch.testing.assert_close(form_.dense(), wanted)
            weighted = (wanted * factors.view(shape)).sum(0)
            torch.testing.assert_close(form_.weighted_sum(factors), weighted)
    assert bool(grams) == (form == "Gram")
