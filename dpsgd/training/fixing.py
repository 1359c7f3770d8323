"""Put layers that treat each sample by itself in the place of layers that mix samples."""

import copy

from torch import nn

from dpsgd.training.validation import fault
from ldp import InvalidInput

_FORWARDS = (
    nn.modules.batchnorm._BatchNorm.forward,
    nn.SyncBatchNorm.forward,
    nn.modules.instancenorm._InstanceNorm.forward,
)
_CHANNELS = 16
"""Channels of a group: hardly worse than the best (Wu and He, ECCV 2018, table 3)."""


def fix(module: nn.Module) -> tuple[nn.Module, list[str]]:
    """Return a copy of the module without layers that mix samples, and what was changed.

        model, changes = dpsgd.fix(model)
        print(*changes, sep="\\n")  # bn1: BatchNorm2d(64, ...) -> GroupNorm(4, 64, ...)

    BatchNorm of every kind becomes GroupNorm: groups of 16 channels where that divides them, else,
    and for BatchNorm1d, one group. Weight, bias and mode are taken over; running statistics are
    not, so that a model that was trained before needs training again. InstanceNorm loses its
    running statistics. A frozen BatchNorm stays. Make the optimizer after this call. Raises
    `InvalidInput` for lazy layers, and for subclasses that do more than normalise.
    """
    mixing = []
    for name, layer in module.named_modules(remove_duplicate=False):
        own = (*layer.parameters(recurse=False), *layer.buffers(recurse=False))
        lazy = any(nn.parameter.is_lazy(value) for value in own)
        normal = isinstance(layer, nn.modules.batchnorm._NormBase) and fault(layer) is not None
        if lazy or (normal and type(layer).forward not in _FORWARDS):
            raise InvalidInput(
                f"{name or 'the module'} ({type(layer).__name__}) has no shape yet, or does more "
                "than normalise: run the module once before, or replace the layer yourself"
            )
        if normal:
            mixing.append(name)
    fixed, changes = copy.deepcopy(module), []
    replaced: dict[nn.Module, nn.Module] = {}
    for name, layer in [(name, fixed.get_submodule(name)) for name in mixing]:
        assert isinstance(layer, nn.modules.batchnorm._NormBase)
        new = replaced.setdefault(layer, _by_sample(layer))
        changes.append(f"{name or 'the module'}: {layer} -> {new}")
        parent, _, child = name.rpartition(".")
        if name:
            setattr(fixed.get_submodule(parent), child, new)
        else:
            fixed = new
    return fixed, changes


def _by_sample(layer: nn.modules.batchnorm._NormBase) -> nn.Module:
    channels = layer.num_features
    new: nn.modules.instancenorm._InstanceNorm | nn.GroupNorm
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm):
        new = type(layer)(channels, layer.eps)
    else:
        whole = channels % _CHANNELS or isinstance(layer, nn.BatchNorm1d)
        new = nn.GroupNorm(1 if whole else channels // _CHANNELS, channels, layer.eps)
    new.affine, new.weight, new.bias = layer.affine, layer.weight, layer.bias
    return new.train(layer.training)
