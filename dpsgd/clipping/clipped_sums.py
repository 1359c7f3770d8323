"""One backward pass that yields the sum of clipped gradients: book-keeping.

While gradients are enabled the layers of a module run by their rules (`dpsgd.layers`): with
weights that autograd does not see, and with their outputs tapped (`dpsgd.clipping.taps`). A
backward pass then computes the gradients of activations only; as it passes a tap, the layer's
inputs and output gradients are booked as per-sample gradients of its parameters. When it has
ended they are clipped and summed. No gradient of the batch ever stands in `.grad`.

Source: Bu, Wang, Zha and Karypis, "Differentially private optimization on large model at small
cost", ICML 2023, algorithm 1.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from dpsgd.clipping.policies import ClippingPolicy
from dpsgd.gradients.batch_dims import BatchDims
from dpsgd.gradients.persample import Dense, PerSample, least_square, new_totals, norms_of
from dpsgd.gradients.precision import exact
from ldp import InvalidInput


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows start..stop-1 of a parameter, or all of it; rows of one parameter are disjoint."""

    parameter: Tensor
    start: int = 0
    stop: int | None = None

    @property
    def key(self) -> tuple[int, int, int | None]:
        """The identity of the parameter slice."""
        return id(self.parameter), self.start, self.stop

    @property
    def shape(self) -> torch.Size:
        """The shape of the piece."""
        rows = self.parameter.shape[0] if self.stop is None else self.stop - self.start
        return (
            torch.Size((rows, *self.parameter.shape[1:])) if self.parameter.ndim else torch.Size()
        )

    @property
    def dtype(self) -> torch.dtype:
        """The type to take gradients in: float32, or the parameter's if that is wider."""
        return _wide(self.parameter.dtype)

    @property
    def value(self) -> Tensor:
        """The piece's values, which autograd does not follow."""
        values = self.parameter.detach()
        return values if self.stop is None else values[self.start : self.stop]


@cache
def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


Gradients = Iterable[tuple[Piece, PerSample]]
_Booked = dict[tuple[int, int, int | None], tuple[Piece, PerSample]]


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
        self._names = {id(p): name for name, p in module.named_parameters()}
        self._sums: dict[int, Tensor] = {}
        self._booked: _Booked = {}
        self._booked_batch: int | None = None
        self._booking: int | None = None  # id of the backward pass
        self.drawn = 0  # number of batches begun
        self.seen = 0  # number of the last with which a layer was called
        self.anchor = torch.zeros((), device=self.parameters[0].device, requires_grad=True)
        self.dims = BatchDims(module, batch_dim)
        for parameter in self.parameters:
            parameter.register_hook(self._refusal(self._names[id(parameter)]))  # type: ignore[no-untyped-call]

    def take_sums(self) -> list[Tensor]:
        """Return the sums of clipped gradients since the last call, and start anew."""
        sums = [
            self._sums[id(p)] if id(p) in self._sums else p.new_zeros(p.shape, dtype=Piece(p).dtype)
            for p in self.parameters
        ]
        self._sums = {}
        return sums

    def book(self, name: str, batch: int, gradients: Gradients) -> None:
        """Add per-sample gradients of a layer; called while a backward pass walks the taps."""
        walk = torch._C._current_graph_task_id()
        if walk != self._booking:
            self._forget()  # an earlier pass that failed
            self._booking = walk
        if self._booked_batch is None:
            torch.autograd.Variable._execution_engine.queue_callback(self._settle)
        elif self._booked_batch != batch:
            first = self._forget()
            raise InvalidInput(
                f"a backward pass must see batches of one size, got {first} and {batch} samples"
            )
        self._booked_batch = batch
        for piece, gradient in gradients:
            if id(piece.parameter) not in self._names:
                raise InvalidInput(
                    f"{name}: has another parameter than when make_private was called: change "
                    "values in place, by load_state_dict without assign"
                )
            if piece.parameter.device != self.anchor.device:
                raise InvalidInput(
                    f"{name}: was on {self.anchor.device} when make_private was called, and is on "
                    f"{piece.parameter.device}: move the module before"
                )
            key = piece.key
            if key in self._booked:
                gradient = self._booked[key][1].merge(gradient)
            self._booked[key] = piece, gradient

    def begin(self, batch: int) -> None:
        """Begin another batch; backward passes of earlier forwards are refused from now on."""
        self.drawn += 1
        self.dims.draw(batch)

    def _forget(self) -> int | None:
        batch = self._booked_batch
        self._booked, self._booked_batch = {}, None
        return batch

    def _refusal(self, name: str) -> Callable[[Tensor], None]:
        def refuse(_gradient: Tensor) -> None:
            self._forget()
            raise InvalidInput(
                f"{name} was used outside the forward of its layer, where its gradient cannot be "
                "clipped by sample: call the layer, or keep the parameter in a module of its own"
            )

        return refuse

    def _settle(self) -> None:
        """Clip and sum the booked gradients; called when the backward pass has ended."""
        booked = self._booked
        batch = self._forget()
        if batch is None:  # the pass was given up
            return
        if not self._expect(batch):
            return
        with exact(self.anchor.device.type):
            self._add(_disjoint(booked), batch, float(batch) if self._mean else 1.0)

    def _add(self, booked: _Booked, batch: int, scale: float) -> None:
        groups = {key: self.policy.group(self._names[key[0]]) for key in booked}
        # Products of small norms, and of small gradients in weighted sums, may be rounded to zero:
        # no norm is taken to be less than this.
        least = least_square(len(booked), torch.float32)
        squares = new_totals((self.policy.groups, batch), self.anchor.device)
        for key, (_, gradients) in booked.items():
            gradients.add_squared_norms(squares[groups[key]])
        types = {piece.dtype for piece, _ in booked.values()}
        # Factors are rounded down in the type of norms, and may be rounded up in a narrower one.
        narrowest = torch.float32 if torch.float32 in types else torch.float64
        norms, finite = norms_of(squares, least, scale, narrowest)
        if not finite:
            bad = ~norms.isfinite().all(0)
            norms = norms.masked_fill(bad, 0)
            booked = {key: (piece, g.without(bad)) for key, (piece, g) in booked.items()}
        scaled = self.policy.factors(norms) * scale
        factors = {dtype: scaled.to(dtype).unbind() for dtype in types}
        while booked:
            key, (piece, gradients) = booked.popitem()
            own = factors[piece.dtype][groups[key]]
            self._accumulate(piece, gradients.weighted_sum(own))

    def _accumulate(self, piece: Piece, summed: Tensor) -> None:
        parameter = piece.parameter
        total = self._sums.get(id(parameter))
        if total is None and piece.stop is None:
            self._sums[id(parameter)] = summed.contiguous()
            return
        if total is None:
            total = self._sums[id(parameter)] = summed.new_zeros(parameter.shape)
        target = total if piece.stop is None else total[piece.start : piece.stop]
        target += summed.view(target.shape)


def _disjoint(booked: _Booked) -> _Booked:
    """Return the bookings, with row pieces merged into parameters also used as a whole."""
    whole = {parameter for parameter, _, stop in booked if stop is None}
    if len(whole) == len(booked):
        return booked
    apart: _Booked = {}
    for piece, gradients in booked.values():
        if piece.stop is not None and id(piece.parameter) in whole:
            rows = gradients.dense()
            filled = rows.new_zeros(len(rows), *piece.parameter.shape)
            filled[:, piece.start : piece.stop] = rows
            piece, gradients = Piece(piece.parameter), Dense(filled)
        if piece.key in apart:
            gradients = apart[piece.key][1].merge(gradients)
        apart[piece.key] = piece, gradients
    return apart
