"""Test, by running it, whether a module mixes samples or keeps data of them."""

import copy
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ldp import InvalidInput

_TOLERANCE = 1e-4
"""The largest relative change of an output that is put down to the hardware."""


def check_unmixed(
    module: nn.Module, run: Callable[[Sequence[int]], Any], samples: int, dim: int
) -> None:
    """Raise `InvalidInput` where the output for a sample depends on the others in its batch.

    `run(order)` runs the module on samples of these numbers, each time with the same randomness,
    and returns its output, of which `dim` or 0 is the batch's dimension. The first two samples are
    run with others, and then each with copies of itself. That finds mixing by value, as by a
    normalisation over the batch, data of samples kept in buffers, and a loss at the beginning of
    the output that is not the mean or the sum of the samples' own; nothing where the samples are
    equal. Buffers are left as they were.
    """
    held = _Held(module)

    def observed(order: Sequence[int]) -> tuple[list[Tensor], list[Tensor]]:
        try:
            return tensors(run(order)), held.values()
        finally:
            held.restore()

    order = [i % 2 for i in range(samples)]
    mixed, kept = observed(order)
    copies = []
    suspects: set[tuple[int, int]] = set()
    for place in (0, 1):
        copied, kept_of_copies = observed([place] * samples)
        copies.append(copied)
        held.check(kept, kept_of_copies)
        suspects |= _different(mixed, copied, samples, dim, place)
    loss = mixed[0] if mixed and not mixed[0].ndim and mixed[0].is_floating_point() else None
    if loss is None and not suspects:
        return
    again, _ = observed(order)
    if loss is not None and _close(loss, again[0]):
        # Place by place both sides have the same terms, and the same randomness.
        swapped, _ = observed([1 - i for i in order])
        if not _close(loss + swapped[0], copies[0][0] + copies[1][0]):
            raise InvalidInput(
                "the loss that the module returns for two samples is neither the mean nor the sum "
                "of their own, as where it is averaged over the targets of the batch that count: "
                "average within each sample, and then over samples"
            )
    more, _ = observed([0] * (samples + 1))
    own_randomness = {s for place in (0, 1) for s in _different(mixed, again, samples, dim, place)}
    for i, d in suspects - own_randomness:
        if len(more) == len(mixed) and more[i].ndim > d and more[i].shape[d] == samples + 1:
            raise InvalidInput(
                "the module's output for a sample depends on the other samples of its batch, so "
                "that its gradient cannot be clipped: normalise within a sample (GroupNorm, "
                "LayerNorm), and compare or pair samples nowhere"
            )


class _Held:
    """A copy of a module's buffers, and its parameters' versions, for comparison and restoring."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._buffers = [
            (layer, key, buffer, buffer.clone())
            for layer in module.modules()
            for key, buffer in layer._buffers.items()
            if buffer is not None
        ]
        self._versions = self._parameter_versions()

    def values(self) -> list[Tensor]:
        """Return copies of the buffers as they are now."""
        now = (layer._buffers[key] for layer, key, _, _ in self._buffers)
        return [torch.empty(0) if buffer is None else buffer.clone() for buffer in now]

    def restore(self) -> None:
        """Restore the buffers' values from before."""
        with torch.no_grad():
            for layer, key, buffer, value in self._buffers:
                layer._buffers[key] = buffer.copy_(value)

    def check(self, one: Sequence[Tensor], other: Sequence[Tensor]) -> None:
        """Raise `InvalidInput` where buffers differ by the samples, or parameters changed."""
        for (layer, key, _, _), a, b in zip(self._buffers, one, other, strict=True):
            if a.shape != b.shape or not torch.allclose(a, b, rtol=0, atol=0, equal_nan=True):
                raise InvalidInput(
                    f"the forward of {type(layer).__name__} keeps what it saw of the samples in "
                    f"its buffer {key}, without noise: keep nothing of them, or freeze it"
                )
        if self._parameter_versions() != self._versions:
            raise InvalidInput(
                "the module's forward changes its parameters, without noise: leave that to the "
                "optimizer"
            )

    def _parameter_versions(self) -> list[int]:
        return [p._version for p in self._module.parameters()]


def mapped(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return nested lists, tuples, mappings and dataclasses with each tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        kind, items = type(value), [mapped(change, item) for item in value]
        return kind(*items) if hasattr(kind, "_fields") else items if kind is list else tuple(items)
    changed: Any = value
    if isinstance(value, MutableMapping):
        changed = copy.copy(value)
        for key, entry in value.items():
            changed[key] = mapped(change, entry)
    elif is_dataclass(value) and not isinstance(value, type):
        changed = copy.copy(value)
        for field in fields(value):
            object.__setattr__(changed, field.name, mapped(change, getattr(value, field.name)))
    return changed


def tensors(value: Any) -> list[Tensor]:
    """Return all tensors in nested lists, tuples, mappings and dataclasses."""
    found: list[Tensor] = []
    mapped(lambda tensor: found.append(tensor) or tensor, value)  # type: ignore[func-returns-value]
    return found


def _different(
    one: list[Tensor], other: list[Tensor], samples: int, dim: int, place: int
) -> set[tuple[int, int]]:
    """Return the outputs' indices, and `dim` or 0, where they differ in the sample at `place`."""
    return {
        (i, d)
        for i, (a, b) in enumerate(zip(one, other, strict=False))
        for d in {dim, 0}
        if a.shape == b.shape  # or they are cut to the longest sample
        and a.ndim > d
        and a.shape[d] == samples
        and not _close(a.select(d, place), b.select(d, place))
    }


def _close(one: Tensor, other: Tensor) -> bool:
    if not one.is_floating_point() or not one.numel():
        return torch.equal(one, other)
    scale = one.nan_to_num(0, 0, 0).abs().max().item()
    share = max(_TOLERANCE, 2 * torch.finfo(one.dtype).eps)
    return torch.allclose(one, other, rtol=0, atol=share * scale, equal_nan=True)
