"""A module's own parameters, used in its forward: functions of them meet samples in known ways.

Such are class tokens, learned positions, scales of layers, and the weights of subclasses. While
the forward runs, each of them is an `Own` tensor. What is computed of `Own` tensors alone is
another, which autograd follows. Where one meets samples it is repeated for each of them, and the
gradients of the copies are those of the samples: in functions that are known to keep samples apart.
For all others the module is run under `vmap`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from dpsgd.clipping.clipped_sums import Gradients, wide
from dpsgd.gradients.persample import Dense

if TYPE_CHECKING:
    from dpsgd.clipping.taps import Call

_NAMES = "add sub rsub mul div true_divide pow where lerp addcmul maximum minimum add_ sub_ mul_"
_ELEMENTWISE = {
    getattr(place, name)
    for name in _NAMES.split()
    for place in (torch, Tensor)
    if name in dir(place)
}
"""Functions that broadcast: a value of the result is one of a single place of each argument."""
_JOINING = {torch.cat, torch.concat, torch.concatenate}
_OF_MATRICES = {torch.matmul, Tensor.matmul, nn.functional.scaled_dot_product_attention}
"""Functions that broadcast all dimensions but the last two."""
_LENDING = {Tensor.expand_as, Tensor.type_as, Tensor.to}
"""Functions of the first argument, to which the second only lends its type or shape."""
_EXPANDING = {Tensor.expand, Tensor.expand_as, Tensor.repeat, torch.broadcast_to}
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""Rules for functions of samples and weights: see `function`."""

Leaves = dict[Tensor, nn.Parameter | Callable[[Tensor], Gradients]]


def function(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Have rule(call, *args, **kwargs) run these functions, unless it returns NotImplemented."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS.update(dict.fromkeys(functions, rule))
        return rule

    return register


class Own(Tensor):
    """A function of a module's own parameters, in one call of the module.

    `plain` is its value, in a graph of which the leaves stand for parameters, or for what a
    function yields gradients of; `before` is what was expanded to it, if it was.
    """

    call: "Call"
    leaves: Leaves
    plain: Tensor
    before: Tensor | None

    @property
    def parameter(self) -> nn.Parameter | None:
        """The parameter that this is itself, if it is."""
        leaf = self.leaves.get(self.plain)
        return leaf if isinstance(leaf, nn.Parameter) else None

    @staticmethod
    def of(plain: Tensor, call: "Call", leaves: Leaves, before: Tensor | None = None) -> "Own":
        """Return a value in the call's graph."""
        # Empty, so that code which does not ask __torch_function__ fails.
        own = torch.empty(0, device="cpu", requires_grad=True).as_subclass(Own)
        own.call, own.leaves, own.plain, own.before = call, leaves, plain, before
        return own

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        values, structure = tree_flatten((args, kwargs or {}))
        owns = [v for v in values if isinstance(v, Own)]
        others = [v for v in values if isinstance(v, Tensor) and not isinstance(v, Own)]

        def run(change: Callable[[Own], Tensor]) -> Any:
            given = [change(v) if isinstance(v, Own) else v for v in values]
            inner, options = tree_unflatten(given, structure)
            return func(*inner, **options)

        first = owns[0]
        call = first.call
        if func in _LENDING and not isinstance(args[0], Own):
            return run(lambda own: own.plain.detach())
        dims = [] if func in _LENDING else [call.find_batch(v, func) for v in others]
        if all(dim is None for dim in dims):
            foreign = func not in _LENDING and any(v.requires_grad for v in others)
            if foreign or any(own.call is not call for own in owns):
                raise call.uncovered(f"{_name(func)} with what depends on other parameters")
            touched = [*others, *(own.plain for own in owns)]
            versions = [v._version for v in touched]
            with torch.set_grad_enabled(torch.is_grad_enabled() or call.dims.probing):
                result = run(lambda own: own.plain)
            if versions != [v._version for v in touched]:
                raise call.uncovered(f"{_name(func)}, which changes a tensor in place")
            before = first.plain if func in _EXPANDING else None
            return tree_map_only(
                Tensor,
                lambda v: Own.of(v, call, first.leaves, before) if v.requires_grad else v,
                result,
            )
        if func in FUNCTIONS and all(own.parameter is not None for own in owns):
            both = zip(others, dims, strict=True)
            if any(v.requires_grad and d is None and not v.is_leaf for v, d in both):
                raise call.uncovered(f"{_name(func)} with what depends on other parameters")
            given = [v.parameter if isinstance(v, Own) else v for v in values]
            inner, options = tree_unflatten(given, structure)
            if (result := FUNCTIONS[func](call, *inner, **options)) is not NotImplemented:
                return result
        known = func in _ELEMENTWISE | _JOINING | _OF_MATRICES
        if not known or (func.__name__[-1] == "_" and args[0] is first):
            raise call.uncovered(_name(func))
        # The batch's place, counted from the last dimension: sizes are aligned there.
        places = {v.ndim - dim for v, dim in zip(others, dims, strict=True) if dim is not None}
        place = places.pop()
        apart = not places
        if func in _JOINING:
            apart = apart and _beside(place, first.ndim, *args[1:], **kwargs or {})
        elif func in _OF_MATRICES:
            apart = apart and place > 2 and all(own.ndim > 1 for own in owns)
        if not apart:
            raise call.uncovered(f"{_name(func)} along the batch")
        return run(lambda own: own.met(place))

    def met(self, place: int) -> Tensor:
        """Return the value with a copy for each sample in the dimension `place` from the end."""
        target, call = self.plain, self.call
        dim = target.ndim - place
        shape = [1] * -dim + list(target.shape)
        dim = max(dim, 0)
        if shape[dim] != 1:
            shape[dim] = 1
            target = self._unexpanded(shape)

        def gradients(grads: Tensor) -> Gradients:
            return self._of_parameters(target, grads.movedim(dim, 0))

        value = target.detach().view(shape)
        copies = value.expand(*shape[:dim], call.batch, *shape[dim + 1 :])
        return call.tap(call.dims.apart(copies, dim), gradients)

    def whole(self) -> Tensor:
        """Return the value for other layers: it must have been expanded to the batch."""
        dim = self.call.find_batch(self.plain)
        if dim is None:
            raise self.call.uncovered("a layer that takes it without a batch")
        return self.met(self.ndim - dim)

    def _unexpanded(self, shape: list[int]) -> Tensor:
        """Return the value before it was expanded to the batch, in this shape."""
        if self.before is not None:
            before = self.before
            if before.shape == torch.Size(shape):
                return before
            if all(n in (1, m) for n, m in zip(before.shape[::-1], shape[::-1], strict=False)):
                return before.expand(shape)
        raise self.call.uncovered(f"a shape of {tuple(self.shape)}, with the batch in it")

    def _of_parameters(self, target: Tensor, grads: Tensor) -> Gradients:
        """Yield the parameters' gradients from those of a function of them, batch first."""
        each = grads.reshape(len(grads), *target.shape).to(target.dtype)
        found: Sequence[tuple[Tensor, Tensor | None]] = [(target, each)]
        if target not in self.leaves:
            leaves = list(self.leaves)
            of_leaves = torch.autograd.grad(
                target, leaves, each, True, is_grads_batched=True, allow_unused=True
            )
            found = list(zip(leaves, of_leaves, strict=True))
        for leaf, gradient in found:
            of = self.leaves[leaf]
            if gradient is not None and isinstance(of, nn.Parameter):
                yield of, Dense(gradient.to(wide(of.dtype)))
            elif gradient is not None and not isinstance(of, nn.Parameter):
                yield from of(gradient)


def run_own(layer: nn.Module, call: "Call", *args: Any, **kwargs: Any) -> Any:
    """Run a layer by its class's forward, its own parameters as `Own` tensors: a rule."""
    leaves: Leaves = {}
    trained = owned(layer)
    try:
        for holder, name, parameter in trained:
            leaf = leaf_of(parameter.detach(), call)
            leaves[leaf] = parameter
            holder.__dict__[name] = Own.of(leaf, call, leaves)  # found before the parameter
        output = type(layer).forward(layer, *args, **kwargs)
        return tree_map_only(Own, Own.whole, output)
    finally:
        for holder, name, _ in trained:
            holder.__dict__.pop(name, None)


def owned(layer: nn.Module) -> list[tuple[nn.Module, str, nn.Parameter]]:
    """Return the parameters to train of a layer and its lists and dicts of them, by holder."""
    lists = (v for v in layer.children() if isinstance(v, nn.ParameterList | nn.ParameterDict))
    return [
        (holder, name, parameter)
        for holder in (layer, *lists)
        for name, parameter in holder._parameters.items()
        if parameter is not None and parameter.requires_grad
    ]


def leaf_of(values: Tensor, call: "Call") -> Tensor:
    """Return values as a leaf, to which no backward pass of a loss may come: only `Own` asks it."""

    def refuse(_: Tensor) -> None:
        raise call.uncovered("a function in place")

    leaf = values.detach().requires_grad_()
    leaf.register_post_accumulate_grad_hook(refuse)  # type: ignore[no-untyped-call]
    return leaf


def _beside(place: int, rank: int, dim: int = 0, axis: int | None = None, **_: Any) -> bool:
    """Tell whether a dimension is another than the batch's."""
    return (dim if axis is None else axis) % rank != rank - place


def _name(func: Any) -> str:
    return getattr(func, "__name__", str(func))
