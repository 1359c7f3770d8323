"""Checks of modules, losses and optimizers that cannot be trained privately."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.utils import prune
from torch.optim import Optimizer

from ldp import InvalidInput


def check_module(module: nn.Module) -> None:
    """Raise `InvalidInput` naming every layer that mixes samples or otherwise leaks them."""
    faults = [
        f"{name or 'the module'} ({type(layer).__name__}) {reason}"
        for name, layer in module.named_modules()
        if (reason := fault(layer)) is not None
    ]
    if faults:
        raise InvalidInput("; ".join(faults))
    devices = {p.device for p in module.parameters() if p.requires_grad}
    if not devices:
        raise InvalidInput("the module has no parameters that require a gradient")
    if len(devices) > 1:
        raise InvalidInput(
            f"the module's parameters are on {', '.join(sorted(map(str, devices)))}: move it to "
            "one device, and train on several by DistributedDataParallel"
        )


def hold_frozen(module: nn.Module) -> None:
    """Make each frozen BatchNorm raise `InvalidInput` when it is called in training mode."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.register_forward_pre_hook(_refuse_training)


def _refuse_training(layer: nn.Module, args: tuple[object, ...]) -> None:
    if layer.training:
        raise InvalidInput(
            f"{type(layer).__name__} was frozen, and is in training mode: call its eval() after "
            "each train() of the module, or dpsgd.fix(module) before make_private"
        )


def fault(layer: nn.Module) -> str | None:
    """Return why a layer cannot be trained privately, and what to do; None if it can."""
    if isinstance(layer, nn.modules.lazy.LazyModuleMixin) and layer.has_uninitialized_params():
        return "has no shape yet: run the module once before"
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
        return (
            "keeps statistics of the data without noise: set track_running_stats=False, as "
            "dpsgd.fix(module) does"
        )
    trained = any(p.requires_grad for p in layer.parameters(recurse=False))
    if isinstance(layer, nn.modules.batchnorm._BatchNorm) and (
        layer.training or layer.running_mean is None or trained
    ):
        return (
            "normalises over the batch, which mixes samples: use GroupNorm, by "
            "dpsgd.fix(module), or freeze it, by eval() and requires_grad_(False)"
        )
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        if layer.max_norm is not None:
            return "rescales the rows that are looked up, without noise: set max_norm=None"
        if layer.scale_grad_by_freq:
            return "weighs gradients by the batch's frequencies: set scale_grad_by_freq=False"
    if isinstance(layer, nn.EmbeddingBag) and layer.mode == "max":
        return 'has no rule for mode "max": use "mean" or "sum"'
    if isinstance(layer, nn.DataParallel):
        return "splits batches among devices: use DistributedDataParallel"
    if isinstance(layer, nn.parallel.DistributedDataParallel):
        return "adds up gradients of batches: wrap the whole module, and nothing inside"
    spread = any(type(p).__name__ == "DTensor" for p in layer.parameters(recurse=False))
    if spread or type(layer).__name__ == "FullyShardedDataParallel":
        return "has its parameters spread over devices: use DistributedDataParallel"
    if isinstance(layer, torch.jit.ScriptModule):
        return "is compiled, which hides its layers: use the module that it was made of"
    if type(layer).__name__ == "OptimizedModule" or layer._compiled_call_impl is not None:
        return "is compiled, which hides its layers: leave out torch.compile"
    if type(layer).__name__ == "_SpectralNorm":
        return "changes its buffers as it runs, which samples cannot do apart: use weight_norm"
    if any(p.is_complex() for p in layer.parameters(recurse=False) if p.requires_grad):
        return "has complex parameters, and noise would be for their real parts: take real ones"
    hooks: list[Callable[..., object]] = list(layer._forward_pre_hooks.values())
    if any(type(hook).__name__ in ("WeightNorm", "SpectralNorm") for hook in hooks):
        return "sets its weight by a hook: use torch.nn.utils.parametrizations"
    if any(isinstance(hook, prune.BasePruningMethod) for hook in hooks):
        return "is pruned by a hook: make that permanent, by torch.nn.utils.prune.remove"
    return None


def check_criterion(criterion: nn.Module, loss_reduction: str) -> None:
    """Raise `InvalidInput` for a loss that combines samples otherwise than by `loss_reduction`.

    A weighted mean divides by the weights of the whole batch, a mean with ignored targets by how
    many there are: one sample then scales the gradients of all others.
    """
    reduction = getattr(criterion, "reduction", "none")
    if reduction not in (loss_reduction, "none", None):
        raise InvalidInput(
            f'the criterion reduces by "{reduction}", loss_reduction says "{loss_reduction}"'
        )
    if reduction != "mean":
        return
    if isinstance(criterion, nn.CrossEntropyLoss | nn.NLLLoss):
        why = None
        if criterion.weight is not None:
            why = "weights divides by the weights of the whole batch"
        elif (ignored := criterion.ignore_index) >= 0:
            why = f"ignore_index={ignored} divides by how many targets of the batch are kept"
        if why is not None:
            raise InvalidInput(
                f'{type(criterion).__name__} with {why}: use reduction="sum" and '
                'loss_reduction="sum"'
            )
    if isinstance(criterion, nn.KLDivLoss):
        raise InvalidInput('KLDivLoss averages over classes too: use reduction="batchmean"')


def check_optimizer(optimizer: Optimizer, module: nn.Module) -> None:
    """Raise `InvalidInput` unless the optimizer has the parameters that the module trains."""
    if isinstance(optimizer, torch.optim.LBFGS | torch.optim.SparseAdam):
        raise InvalidInput(f"{type(optimizer).__name__} cannot step on noisy gradients")
    if "_optimizer_step_pre_hooks" not in vars(optimizer):
        raise InvalidInput(
            f"{type(optimizer).__name__} is around another optimizer: make that one private, and "
            "let accelerate prepare it after"
        )
    theirs = {id(p) for group in optimizer.param_groups for p in group["params"]}
    named = {id(p): name for name, p in module.named_parameters() if p.requires_grad}
    if missing := [name for key, name in named.items() if key not in theirs]:
        raise InvalidInput(
            f"the optimizer lacks {', '.join(missing)}: add them, or freeze them with "
            "requires_grad_(False)"
        )
    frozen = {id(p) for p in module.parameters() if not p.requires_grad}
    if theirs - set(named) - frozen:
        raise InvalidInput("the optimizer has parameters that are not the module's")
