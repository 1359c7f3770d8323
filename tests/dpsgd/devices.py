"""The devices that tests run on."""

import pytest
import torch
from standin import NAME, register
from torch import nn
from torch.utils import backend_registration

CUDA = pytest.param(
    "cuda",
    marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with CUDA"),
)
STANDIN = pytest.param(
    NAME,
    marks=pytest.mark.skipif(
        not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
        reason="this torch has no devices made in Python",
    ),
)


def ready(name: str) -> torch.device:
    """Return the device of this name, ready for use."""
    if name == NAME:
        register()
    return torch.device(name, 0)


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
