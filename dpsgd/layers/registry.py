"""Registry of rules by layer type, and the choice of the layers that rules run."""

import warnings
from collections.abc import Callable

from torch import nn
from torch.nn.utils import parametrize

from dpsgd.clipping.own import owned, run_own
from dpsgd.clipping.taps import Rule
from dpsgd.layers.fallback import by_sample
from ldp import InvalidInput

_RULES: dict[type[nn.Module] | str, Rule] = {}


def rule(*layers: type[nn.Module] | str) -> Callable[[Rule], Rule]:
    """Make a function the rule of these layer types, which other libraries' names may stand for.

    Subclasses need rules of their own, or functions of weights that have one.
    """

    def register(function: Rule) -> Rule:
        for layer in layers:
            _RULES[layer] = function
        return function

    return register


def rules_for(module: nn.Module) -> dict[nn.Module, Rule]:
    """Return a rule for each layer that has parameters to train.

    Without one of its own a layer is run by `run_own`, and the layers inside by their rules; a
    layer with parametrisations by `fallback`.
    """
    found: dict[nn.Module, Rule] = {}

    def visit(layer: nn.Module) -> None:
        if layer in found or not any(p.requires_grad for p in layer.parameters()):
            return
        name = f"{type(layer).__module__}.{type(layer).__qualname__}"
        special = parametrize.is_parametrized(layer)
        known = _RULES.get(type(layer)) or _RULES.get(name)
        if known and not special:
            found[layer] = known
        elif special or isinstance(layer, nn.RNNBase):
            found[layer] = fallback(module, layer)
        else:
            if owned(layer):
                found[layer] = run_own
            for child in layer.children():
                visit(child)

    visit(module)
    return found


def fallback(module: nn.Module, layer: nn.Module) -> Rule:
    """Return the rule that runs a layer, with all inside it, for each sample; warn that it does.

    Raises `InvalidInput` where it cannot: for rows of an embedding, which would have another shape;
    for a recurrent layer inside, and for a layer that is also used outside.
    """
    names = {part: name for name, part in module.named_modules()}
    named = f"{names[layer] or 'the module itself'} ({type(layer).__name__})"
    if type(layer) is nn.Embedding:
        raise InvalidInput(
            f"{named}: its ids hold no batch, and its rows are used where samples cannot be "
            "told apart: expand the ids to one row for each sample"
        )
    if any(isinstance(part, nn.RNNBase | nn.RNNCellBase) for part in layer.modules()):
        raise InvalidInput(
            f"{named} is or has a recurrent layer, which runs only by a rule of its own: "
            "give its other parameters a module of their own"
        )
    seen, waiting = {layer}, [module]
    while waiting:
        if (part := waiting.pop()) not in seen:
            seen.add(part)
            waiting += part.children()
    outside = seen - {layer}
    if any(part in outside and any(True for _ in part.parameters()) for part in layer.modules()):
        raise InvalidInput(
            f"{named} has a layer inside that is also used outside of it: give its own "
            "parameters a module of their own"
        )
    warnings.warn(
        f"no rule for {named}: forming the gradient of every sample, which takes more time and "
        "memory",
        stacklevel=2,
    )
    return by_sample
