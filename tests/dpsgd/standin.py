"""A device that is not the CPU, for machines without another: its tensors compute on the CPU.

Like those of a GPU they are no arrays of numpy, have no address, and meet no tensor of another
device except as a copy or as a number: code that forgets where a tensor is fails. They do not show
how a GPU computes and rounds, nor that it runs beside Python.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree, backend_registration
from torch.utils._python_dispatch import return_and_correct_aliasing

NAME = "standin"
_ATEN = torch.ops.aten
_CPU = torch.device("cpu")


class Elsewhere(Tensor):
    """A tensor on the stand-in; a tensor on the CPU has its values."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> "Elsewhere":
        made: Elsewhere = Tensor._make_wrapper_subclass(
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=torch.device(NAME, 0),
        )
        made.values = values
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __repr__(self, **_: Any) -> str:
        return f"Elsewhere({self.values!r})"

    @classmethod
    def __torch_dispatch__(
        cls,
        operation: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if operation is _ATEN.copy_.default:
            target, source = (v.values if isinstance(v, Elsewhere) else v for v in args[:2])
            target.copy_(source)
            return args[0]
        arrives = given.get("device")
        if operation is _ATEN._to_copy.default and arrives is not None:
            values = args[0].values if isinstance(args[0], Elsewhere) else args[0]
            copied = operation(values, **{**given, "device": _CPU})
            return Elsewhere(copied) if torch.device(arrives).type == NAME else copied

        def bare(value: Any) -> Any:
            if isinstance(value, Elsewhere):
                return value.values
            if isinstance(value, Tensor) and value.ndim:
                raise RuntimeError(f"{operation}: expected all tensors on {NAME}, got {value!r}")
            if isinstance(value, torch.device) and value.type == NAME:
                return _CPU
            return value

        bare_args, bare_kwargs = _pytree.tree_map(bare, (args, given))
        found = operation(*bare_args, **bare_kwargs)
        found = _pytree.tree_map(lambda v: Elsewhere(v) if type(v) is Tensor else v, found)
        return return_and_correct_aliasing(operation, args, given, found)


@cache
def register() -> torch.library.Library:
    """Make the device known to torch, for the rest of the process; keep what is returned."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    library = torch.library.Library("aten", "IMPL")

    def empty(size: Any, *, dtype: Any = None, memory_format: Any = None, **_: Any) -> Tensor:
        layout = memory_format or torch.contiguous_format
        return Elsewhere(torch.empty(size, dtype=dtype, memory_format=layout, device="cpu"))

    def empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> Tensor:
        return Elsewhere(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))

    def copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
        here, there = (v.values if isinstance(v, Elsewhere) else v for v in (source, target))
        there.copy_(here)
        return target

    for function, name in (
        (empty, "empty.memory_format"),
        (empty_strided, "empty_strided"),
        (copy_from, "_copy_from"),
    ):
        library.impl(name, function, "PrivateUse1")
    return library
