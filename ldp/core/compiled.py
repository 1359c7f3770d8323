"""Loops compiled by numba, whose machine code is kept on disk."""

import importlib
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from types import CodeType
from typing import Any

import numpy as np


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """Return the function compiled by numba's `njit`; raises `ImportError` without numba.

    It is compiled at its first call, for the types of its arguments, and kept in `__pycache__`
    beside the source, else in the user's cache, for this source and this kind of processor. Where
    neither can be written, each process compiles anew. Files there are trusted as `.pyc` files are:
    who can write them can run code.
    """
    njit = importlib.import_module("numba").njit
    try:
        loop = njit(cache=True, **options)(function)
    except RuntimeError:  # no directory can be written
        return njit(**options)(function)
    loop._cache = _Kept(loop)
    return loop


class _Kept:
    """Keep the machine code of a loop in one file for each signature and kind of processor.

    It takes the place of numba's own cache, which has an index beside its files: two processes
    that write at once, or one that dies between two writes, leave the code of another signature or
    of an older source in a file's place. Here each file begins with a digest of its code and of all
    that the code was made from, and what does not agree with it is compiled anew.
    """

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._numbas = loop._cache
        self.cache_path = self._numbas.cache_path

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the machine code that `save_overload` has kept, else None."""
        context.refresh()
        name, made_from = self._entry(signature, context.codegen())
        try:
            digest, code = self._numbas._cache_file._load_data(name)
        except (OSError, EOFError, pickle.UnpicklingError):  # there is none, or a part of it
            return None
        if digest != _digest(made_from, code):
            return None
        return self._numbas._impl.rebuild(context, pickle.loads(code))

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep machine code in the place of what was there; a disk that takes none is no error."""
        if not self._numbas._impl.check_cachable(result):
            return
        name, made_from = self._entry(signature, result.codegen)
        files = self._numbas._cache_file
        code = files._dump(self._numbas._impl.reduce(result))
        with suppress(OSError):
            files._save_data(name, (_digest(made_from, code), code))

    def _entry(self, signature: Any, codegen: Any) -> tuple[str, bytes]:
        """Return a signature's file, and a digest of all that its code is made from."""
        function, numba = self._loop.py_func, importlib.import_module("numba")
        place = repr((function.__module__, function.__qualname__, sys.version))
        key = repr((signature, codegen.magic_tuple()))
        versions = repr((np.__version__, numba.__version__))
        name = _digest(place.encode(), key.encode()).hex()[:32]
        made_from = _digest(name.encode(), key.encode(), versions.encode(), _source(self._loop))
        return f"{function.__name__}.{name}.nbc", made_from


def _source(value: Any) -> bytes:
    """Return a digest of a loop, its options, and the loops and constants that it names."""
    if isinstance(value, CodeType):
        names = repr((value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars))
        return _digest(value.co_code, names.encode(), *map(_source, value.co_consts))
    if isinstance(value, np.ndarray):
        return _digest(repr((value.dtype, value.shape)).encode(), value.tobytes())
    if isinstance(value, set):  # of strings, of which every process has another order
        return _source(sorted(value))
    if hasattr(value, "py_func"):
        function = value.py_func
        known = [n for n in function.__code__.co_names if n in function.__globals__]
        named = [cell.cell_contents for cell in function.__closure__ or ()]
        named += [function.__globals__[name] for name in known]
        options = [part for option in sorted(value.targetoptions.items()) for part in option]
        return _digest(*map(_source, [function.__code__, *options, *named]))
    return repr(value).encode()


def _digest(*parts: bytes) -> bytes:
    return sha256(b"".join(sha256(part).digest() for part in parts)).digest()
