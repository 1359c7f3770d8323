"""Recurrent layers, unrolled: linear maps of the inputs and of the states before."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dpsgd.clipping.clipped_sums import Gradients, Piece
from dpsgd.clipping.taps import Call
from dpsgd.layers.linear import one_position, tapped_linear
from dpsgd.layers.registry import rule
from ldp import InvalidInput

_Cell = Callable[[Tensor, Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]


@rule(nn.RNN, nn.LSTM, nn.GRU)
def recurrent(
    layer: nn.RNN | nn.LSTM | nn.GRU,
    call: Call,
    input: Tensor,  # noqa: A002
    hx: Tensor | tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor]]:
    """Run a recurrent layer step by step; gates are linear maps of the input and the state.

    Raises `InvalidInput` for packed sequences: pad them.
    """
    if not isinstance(input, Tensor) or input.ndim != 3:
        raise InvalidInput(f"{call.name}: expected a padded batch of sequences, a tensor of rank 3")
    if isinstance(layer, nn.LSTM) and layer.proj_size:
        raise InvalidInput(f"{call.name}: proj_size is not supported, got {layer.proj_size}")
    call.batch_dim(input, only=0 if layer.batch_first else 1)
    steps = input.transpose(0, 1) if layer.batch_first else input  # (T, b, d)
    cell, kept = _cell(layer)
    ways = 2 if layer.bidirectional else 1
    if hx is None:
        start = input.new_zeros(layer.num_layers * ways, call.batch, layer.hidden_size)
        states: tuple[Tensor, ...] = (start,) * kept
    else:
        states = hx if isinstance(hx, tuple) else (hx,)
    finals: list[tuple[Tensor, ...]] = []
    for depth in range(layer.num_layers):
        if depth and layer.dropout and layer.training:
            steps = nn.functional.dropout(steps, layer.dropout)
        outputs = []
        for way in range(ways):
            first = tuple(state[depth * ways + way] for state in states)
            suffix = f"_l{depth}{'_reverse' if way else ''}"
            run, final = _unrolled(layer, call, suffix, cell, steps, first, bool(way))
            outputs.append(run)
            finals.append(final)
        steps = torch.cat(outputs, 2) if ways > 1 else outputs[0]
    output = steps.transpose(0, 1) if layer.batch_first else steps
    last = tuple(torch.stack(parts) for parts in zip(*finals, strict=True))
    return output, last[0] if kept == 1 else (last[0], last[1])


@rule(nn.RNNCell, nn.LSTMCell, nn.GRUCell)
def recurrent_cell(
    layer: nn.RNNCell | nn.LSTMCell | nn.GRUCell,
    call: Call,
    input: Tensor,  # noqa: A002
    hx: Tensor | tuple[Tensor, Tensor] | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Run one step, of a batch (b, d)."""
    if input.ndim != 2:
        raise InvalidInput(f"{call.name}: expected an input of rank 2, got {tuple(input.shape)}")
    call.batch_dim(input, only=0)
    cell, kept = _cell(layer)
    if hx is None:
        state: tuple[Tensor, ...] = (input.new_zeros(call.batch, layer.hidden_size),) * kept
    else:
        state = hx if isinstance(hx, tuple) else (hx,)
        for value in state:
            call.batch_dim(value, only=0)
    _, last = _unrolled(layer, call, "", cell, input[None], state, reverse=False)
    return last if kept > 1 else last[0]


def _unrolled(
    layer: nn.RNNBase | nn.RNNCellBase,
    call: Call,
    suffix: str,
    cell: _Cell,
    steps: Tensor,
    state: tuple[Tensor, ...],
    reverse: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    weight, recurrent_weight, bias, recurrent_bias = (
        None if value is None else Piece(value)
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        for value in (getattr(layer, kind + suffix, None),)
    )
    assert weight is not None
    assert recurrent_weight is not None
    projected = tapped_linear(call, steps, weight, bias, 1)
    matrix = recurrent_weight.value
    shift = None if recurrent_bias is None else recurrent_bias.value

    def gradients(grads: Tensor, before: Tensor) -> Gradients:
        dtype = recurrent_weight.dtype
        return one_position(recurrent_weight, recurrent_bias, before.to(dtype), grads.to(dtype))

    outputs = []
    for step in reversed(projected.unbind(0)) if reverse else projected.unbind(0):
        recalled = nn.functional.linear(state[0], matrix, shift)
        state = cell(step, call.tap(recalled, gradients, state[0]), state)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if reverse else outputs), state


def _cell(layer: nn.RNNBase | nn.RNNCellBase) -> tuple[_Cell, int]:
    """Return the layer's step function, and the number of tensors in its state."""
    if isinstance(layer, nn.LSTM | nn.LSTMCell):
        return _lstm, 2
    if isinstance(layer, nn.GRU | nn.GRUCell):
        return _gru, 1
    squash = torch.tanh if layer.nonlinearity == "tanh" else torch.relu
    return lambda step, recalled, _: (squash(step + recalled),), 1


def _lstm(step: Tensor, recalled: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    i, f, g, o = (step + recalled).chunk(4, 1)
    memory = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(memory), memory


def _gru(step: Tensor, recalled: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (r, z, n), (hr, hz, hn) = step.chunk(3, 1), recalled.chunk(3, 1)
    reset, update = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
    fresh = torch.tanh(n + reset * hn)
    return ((1 - update) * fresh + update * state[0],)
