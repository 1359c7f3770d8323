"""Find out by trying whether a module mixes samples."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ldp import InvalidInput

_TOLERANCE = 1e-4
"""How far, of its largest value, an output may move for reasons of the hardware."""


def check_unmixed(run: Callable[[Sequence[int]], Any], samples: int, dim: int) -> None:
    """Raise `InvalidInput` where the output for a sample depends on the others in its batch.

    `run(order)` runs the module on samples of these numbers, each time with the same randomness,
    and returns its output, of which `dim` is the batch's dimension. The first sample is run with
    others, and then with copies of itself. That finds what mixes by value, as a normalisation over
    the batch does; not losses, and nothing where the samples are equal.
    """
    mixed, copied = (list(tensors(run(order))) for order in (range(samples), [0] * samples))
    suspects = _different(mixed, copied, samples, dim)
    if not suspects:
        return
    again = list(tensors(run(range(samples))))
    more = list(tensors(run([0] * (samples + 1))))
    own_randomness = _different(mixed, again, samples, dim)
    for i in suspects - own_randomness:
        if len(more) == len(mixed) and more[i].ndim > dim and more[i].shape[dim] == samples + 1:
            raise InvalidInput(
                "the module's output for a sample depends on the other samples of its batch, so "
                "that its gradient cannot be clipped: normalise within a sample (GroupNorm, "
                "LayerNorm), and compare or pair samples nowhere"
            )


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield all tensors in nested lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


def _different(one: list[Tensor], other: list[Tensor], samples: int, dim: int) -> set[int]:
    """Return the places of outputs that differ in the first sample, if `dim` is the batch's."""
    return {
        i
        for i, (a, b) in enumerate(zip(one, other, strict=False))
        if a.shape == b.shape  # or they are cut to the longest sample
        and a.ndim > dim
        and a.shape[dim] == samples
        and not _close(a.select(dim, 0), b.select(dim, 0))
    }


def _close(one: Tensor, other: Tensor) -> bool:
    if not one.is_floating_point() or not one.numel():
        return torch.equal(one, other)
    scale = one.nan_to_num(0, 0, 0).abs().max().item()
    return torch.allclose(one, other, rtol=0, atol=_TOLERANCE * scale, equal_nan=True)
