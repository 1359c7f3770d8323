"""The devices that tests run on."""

import os

import pytest
import torch
from standin import NAME
from torch import nn

CHOSEN = os.environ.get("DPSGD_TEST_DEVICE", "cuda")
"""Where the tests of other devices than a CPU run: "cuda", or the stand-in's name."""
CUDA = pytest.param(
    "cuda",
    marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA"),
)


def moved(module: nn.Module, device: torch.device) -> nn.Module:
    """Move a module; layers that share a parameter go on to share it, on the stand-in too."""
    if device.type != NAME:
        return module.to(device)
    there: dict[nn.Parameter, nn.Parameter] = {}
    for layer in module.modules():
        for name, old in list(layer._parameters.items()):
            if old is not None:
                new = there.setdefault(
                    old, nn.Parameter(old.detach().to(device), old.requires_grad)
                )
                setattr(layer, name, new)
        for name, buffer in list(layer._buffers.items()):
            if buffer is not None:
                setattr(layer, name, buffer.to(device))
    return module
