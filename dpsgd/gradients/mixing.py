"""Test, by running it, whether a module mixes samples or keeps data of them."""

import copy
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ldp import InvalidInput

_TOLERANCE = 1e-4
"""The largest relative change of an output that is put down to the hardware."""


def check_unmixed(
    module: nn.Module, run: Callable[[Sequence[int]], Mapping[Any, Tensor]], samples: int
) -> None:
    """Raise `InvalidInput` where a value for a sample depends on the others in its batch.

    `run(order)` runs the module on samples of these numbers, each time with the same randomness,
    and returns its outputs, numbered, and the inputs of the layers that are to be trained. Two
    samples are run together, in both orders, and then each with copies of itself: row by row the
    values must be the same. That finds mixing by value, samples in another order between layers,
    data of samples kept in buffers or parameters, and a loss at the beginning of the output that is
    not the mean or the sum of the samples' own. It finds nothing where the samples are equal.
    Buffers and parameters are left as they were.
    """
    held = _Held(module)

    def observed(order: Sequence[int]) -> tuple[Mapping[Any, Tensor], list[Tensor]]:
        try:
            return run(order), held.values()
        finally:
            held.restore()

    order = [i % 2 for i in range(samples)]
    (mixed, kept), (swapped, _) = observed(order), observed([1 - i for i in order])
    copies = []
    suspects: set[tuple[Any, int]] = set()
    for sample in (0, 1):
        copied, kept_of_copies = observed([sample] * samples)
        copies.append(copied)
        held.check(kept, kept_of_copies)
        for first, run_together in enumerate((mixed, swapped)):
            places = range((sample + first) % 2, samples, 2)
            suspects |= _different(run_together, copied, samples, places)
    loss = mixed.get(0)
    loss = None if loss is None or loss.ndim or not loss.is_floating_point() else loss
    if loss is None and not suspects:
        return
    # Copies in another order are the same: what differs is randomness of the module's own.
    again, _ = observed([0] * samples)
    random = _different(copies[0], again, samples, range(samples))
    # Place by place both sides have the same terms, and the same randomness.
    fixed = loss is not None and _close(copies[0][0], again[0])
    if fixed and not _close(mixed[0] + swapped[0], copies[0][0] + copies[1][0]):
        raise InvalidInput(
            "the loss that the module returns for two samples is neither the mean nor the sum "
            "of their own, as where it is averaged over the targets of the batch that count: "
            "average within each sample, and then over samples"
        )
    more, _ = observed([0] * (samples + 1))
    for key, d in suspects - random:
        if key in more and more[key].shape[d : d + 1] == (samples + 1,):
            where = "the module's output" if isinstance(key, int) else "the input of a layer"
            raise InvalidInput(
                f"{where} for a sample depends on the other samples of its batch, or has another "
                "place in it, so that gradients cannot be clipped: normalise within a sample "
                "(GroupNorm, LayerNorm), keep the order, and compare or pair samples nowhere"
            )


class _Held:
    """Copies of a module's buffers and parameters."""

    def __init__(self, module: nn.Module) -> None:
        self._buffers = [
            (layer, key, buffer, buffer.clone())
            for layer in module.modules()
            for key, buffer in layer._buffers.items()
            if buffer is not None
        ]
        self._parameters = [(p, p.detach().clone()) for p in module.parameters()]

    def values(self) -> list[Tensor]:
        """Return copies of the buffers as they are now; raise `InvalidInput` for other parameters.

        They are compared by value: what is written by way of `data` has no version.
        """
        if any(not _same(parameter, value) for parameter, value in self._parameters):
            raise InvalidInput(
                "the module's forward changes its parameters, without noise: leave that to the "
                "optimizer"
            )
        now = (layer._buffers[key] for layer, key, _, _ in self._buffers)
        return [torch.empty(0) if buffer is None else buffer.clone() for buffer in now]

    def restore(self) -> None:
        with torch.no_grad():
            for layer, key, buffer, value in self._buffers:
                layer._buffers[key] = buffer.copy_(value)
            for parameter, value in self._parameters:
                if not _same(parameter, value):
                    parameter.copy_(value)

    def check(self, one: Sequence[Tensor], other: Sequence[Tensor]) -> None:
        """Raise `InvalidInput` where buffers differ by the samples."""
        for (layer, key, _, _), a, b in zip(self._buffers, one, other, strict=True):
            if a.shape != b.shape or not _same(a, b):
                raise InvalidInput(
                    f"the forward of {type(layer).__name__} keeps what it saw of the samples in "
                    f"its buffer {key}, without noise: keep nothing of them, or freeze it"
                )


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
    one: Mapping[Any, Tensor], other: Mapping[Any, Tensor], samples: int, places: range
) -> set[tuple[Any, int]]:
    """Return keys and batch dimensions of values that differ at some of the places."""
    rows = slice(places.start, places.stop, places.step)
    return {
        (key, d)
        for key, a in one.items()
        if key in other and a.shape == other[key].shape  # or they are cut to the longest sample
        for d, size in enumerate(a.shape)
        if size == samples and not _close(a.movedim(d, 0)[rows], other[key].movedim(d, 0)[rows])
    }


def _same(one: Tensor, other: Tensor) -> bool:
    # The second takes ten times as long.
    return torch.equal(one, other) or torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def _close(one: Tensor, other: Tensor) -> bool:
    if not one.is_floating_point() or not one.numel():
        return torch.equal(one, other)
    scale = one.nan_to_num(0, 0, 0).abs().max().item()
    share = max(_TOLERANCE, 2 * torch.finfo(one.dtype).eps)
    return torch.allclose(one, other, rtol=0, atol=share * scale, equal_nan=True)
