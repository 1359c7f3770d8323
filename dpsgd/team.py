"""Work that the caller shares with torch's own threads."""

import ctypes
from collections.abc import Callable
from functools import cache
from threading import get_ident
from typing import Any

import torch

_Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def in_all_threads(work: Callable[[], None]) -> None:
    """Call work() in each of torch's threads at once, this one among them; return when all have.

    Threads of one's own are worse where every core has one of torch's, which for milliseconds
    after its last work keeps the core busy, lest more is to come. So this asks the OpenMP library
    that torch has loaded, as compiled loops do. Where it has another interface than GNU's, only
    this thread calls, and it may have fewer threads to give than torch has.

    Raises what a call to fail raised, and `KeyboardInterrupt` before others.
    """
    parallel = _load_parallel()
    if parallel is None:
        work()
        return
    errors: list[BaseException] = []
    began: list[int] = []

    def guarded(_nothing: object) -> None:
        try:
            began.append(get_ident())
            work()
        except BaseException as error:  # there is no caller to raise it to
            errors.append(error)

    # For fewer threads the library would end the others.
    parallel(_Work(guarded), None, torch.get_num_threads(), 0)
    if get_ident() not in began:  # what is raised before the `try` is printed, and forgotten
        raise KeyboardInterrupt
    for error in sorted(errors, key=lambda error: isinstance(error, Exception)):
        raise error


@cache
def _load_parallel() -> Any:
    """Return GOMP_parallel(function, data, threads, flags), or None."""
    try:
        return ctypes.CDLL(torch._C.__file__).GOMP_parallel
    except (OSError, AttributeError):
        return None
