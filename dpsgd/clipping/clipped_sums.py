"""One backward pass that yields the sum of clipped gradients: book-keeping.

While gradients are enabled the layers of a module run by their rules (`dpsgd.layers`): with
weights that autograd does not see, and with their outputs tapped (`dpsgd.clipping.taps`). A
backward pass computes the gradients of activations only; as it passes a tap, per-sample gradients
of the layer's parameters are booked. When it has ended they are clipped and summed. No gradient of
the batch ever stands in `.grad`.

Source: Bu, Wang, Zha and Karypis, "Differentially private optimization on large model at small
cost", ICML 2023, algorithm 1.
"""

from collections.abc import Callable, Iterable
from functools import cache

import torch
from torch import Tensor, nn

from dpsgd.clipping.policies import ClippingPolicy
from dpsgd.gradients.batch_dims import BatchDims
from dpsgd.gradients.persample import Dense, PerSample, least_square, merged
from dpsgd.gradients.precision import exact
from ldp import InvalidInput

Gradients = Iterable[tuple[Tensor, PerSample]]
"""Parameters, each with gradients of it; a parameter may come several times."""


@cache
def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the type to take gradients of such values in: float32, or `dtype` if it is wider."""
    return torch.promote_types(dtype, torch.float32)


class Bookkeeper:
    """Book per-sample gradients of a module, and keep the sum of the clipped ones.

    `loss_reduction` says how the loss combines the samples of a batch: "mean" or "sum".
    `expect(batch)` is called when a backward pass has ended; it raises where these samples were
    not drawn as the accountant assumes, and returns whether they count.
    """

    def __init__(
        self,
        module: nn.Module,
        policy: ClippingPolicy,
        *,
        loss_reduction: str,
        batch_dim: int,
        expect: Callable[[int], bool],
    ) -> None:
        self.policy = policy
        self.module = module
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self._mean = loss_reduction == "mean"
        self._expect = expect
        self._names: dict[Tensor, str] = {p: name for name, p in module.named_parameters()}
        self._sums: dict[Tensor, Tensor] = {}
        self._booked: dict[Tensor, list[PerSample]] = {}
        self._size: int | None = None  # of the batch of these bookings; None: there are none
        self._walk: int | None = None  # id of their backward pass
        self.drawn = 0  # number of batches begun
        self.seen = 0  # number of the last with which a layer was called
        self.anchor = torch.zeros((), device=self.parameters[0].device, requires_grad=True)
        self.dims = BatchDims(module, batch_dim)
        for parameter in self.parameters:
            parameter.register_hook(self._refusal(self._names[parameter]))  # type: ignore[no-untyped-call]

    def take_sums(self) -> list[Tensor]:
        """Return the sums of clipped gradients since the last call, and start anew."""
        sums = [
            self._sums[p] if p in self._sums else p.new_zeros(p.shape, dtype=wide(p.dtype))
            for p in self.parameters
        ]
        self._sums = {}
        return sums

    def book(self, name: str, batch: int, gradients: Gradients) -> None:
        """Add per-sample gradients of a layer; called while a backward pass walks the taps."""
        walk = torch._C._current_graph_task_id()
        if walk != self._walk or self._size is None:  # anew, also where an earlier pass failed
            self._booked, self._size, self._walk = {}, batch, walk
            torch.autograd.Variable._execution_engine.queue_callback(self._settle)
        elif self._size != batch:
            first, self._size = self._size, None
            raise InvalidInput(
                f"a backward pass must see batches of one size, got {first} and {batch} samples"
            )
        for parameter, gradient in gradients:
            if parameter not in self._names:
                raise InvalidInput(
                    f"{name}: has another parameter than when make_private was called: change "
                    "values in place, by load_state_dict without assign"
                )
            if parameter.device != self.anchor.device:
                raise InvalidInput(
                    f"{name}: was on {self.anchor.device} when make_private was called, and is on "
                    f"{parameter.device}: move the module before"
                )
            forms = self._booked.setdefault(parameter, [])
            if forms and isinstance(forms[-1], Dense) and isinstance(gradient, Dense):
                gradient = merged([forms.pop(), gradient])  # each would take as much memory
            forms.append(gradient)

    def begin(self, batch: int) -> None:
        """Begin another batch; backward passes of earlier forwards are refused from now on."""
        self.drawn += 1
        self.dims.draw(batch)

    def _refusal(self, name: str) -> Callable[[Tensor], None]:
        def refuse(_gradient: Tensor) -> None:
            self._size = None
            raise InvalidInput(
                f"{name} was used outside the forward of its layer, where its gradient cannot be "
                "clipped by sample: call the layer, or keep the parameter in a module of its own"
            )

        return refuse

    def _settle(self) -> None:
        """Clip and sum the booked gradients; called when the backward pass has ended."""
        forms, batch = self._booked, self._size
        self._booked, self._size = {}, None
        if batch is not None and self._expect(batch):
            with exact(self.anchor.device.type):
                booked = {parameter: merged(forms.pop(parameter)) for parameter in list(forms)}
                self._add(booked, batch, float(batch) if self._mean else 1.0)

    def _add(self, booked: dict[Tensor, PerSample], batch: int, scale: float) -> None:
        groups = {p: self.policy.group(self._names[p]) for p in booked}
        # Products of small norms, and of small gradients in weighted sums, may be rounded to zero:
        # no norm is taken to be less than this.
        least = least_square(len(booked), torch.float32)
        size, device = (self.policy.groups, batch), self.anchor.device
        squares = torch.full(size, least, dtype=torch.float64, device=device)
        for parameter, gradients in booked.items():
            gradients.add_squared_norms(squares[groups[parameter]])
        types = {wide(p.dtype) for p in booked}
        # Factors are rounded down in the type of norms, and may be rounded up in a narrower one.
        narrowest = torch.float32 if torch.float32 in types else torch.float64
        norms = squares.sqrt().mul_(scale).to(narrowest)
        # Not numbers, or so large that to clip them would take factors of few bits.
        bad = ~(squares <= torch.finfo(narrowest).max).all(0)
        if bad.any():
            norms = norms.masked_fill(bad, 0)
            booked = {p: gradients.without(bad) for p, gradients in booked.items()}
        scaled = self.policy.factors(norms) * scale
        factors = {dtype: scaled.to(dtype).unbind() for dtype in types}
        while booked:
            parameter, gradients = booked.popitem()
            own = factors[wide(parameter.dtype)][groups[parameter]]
            summed = gradients.weighted_sum(own)
            if parameter in self._sums:
                self._sums[parameter] += summed
            else:
                self._sums[parameter] = summed.contiguous()
