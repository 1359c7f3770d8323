"""Registry of rules by layer type, and the choice of the layers that rules run."""

import warnings
from collections.abc import Callable

from torch import nn
from torch.nn.utils import parametrize

from dpsgd.clipping.taps import Rule
from ldp import InvalidInput

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

    A layer without a rule of its own gets the fallback, which also runs all layers inside it;
    one warning names such layers. Raises `InvalidInput` where it cannot: for a recurrent layer
    inside, and for a layer that is also used outside.
    """
    found: dict[nn.Module, Rule] = {}
    others: list[str] = []
    inside: dict[nn.Module, str] = {}

    def visit(layer: nn.Module, name: str) -> None:
        if layer in found or not any(p.requires_grad for p in layer.parameters()):
            return
        own = any(p.requires_grad for p in layer.parameters(recurse=False))
        special = parametrize.is_parametrized(layer)
        if type(layer) in _RULES and not special:
            found[layer] = _RULES[type(layer)]
        elif own or special:
            found[layer] = fallback
            named = f"{name or 'the module itself'} ({type(layer).__name__})"
            others.append(named)
            if any(isinstance(part, nn.RNNBase | nn.RNNCellBase) for part in layer.modules()):
                raise InvalidInput(
                    f"{named} is or has a recurrent layer, which runs only by a rule of its own: "
                    "give its other parameters a module of their own"
                )
            inside.update(dict.fromkeys(layer.modules(), named))
            del inside[layer]
        else:
            for child_name, child in layer.named_children():
                visit(child, f"{name}.{child_name}".lstrip("."))

    visit(module, "")
    if both := [name for layer, name in inside.items() if layer in found]:
        raise InvalidInput(
            f"{both[0]} has a layer inside that is also used outside of it: give its own "
            "parameters a module of their own"
        )
    if others:
        warnings.warn(
            f"no rule for {', '.join(others)}: forming the gradient of every sample, which takes "
            "more time and memory",
            stacklevel=4,
        )
    return found
