"""Rules against a loop over single samples, for any shapes and options."""

from typing import Any

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracle import check
from torch import nn

few = settings(max_examples=60, deadline=None, derandomize=True)
small = st.integers(1, 4)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@few
@given(st.data())
def test_any_convolution(data: Any) -> None:
    torch.manual_seed(1)
    rank, groups = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 1, 2]))
    each = st.tuples(*[st.integers(1, 3)] * rank)
    kernel, stride, dilation = data.draw(each), data.draw(each), data.draw(each)
    sizes = [s + 4 for s in data.draw(each)]
    padding = [p - 1 for p in data.draw(each)]
    mode = data.draw(st.sampled_from(["zeros", "circular", "reflect", "replicate"]))
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    assume(all(r <= s + 2 * p for r, s, p in zip(reach, sizes, padding, strict=True)))
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[rank - 1](
        groups * data.draw(small),
        groups * data.draw(small),
        kernel,
        stride,
        tuple(padding),
        dilation,
        groups,
        data.draw(st.booleans()),
        mode,
    ).double()
    check(layer, normal(data.draw(small), layer.in_channels, *sizes))


@few
@given(st.lists(small, min_size=2, max_size=5), small, st.booleans())
def test_any_linear_layer(shape: list[int], outputs: int, bias: bool) -> None:
    torch.manual_seed(2)
    check(nn.Linear(shape[-1], outputs, bias=bias).double(), normal(*shape))


@few
@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), small, st.sampled_from([None, 0, -1]))
def test_any_embedding(shape: list[int], width: int, padding: int | None) -> None:
    torch.manual_seed(3)
    rows = torch.randint(1, 4, shape)
    rows[..., 0] = 1
    rows.flatten()[1:2] = 0
    check(nn.Embedding(5, width, padding_idx=padding).double(), rows)


@few
@given(small, st.integers(1, 5), small, small, st.integers(1, 2), st.booleans(), st.data())
def test_any_recurrent_layer(
    batch: int, steps: int, inputs: int, hidden: int, layers: int, both: bool, data: Any
) -> None:
    torch.manual_seed(4)
    kind = data.draw(st.sampled_from([nn.RNN, nn.LSTM, nn.GRU]))
    layer = kind(inputs, hidden, layers, batch_first=True, bidirectional=both, bias=not both)
    check(layer.double(), normal(batch, steps, inputs))
