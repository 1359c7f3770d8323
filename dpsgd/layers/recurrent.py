"""Recurrent layers: all steps forward, and backward by hand through linear maps of their gates.

Autograd would make a node of every operation of every step. Here a step is one product of
matrices and a few operations in place; the gradients of the gates of all steps, kept together, are
output gradients of two linear maps: of the inputs and of the states before.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

from dpsgd.clipping.clipped_sums import Gradients, Piece
from dpsgd.clipping.taps import Call
from dpsgd.gradients.precision import exact
from dpsgd.layers.linear import linear_gradients
from dpsgd.layers.registry import rule
from ldp import InvalidInput

_Layer = nn.RNNBase | nn.RNNCellBase
_States = tuple[Tensor, ...]


@rule(nn.RNN, nn.LSTM, nn.GRU)
def recurrent(
    layer: nn.RNN | nn.LSTM | nn.GRU,
    call: Call,
    input: Tensor,  # noqa: A002
    hx: Tensor | tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor]]:
    """Run a recurrent layer on a padded batch.

    Raises `InvalidInput` for packed sequences: pad them.
    """
    if not isinstance(input, Tensor) or input.ndim != 3:
        raise InvalidInput(f"{call.name}: expected a padded batch of sequences, a tensor of rank 3")
    if isinstance(layer, nn.LSTM) and layer.proj_size:
        raise InvalidInput(f"{call.name}: proj_size is not supported, got {layer.proj_size}")
    call.batch_dim(input, only=0 if layer.batch_first else 1)
    steps = input.transpose(0, 1) if layer.batch_first else input  # (T, b, d)
    ways = 2 if layer.bidirectional else 1
    states = _states(layer, hx, (layer.num_layers * ways, call.batch), input)
    layer.check_forward_args(input, states if len(states) > 1 else states[0], None)
    finals: list[_States] = []
    for depth in range(layer.num_layers):
        if depth and layer.dropout and layer.training:
            steps = F.dropout(steps, layer.dropout)
        outputs = []
        for way in range(ways):
            first = tuple(state[depth * ways + way] for state in states)
            suffix = f"_l{depth}{'_reverse' if way else ''}"
            run, final = _unrolled(layer, call, suffix, steps, first, bool(way))
            outputs.append(run)
            finals.append(final)
        steps = torch.cat(outputs, 2) if ways > 1 else outputs[0]
    output = steps.transpose(0, 1) if layer.batch_first else steps
    last = tuple(torch.stack(parts) for parts in zip(*finals, strict=True))
    return output, last[0] if len(last) == 1 else (last[0], last[1])


@rule(nn.RNNCell, nn.LSTMCell, nn.GRUCell)
def recurrent_cell(
    layer: nn.RNNCell | nn.LSTMCell | nn.GRUCell,
    call: Call,
    input: Tensor,  # noqa: A002
    hx: Tensor | tuple[Tensor, Tensor] | None = None,
) -> Tensor | _States:
    """Run one step, of a batch (b, d)."""
    if input.ndim != 2:
        raise InvalidInput(f"{call.name}: expected an input of rank 2, got {tuple(input.shape)}")
    call.batch_dim(input, only=0)
    state = _states(layer, hx, (call.batch,), input)
    if hx is not None:
        for value in state:
            call.batch_dim(value, only=0)
    _, last = _unrolled(layer, call, "", input[None], state, reverse=False)
    return last if len(last) > 1 else last[0]


def _states(
    layer: _Layer, hx: Tensor | _States | None, sizes: tuple[int, ...], like: Tensor
) -> _States:
    """Return the given states, or zeros."""
    if hx is None:
        start = like.new_zeros(*sizes, layer.hidden_size)
        return (start, start) if isinstance(layer, nn.LSTM | nn.LSTMCell) else (start,)
    return hx if isinstance(hx, tuple) else (hx,)


def _unrolled(
    layer: _Layer, call: Call, suffix: str, steps: Tensor, state: _States, reverse: bool
) -> tuple[Tensor, _States]:
    """Return the outputs of steps (T, b, d), and the state after the last."""
    pieces = [
        None if value is None else Piece(value)
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        for value in (getattr(layer, kind + suffix, None),)
    ]
    dtype, device = steps.dtype, steps.device.type
    if torch.is_autocast_enabled(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    values = (value.to(dtype) for value in (steps, *state))
    outputs, *others = _Recurrence.apply(  # type: ignore[no-untyped-call]
        call.anchor, call, _cell(layer), pieces, reverse, *values
    )
    return outputs, (outputs[0 if reverse else -1], *others)


class _Recurrence(torch.autograd.Function):
    """A layer in one direction, whose backward books the gradients of its parameters."""

    @staticmethod
    def forward(
        ctx: Any,
        anchor: Tensor,
        call: Call,
        cell: "_Cell",
        pieces: Sequence[Piece | None],
        reverse: bool,
        steps: Tensor,
        *state: Tensor,
    ) -> _States:
        weight, matrix, bias, shift = (
            None if piece is None else piece.value.to(steps.dtype) for piece in pieces
        )
        assert weight is not None
        assert matrix is not None
        if bias is not None and shift is not None and not cell.apart:
            bias = bias + shift
        gates = F.linear(steps.flatten(0, 1), weight, bias).view(*steps.shape[:2], len(weight))
        kept = cell.forward(gates, matrix, shift, state, reverse)
        ctx.save_for_backward(weight, matrix, steps, *state, *kept)
        ctx.call, ctx.cell, ctx.pieces, ctx.reverse = call, cell, pieces, reverse
        return kept[0], *(values[0 if reverse else -1].clone() for values in kept[1 : len(state)])

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *grads: Tensor) -> Any:
        weight, matrix, steps, *others = ctx.saved_tensors
        state, kept = others[: len(grads)], others[len(grads) :]
        outputs, start = kept[0], state[0][None]
        before = [outputs[1:], start] if ctx.reverse else [start, outputs[:-1]]
        with exact(weight.device.type):
            of_steps, of_states, first = ctx.cell.backward(kept, matrix, state, grads, ctx.reverse)
            ctx.call.book(_gradients(ctx.pieces, steps, of_steps, torch.cat(before), of_states))
            of_inputs = None
            if ctx.needs_input_grad[5]:
                of_inputs = (of_steps.flatten(0, 1) @ weight).view(steps.shape)
        return None, None, None, None, None, of_inputs, *first


def _gradients(
    pieces: Sequence[Piece | None],
    steps: Tensor,
    of_steps: Tensor,
    before: Tensor,
    of_states: Tensor,
) -> Gradients:
    weight, matrix, bias, shift = pieces
    assert weight is not None
    assert matrix is not None
    yield from linear_gradients(weight, bias, steps, of_steps, 1)
    yield from linear_gradients(matrix, shift, before, of_states, 1)


class _Cell(ABC):
    """The steps of a kind of layer, as functions of a linear map of inputs and one of states."""

    apart = False
    """Whether the maps do more than add up."""

    @abstractmethod
    def forward(
        self, gates: Tensor, matrix: Tensor, shift: Tensor | None, state: _States, reverse: bool
    ) -> _States:
        """Take the maps of inputs (T, b, p), and overwrite them.

        Return what the backward needs: all outputs first, then the others of the state.
        """

    @abstractmethod
    def backward(
        self, kept: _States, matrix: Tensor, state: _States, grads: _States, reverse: bool
    ) -> tuple[Tensor, Tensor, _States]:
        """Return the gradients of the map of inputs, of that of states, and of the first state."""


class _Rnn(_Cell):
    def __init__(self, relu: bool) -> None:
        self._relu = relu

    def forward(
        self, gates: Tensor, matrix: Tensor, shift: Tensor | None, state: _States, reverse: bool
    ) -> _States:
        (h,) = state
        for (gate,) in _in_time(reverse, gates):
            gate.addmm_(h, matrix.T)
            h = gate.relu_() if self._relu else gate.tanh_()
        return (gates,)

    def backward(
        self, kept: _States, matrix: Tensor, state: _States, grads: _States, reverse: bool
    ) -> tuple[Tensor, Tensor, _States]:
        (outputs,) = kept
        found = (outputs > 0).to(outputs.dtype) if self._relu else _slope_of_tanh(outputs)
        dh = torch.zeros_like(state[0])
        for gate, grad in _in_time(not reverse, found, grads[0]):
            torch.mm(gate.mul_(dh.add_(grad)), matrix, out=dh)
        return found, found, (dh,)


class _Lstm(_Cell):
    def forward(
        self, gates: Tensor, matrix: Tensor, shift: Tensor | None, state: _States, reverse: bool
    ) -> _States:
        h, c = state
        outputs, cells = (gates.new_empty(*gates.shape[:2], h.shape[1]) for _ in range(2))
        views = gates, gates[..., : 2 * h.shape[1]], *gates.chunk(4, 2), outputs, cells
        for gate, both, i, f, g, o, output, cell in _in_time(reverse, *views):
            gate.addmm_(h, matrix.T)
            both.sigmoid_()
            g.tanh_()
            o.sigmoid_()
            torch.mul(f, c, out=cell).addcmul_(i, g)
            torch.tanh(cell, out=output).mul_(o)
            h, c = output, cell
        return outputs, cells, gates

    def backward(
        self, kept: _States, matrix: Tensor, state: _States, grads: _States, reverse: bool
    ) -> tuple[Tensor, Tensor, _States]:
        _, cells, gates = kept
        dh, dc = torch.zeros_like(state[0]), grads[1].clone()
        found = torch.empty_like(gates)
        *by_c, by_h = found.chunk(4, 2)
        together = found[..., : -dh.shape[1]].unflatten(2, (3, -1))
        views = gates, *gates.chunk(4, 2), found, *by_c, by_h, together, cells, grads[0]
        steps = _in_time(not reverse, *views)
        before = [*(step[-2] for step in steps[1:]), state[1]]
        one = torch.ones_like(dc)
        for (gate, i, f, g, o, d, di, df, dg, do, difg, cell, grad), c in zip(steps, before, strict=True):
            torch.addcmul(gate, gate, gate, value=-1, out=d)
            torch.addcmul(one, g, g, value=-1, out=dg)
            squashed = cell.tanh()
            dh.add_(grad)
            do.mul_(squashed).mul_(dh)
            dc.addcmul_(dh.mul_(o), torch.addcmul(one, squashed, squashed, value=-1))
            di.mul_(g)
            df.mul_(c)
            dg.mul_(i)
            difg.mul_(dc[:, None])
            dc.mul_(f)
            torch.mm(d, matrix, out=dh)
        return found, found, (dh, dc)


class _Gru(_Cell):
    apart = True

    def forward(
        self, gates: Tensor, matrix: Tensor, shift: Tensor | None, state: _States, reverse: bool
    ) -> _States:
        (h,) = state
        size = h.shape[1]
        shift = gates.new_zeros(()) if shift is None else shift
        outputs, recalled = torch.empty_like(gates[..., :size]), torch.empty_like(gates[..., :size])
        views = gates[..., : 2 * size], *gates.chunk(3, 2), recalled, outputs
        for both, r, z, n, memory, output in _in_time(reverse, *views):
            mapped = torch.addmm(shift, h, matrix.T)
            both.add_(mapped[:, : 2 * size]).sigmoid_()
            memory.copy_(mapped[:, 2 * size :])
            n.addcmul_(r, memory).tanh_()
            h = torch.lerp(n, h, z, out=output)
        return outputs, recalled, gates

    def backward(
        self, kept: _States, matrix: Tensor, state: _States, grads: _States, reverse: bool
    ) -> tuple[Tensor, Tensor, _States]:
        outputs, recalled, gates = kept
        size = outputs.shape[2]
        dh = torch.zeros_like(state[0])
        # The map of states first: n, r, z; and that of inputs last: r, z, n.
        found = gates.new_empty(*gates.shape[:2], 4 * size)
        rolled = matrix.roll(size, 0)
        both = gates[..., : 2 * size]
        views = both, *gates.chunk(3, 2), recalled, outputs, found[..., : 3 * size]
        views += found[..., size : 3 * size], *found.chunk(4, 2), grads[0]
        steps = _in_time(not reverse, *views)
        before = [*(step[5] for step in steps[1:]), state[0]]
        one = torch.ones_like(dh)
        for (rz, r, z, n, memory, _, d, drz, dm, dr, dz, dn, grad), h in zip(steps, before, strict=True):
            dh.add_(grad)
            through = dh * z
            torch.addcmul(rz, rz, rz, value=-1, out=drz)
            dz.mul_(h - n).mul_(dh)
            torch.addcmul(one, n, n, value=-1, out=dn).mul_(dh.sub_(through))
            torch.mul(dn, r, out=dm)
            dr.mul_(memory).mul_(dn)
            torch.addmm(through, d, rolled, out=dh)
        return found[..., size:], found[..., : 3 * size].roll(-size, 2), (dh,)


def _cell(layer: _Layer) -> _Cell:
    if isinstance(layer, nn.LSTM | nn.LSTMCell):
        return _Lstm()
    if isinstance(layer, nn.GRU | nn.GRUCell):
        return _Gru()
    return _Rnn(layer.nonlinearity == "relu")


def _in_time(reverse: bool, *values: Tensor) -> list[_States]:
    """Return the parts of values for each step, in the order of time or against it."""
    together = list(zip(*(value.unbind(0) for value in values), strict=True))
    return together[::-1] if reverse else together


def _slope_of_tanh(values: Tensor) -> Tensor:
    return torch.addcmul(torch.ones_like(values), values, values, value=-1)
