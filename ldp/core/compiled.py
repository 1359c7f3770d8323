"""Loops compiled by numba, whose machine code is kept on disk."""

import importlib
from collections.abc import Callable
from typing import Any


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """Return the function compiled by numba's `njit`; raises `ImportError` without numba.

    It is compiled at its first call, for the types of its arguments, and kept in `__pycache__`
    beside the source, else in the user's cache, for this source and this kind of processor. Where
    neither can be written, each process compiles anew. Files there are trusted as `.pyc` files are:
    who can write them can run code.
    """
    njit = importlib.import_module("numba").njit
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no directory can be written
        return njit(**options)(function)
