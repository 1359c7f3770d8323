"""Noise for many sums, drawn and added in compiled code alone by torch's own threads."""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from dpsgd.noise.keystream import Cipher, Words
from dpsgd.noise.ziggurat import PART, add_normal
from ldp import InvalidInput

_nb: Any = numba
"""numba as an untyped module: its annotations leave out some of its names."""
_HEAD = 5
"""The number of integers at the head of a job."""
_Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def add_noise(
    sums: Sequence[Tensor],
    cipher: Cipher,
    schedule: Words,
    options: tuple[float, float, bool, float],
    threads: int,
) -> None:
    """Release contiguous CPU sums of one type, with noise, as `add_rounded` does by `options`.

    A schedule serves only once. Several threads must be as many as torch has: the OpenMP library
    that torch has loaded, which gives them, would end the others. Threads of one's own are worse
    where every core has one of torch's, which for milliseconds after its last work keeps the core
    busy, in case more is to come. Where that library has another interface than GNU's, this thread
    does all.

    Raises `InvalidInput` for other sums, and `RuntimeError` where a part of them was left out.
    """
    dtype = sums[0].dtype
    for summed in sums:
        alike = summed.dtype == dtype and dtype.is_floating_point
        if not (alike and summed.is_cpu and summed.is_contiguous()):
            raise InvalidInput(
                "expected contiguous sums of a CPU and of one type of floating point, got one of "
                f"type {summed.dtype} (the first: {dtype}), shape {tuple(summed.shape)} and "
                f"strides {summed.stride()} on {summed.device}"
            )
    floats = np.array(options, dtype=np.float64)
    places = [number for summed in sums for number in (summed.data_ptr(), summed.numel())]
    job = np.array(
        [0, 0, len(sums), schedule.ctypes.data, floats.ctypes.data, *places], dtype=np.int64
    )
    work = _compile_work(dtype, cipher)
    parallel = _load_parallel() if threads > 1 else None
    if parallel is None:
        _Work(work.address)(job.ctypes.data)
    else:
        parallel(work.address, job.ctypes.data, threads, 0)
    if job[1] != sum(-(-summed.numel() // PART) for summed in sums):
        raise RuntimeError("the draw of noise was broken off: nothing may be released")


@cache
def _compile_work(dtype: torch.dtype, cipher: Cipher) -> Any:
    """Return the compiled function that runs a job for sums of a type, in one or more threads.

    A job is: the number of the next part, how many are done, how many sums there are, the addresses
    of the schedule and of the options, and of each sum its address and size.
    """
    width, keystream, key_words = dtype.itemsize, cipher.keystream, cipher.size
    sums_at = _pointer_to(_nb.from_dtype(torch.empty(0, dtype=dtype, device="cpu").numpy().dtype))
    words_at, floats_at = _pointer_to(types.uint64), _pointer_to(types.float64)

    @numba.cfunc(types.void(_nb.types.CPointer(types.int64)), error_model="numpy")
    def work(data: Any) -> None:
        job = _nb.carray(data, (_HEAD + 2 * _nb.carray(data, (_HEAD,))[2],))
        schedule = _nb.carray(words_at(job[3]), (key_words,))
        options = _nb.carray(floats_at(job[4]), (4,))
        number = _taken(data, 0)
        place, before = _HEAD, 0  # the parts of tensors before that at this place
        while place < job.size:
            address, size = job[place], job[place + 1]
            start = (number - before) * PART
            if start >= size:
                before += (size + PART - 1) // PART
                place += 2
                continue
            sums = _nb.carray(sums_at(address + start * width), (min(PART, size - start),))
            apart = options[2] != 0
            add_normal(sums, schedule, keystream, number, options[0], options[1], apart, options[3])
            _taken(data, 1)
            number = _taken(data, 0)

    return work


def _pointer_to(kind: Any) -> Any:
    """Return an intrinsic that turns an address into a pointer to `kind`."""

    def pointer(_context: Any, _address: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], target.get_value_type(signature.return_type))

        return _nb.types.CPointer(kind)(types.int64), generate

    return intrinsic(pointer)


def _taking(_context: Any, _data: Any, _place: Any) -> Any:
    """Return a number of a job and increase it by one, atomically."""

    def generate(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        place = builder.gep(args[0], [args[1]])
        return builder.atomic_rmw("add", place, ir.IntType(64)(1), "seq_cst")

    return types.int64(_nb.types.CPointer(types.int64), types.int64), generate


_taken: Any = intrinsic(_taking)


@cache
def _load_parallel() -> Any:
    """Return GOMP_parallel(function, data, threads, flags), or None without GNU's interface."""
    try:
        parallel = ctypes.CDLL(torch._C.__file__).GOMP_parallel
    except (OSError, AttributeError):
        return None
    parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    return parallel
