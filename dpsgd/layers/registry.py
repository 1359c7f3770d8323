"""Which rule runs a layer, and which layers are left alone."""

import warnings
from collections.abc import Callable

from torch import nn
from torch.nn.utils import parametrize

from dpsgd.bookkeeping import Rule

_RULES: dict[type[nn.Module], Rule] = {}


def rule(*layers: type[nn.Module]) -> Callable[[Rule], Rule]:
    """Make a function the rule of these layer types; subclasses need rules of their own."""

    def register(function: Rule) -> Rule:
        for layer in layers:
            _RULES[layer] = function
        return function

    return register


def rules_for(module: nn.Module, fallback: Rule) -> dict[nn.Module, Rule]:
    """Return a rule for each outermost layer that has parameters to train.

    A layer without a rule of its own gets the fallback, which also runs whatever is inside it;
    one warning names those.
    """
    found: dict[nn.Module, Rule] = {}
    others: list[str] = []

    def visit(layer: nn.Module, name: str) -> None:
        if layer in found or not any(p.requires_grad for p in layer.parameters()):
            return
        own = any(p.requires_grad for p in layer.parameters(recurse=False))
        special = parametrize.is_parametrized(layer)
        if type(layer) in _RULES and not special:
            found[layer] = _RULES[type(layer)]
        elif own or special:
            found[layer] = fallback
            others.append(f"{name or 'the module itself'} ({type(layer).__name__})")
        else:
            for child_name, child in layer.named_children():
                visit(child, f"{name}.{child_name}".lstrip("."))

    visit(module, "")
    if others:
        warnings.warn(
            f"no rule for {', '.join(others)}: forming the gradient of every sample, which takes "
            "more time and memory",
            stacklevel=4,
        )
    return found
