"""Loops compiled by numba, whose machine code is kept on disk."""

import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """Return the function compiled by numba's `njit`; raises `ImportError` without numba.

    It is compiled at its first call, for the types of its arguments, and kept in `__pycache__`
    beside the source, else in the user's cache, for this source and this kind of processor. Where
    nothing can be written, each process compiles anew. Files there are trusted as `.pyc` files are:
    who can write them can run code. Code is compiled anew where the loop's own file has changed, so
    that the loops that it calls must stand in the same file.
    """
    njit = importlib.import_module("numba").njit
    try:
        loop = njit(cache=True, **options)(function)
    except RuntimeError:  # no directory can be written
        return njit(**options)(function)
    cache, save = loop._cache, loop._cache.save_overload

    def save_if_possible(signature: Any, code: Any) -> None:
        with suppress(OSError):  # a full disk must not end a call
            save(signature, code)

    # numba counts the names of its files up, and writes their index first: two processes that write
    # at once, or one that dies in between, would leave the code of another signature under a name.
    cache._cache_file._data_name = lambda number: f"{function.__name__}.{uuid4().hex}.nbc"
    cache.save_overload = save_if_possible
    return loop
