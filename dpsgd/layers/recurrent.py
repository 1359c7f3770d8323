"""Recurrent layers: all steps forward, and backward by hand through linear maps of their gates.

Autograd would make a node of every operation of every step. Here a step is one product of
matrices and a few operations in place; the gradients of the gates of all steps, kept together, are
output gradients of two linear maps: of the inputs and of the states before.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

from dpsgd.clipping.clipped_sums import Gradients, wide
from dpsgd.clipping.taps import Call
from dpsgd.gradients.persample import Outer
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
    """Run a recurrent layer on a padded batch."""
    if not isinstance(input, Tensor) or input.ndim != 3:
        raise InvalidInput(f"{call.name}: expected a padded batch of sequences, a tensor of rank 3")
    if isinstance(layer, nn.LSTM) and layer.proj_size:
        raise InvalidInput(f"{call.name}: proj_size is not supported, got {layer.proj_size}")
    call.batch_dim(input, only=0 if layer.batch_first else 1)
    steps = input.transpose(0, 1) if layer.batch_first else input  # (T, b, d)
    ways = 2 if layer.bidirectional else 1
    states = _states(layer, hx, (layer.num_layers * ways, call.batch), input)
    given: Any = states if len(states) > 1 else states[0]
    layer.check_forward_args(input, given, None)
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
    kinds = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if layer.bias else ()))
    weights = [getattr(layer, kind + suffix) for kind in kinds]
    dtype, device = steps.dtype, steps.device.type
    if torch.is_autocast_enabled(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    values = (value.to(dtype) for value in (steps, *state))
    outputs, *others = _Recurrence.apply(  # type: ignore[no-untyped-call]
        call.anchor, call, _cell(layer), weights, reverse, *values
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
        weights: Sequence[Tensor],
        reverse: bool,
        steps: Tensor,
        *state: Tensor,
    ) -> _States:
        weight, matrix, *biases = (w.detach().to(steps.dtype) for w in weights)
        length, batch = steps.shape[:2]
        apart = matrix.shape[1] if cell.apart else 0
        matrix = matrix.roll(apart, 0) if apart else matrix
        gates = steps.new_empty(length, batch, len(weight) + apart)
        bias = gates.new_zeros(gates.shape[2])
        if biases:
            bias[apart:] = biases[0]
            bias[: len(matrix)] += biases[1].roll(apart)
        gates[..., :apart] = bias[:apart]
        flat = gates.flatten(0, 1)[:, apart:]
        torch.addmm(bias[apart:], steps.flatten(0, 1), weight.T, out=flat)
        states = [first.new_empty(length + 1, *first.shape) for first in state]
        before, after = slice(length), slice(1, None)
        if reverse:
            before, after = after, before
        for values, first in zip(states, state, strict=True):
            values[-1 if reverse else 0] = first
        views = [values[which] for values in states for which in (before, after)]
        transposed = matrix.T.contiguous()
        recalled = gates[..., : len(matrix)]
        for gate, mapped, *parts in _in_time(reverse, gates, recalled, *views):
            mapped.addmm_(parts[0], transposed)
            cell.step(gate, *parts)
        ctx.save_for_backward(steps, weight, matrix, gates, *views)
        ctx.call, ctx.cell, ctx.weights, ctx.reverse = call, cell, weights, reverse
        return views[1].clone(), *(values[0 if reverse else -1].clone() for values in states[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        steps, weight, matrix, gates, *views = ctx.saved_tensors
        apart = gates.shape[2] - len(weight)
        of_steps, of_states = gates[..., apart:], gates[..., : len(matrix)]
        dh, *others = torch.zeros_like(views[0][0]), *(grad.clone() for grad in grads[1:])
        with exact(steps.device.type):
            parts = grads[0], gates, of_states, *views
            for grad, gate, mapped, *states in _in_time(not ctx.reverse, *parts):
                through = ctx.cell.back(gate, *states, dh.add_(grad), *others)
                torch.mm(mapped, matrix, out=dh)
                if through is not None:
                    dh += through
            of_states = of_states.roll(-apart, 2) if apart else of_steps
            ctx.call.book(_gradients(ctx.weights, steps, of_steps, views[0], of_states))
            flat = of_steps.flatten(0, 1)
            of_inputs = (flat @ weight).view(steps.shape) if ctx.needs_input_grad[5] else None
        return None, None, None, None, None, of_inputs, dh, *others


def _gradients(
    weights: Sequence[Tensor], steps: Tensor, of_steps: Tensor, states: Tensor, of_states: Tensor
) -> Gradients:
    weight, matrix = weights[:2]
    bias, shift = weights[2:] or (None, None)
    dtype, alike = wide(weight.dtype), of_steps is of_states
    steps, of_steps, states, of_states = (v.to(dtype) for v in (steps, of_steps, states, of_states))
    found = [
        *linear_gradients(weight, bias, steps, of_steps, 1),
        *linear_gradients(matrix, shift, states, of_states, 1),
    ]
    forms = [form for _, form in found if isinstance(form, Outer)]
    if alike and len(forms) == 2:
        forms[1].gram = forms[0].gram
    return found


class _Cell(NamedTuple):
    """One step, from gates (b, p): the sum of a linear map of the inputs and one of the outputs.

    With `apart` the last of the outputs' map is not in that sum, and comes first instead.
    """

    step: Callable[..., None]
    """step(gates, *states) writes each state after the step, from the one before.

    The gates may change.
    """
    back: Callable[..., Tensor | None]
    """back(gates, *states, *grads) overwrites what `step` left of the gates with their gradients.

    `grads` are those of the states after the step; all but the outputs' are overwritten with those
    before it. It returns what the outputs' before has apart from the gates'.
    """
    apart: bool = False


def _tanh_step(gates: Tensor, _: Tensor, h: Tensor) -> None:
    torch.tanh(gates, out=h)


def _tanh_back(gates: Tensor, _: Tensor, h: Tensor, dh: Tensor) -> None:
    torch.addcmul(dh, dh * h, h, value=-1, out=gates)


def _relu_step(gates: Tensor, _: Tensor, h: Tensor) -> None:
    torch.clamp_min(gates, 0, out=h)


def _relu_back(gates: Tensor, _: Tensor, h: Tensor, dh: Tensor) -> None:
    torch.mul(h > 0, dh, out=gates)


def _lstm_step(gates: Tensor, _: Tensor, h: Tensor, before: Tensor, c: Tensor) -> None:
    i, f, g, o = gates.chunk(4, 1)
    gates[:, : 2 * h.shape[1]].sigmoid_()
    g.tanh_()
    o.sigmoid_()
    torch.mul(f, before, out=c).addcmul_(i, g)
    torch.tanh(c, out=h).mul_(o)


def _lstm_back(
    gates: Tensor, _: Tensor, h: Tensor, before: Tensor, c: Tensor, dh: Tensor, dc: Tensor
) -> None:
    i, f, g, o = gates.chunk(4, 1)
    # Products with 1 - i, 1 - f and 1 - o are the slopes of sigmoids, 1 - g g that of tanh.
    dc.addcmul_(dh, torch.addcmul(o, h, c.tanh(), value=-1))
    torch.addcmul(h, h, o, value=-1, out=o).mul_(dh)
    new, old = i * g, f * before
    torch.addcmul(i, new, g, value=-1, out=g).mul_(dc)
    torch.addcmul(new, new, i, value=-1, out=i).mul_(dc)
    torch.addcmul(old, old, f, value=-1, out=old).mul_(dc)
    dc.mul_(f)
    f.copy_(old)


def _gru_step(gates: Tensor, before: Tensor, h: Tensor) -> None:
    recalled, r, z, n = gates.chunk(4, 1)  # of which recalled is the outputs' part of n
    gates[:, h.shape[1] : -h.shape[1]].sigmoid_()
    n.addcmul_(r, recalled).tanh_()
    torch.lerp(n, before, z, out=h)


def _gru_back(gates: Tensor, before: Tensor, _: Tensor, dh: Tensor) -> Tensor:
    recalled, r, z, n = gates.chunk(4, 1)
    through = dh * z
    torch.addcmul(through, through, z, value=-1, out=z).mul_(before - n)
    dh -= through
    torch.addcmul(dh, dh * n, n, value=-1, out=n)
    reset = recalled * r
    reset *= n
    torch.mul(n, r, out=recalled)
    torch.addcmul(reset, reset, r, value=-1, out=r)
    return through


_TANH, _RELU = _Cell(_tanh_step, _tanh_back), _Cell(_relu_step, _relu_back)
_LSTM, _GRU = _Cell(_lstm_step, _lstm_back), _Cell(_gru_step, _gru_back, apart=True)


def _cell(layer: _Layer) -> _Cell:
    if isinstance(layer, nn.RNN | nn.RNNCell):
        return _RELU if layer.nonlinearity == "relu" else _TANH
    return _LSTM if isinstance(layer, nn.LSTM | nn.LSTMCell) else _GRU


def _in_time(reverse: bool, *values: Tensor) -> list[_States]:
    """Return the parts of values for each step, in the order of time or against it."""
    together = list(zip(*(value.unbind(0) for value in values), strict=True))
    return together[::-1] if reverse else together
