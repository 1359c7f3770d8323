"""Taps: a layer's outputs, whose backward books per-sample gradients of the layer's parameters."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from dpsgd.clipping.clipped_sums import Bookkeeper, Gradients, wide
from dpsgd.clipping.own import Own
from dpsgd.gradients.batch_dims import in_backward
from dpsgd.gradients.precision import exact
from ldp import InvalidInput

Rule = Callable[..., Any]
"""Runs a layer: rule(layer, call, *args, **kwargs) returns layer(*args, **kwargs), tapped."""


def tap_layers(
    keeper: Bookkeeper,
    rules: Mapping[nn.Module, Rule],
    fallback: Callable[[nn.Module, nn.Module], Rule],
) -> None:
    """Run the layers of the keeper's module by these rules: one for each that is to be trained.

    `fallback(module, layer)` is the rule of a layer that its own rule cannot run; it runs the
    layers inside, too.
    """
    names = {layer: name or "the module" for name, layer in keeper.module.named_modules()}
    for layer in rules:
        usual = getattr(layer.forward, "__func__", None) is type(layer).forward
        if not usual and not isinstance(layer.forward, _Tapped):
            raise InvalidInput(
                f"{names[layer]} has a forward of its instance's own, which no rule knows: give "
                "it a class of its own; accelerate prepares a module after make_private"
            )
    # nn.Module looks `forward` up on the instance first. Others may wrap it there later.
    tapped = {layer: _Tapped(keeper, layer, rule, names[layer]) for layer, rule in rules.items()}
    for layer, forward in tapped.items():
        layer.forward = forward

    def by_sample(layer: nn.Module) -> None:
        rule = fallback(keeper.module, layer)
        for part in tapped.keys() & set(layer.modules()):
            tapped[part].rule = rule if part is layer else None

    keeper.dims.by_sample = by_sample


class Call:
    """One call of a layer: finds its rule's batch dimensions, and books its gradients."""

    def __init__(self, keeper: Bookkeeper, layer: nn.Module, name: str) -> None:
        self._keeper = keeper
        self._layer = layer
        self.name = name
        self.dims = keeper.dims
        self.batch, self._number = keeper.dims.begin(layer, name)
        self.anchor = keeper.anchor  # requires a gradient
        self._drawn = keeper.drawn
        self._inputs = 0
        self._again = in_backward()

    def find_batch(self, value: Tensor, use: object = None) -> int | None:
        """Return the batch dimension of an input, or None. `use` is by what function it is used."""
        self._inputs += 1
        place = self._layer, self._layer.training, use, self._inputs
        return self.dims.find((self._number, place), value, self.name)

    def batch_dim(self, value: Tensor, *, only: int | None = None) -> int:
        """Return the batch dimension of an input, which must be `only` if that is given."""
        dim = self.find_batch(value)
        if self.dims.probing and only is not None:
            dim = only if value.ndim > only and value.shape[only] == self.batch else None
        if dim is None or only not in (None, dim):
            place = "a dimension" if only is None else f"dimension {only}"
            raise InvalidInput(
                f"{self.name}: its input has shape {tuple(value.shape)}, expected the "
                f"{self.batch} samples to be {place} of it"
            )
        return dim

    def uncovered(self, use: str) -> InvalidInput:
        """Return the error for a use of the layer's own parameters that no rule covers.

        As samples are tried nobody sees it: the layer is run by sample from then on.
        """
        self.dims.uncovered = self._layer
        return InvalidInput(
            f"{self.name}: a parameter of its own is used in {use}, other than when it was tried "
            "on samples of the first batch"
        )

    def tap(self, output: Tensor, gradients: Callable[..., Gradients], *saved: Tensor) -> Tensor:
        """Return the output, tapped: its gradient g will book gradients(g, *saved).

        Both come in float32 or wider. A saved tensor that is modified in between is an error.
        """
        if not torch.is_grad_enabled():
            return output
        if output._is_view():
            output = output.clone()  # or autograd would copy the gradients of its base
        saved = tuple(s.detach() for s in saved)
        tapped: Tensor = _Tap.apply(  # type: ignore[no-untyped-call]
            self.anchor, output, self, gradients, *saved
        )
        return tapped

    def book(self, gradients: Gradients) -> None:
        """Book per-sample gradients, during the backward pass."""
        if self._again:
            raise InvalidInput(
                f"{self.name}: a backward pass within the backward pass would clip its gradients "
                "apart from the others: checkpoint with use_reentrant=False"
            )
        if self._drawn != self._keeper.drawn:
            raise InvalidInput(
                f"{self.name}: this backward pass is of a batch before the last that was drawn: "
                "call backward before the next is drawn, and keep nothing with a gradient"
            )
        self._keeper.book(self.name, self.batch, gradients)


class _Tap(torch.autograd.Function):
    """The identity function, whose backward books per-sample gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        output: Tensor,
        call: Call,
        gradients: Callable[..., Gradients],
        *saved: Tensor,
    ) -> Tensor:
        # The anchor requires a gradient, so that autograd comes by where no input does. The
        # output is the same tensor, not a view, so that later code may work in place.
        ctx.mark_dirty(output)
        ctx.save_for_backward(*saved)
        ctx.call = call
        ctx.gradients = gradients
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (gradient,) = grads
        dtype = wide(gradient.dtype)
        saved = [v.to(dtype) if v.is_floating_point() else v for v in ctx.saved_tensors]
        with exact(gradient.device.type):
            ctx.call.book(ctx.gradients(gradient.to(dtype), *saved))
        return (None, gradient, None, None, *[None] * len(saved))


class _Tapped:
    """A layer's forward: by its rule where gradients are enabled, if it has one; else its class's.

    In a copy of a module, and in a file, the layer is an ordinary one again.
    """

    def __init__(self, keeper: Bookkeeper, layer: nn.Module, rule: Rule | None, name: str) -> None:
        self._keeper = keeper
        self._layer = layer
        self.rule = rule
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        keeper = self._keeper
        keeper.seen = keeper.drawn
        if self.rule is None or not (torch.is_grad_enabled() or keeper.dims.probing):
            return type(self._layer).forward(self._layer, *args, **kwargs)
        call = Call(keeper, self._layer, self._name)
        plain = all(type(value) is Tensor for value in (*args, *kwargs.values()))
        if not plain and any(isinstance(value, Own) for value in tree_leaves((args, kwargs))):
            args, kwargs = tree_map_only(Own, Own.whole, (args, kwargs))
        return self.rule(self._layer, call, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._layer, "forward")  # as yet without a tap, so the class's own
