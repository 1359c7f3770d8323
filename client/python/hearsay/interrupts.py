"""Tell exceptions of signal handlers from exceptions of the code that they interrupted."""

import functools
import signal
from types import CodeType, TracebackType
from typing import Any

_TRACEBACK: Any = vars(BaseException)["__traceback__"]


def is_from_handler(error: BaseException) -> bool:
    """Tell whether one of this process's signal handlers raised an exception.

    Code that catches every exception, so that no error of ours or of an answer's methods reaches
    the host, must let these through: a task's soft time limit is the host's business.
    """
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    # Not `error.__traceback__`: an exception of the app's may define that anew, and raise.
    trace: TracebackType | None = _TRACEBACK.__get__(error)
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code(handler: object) -> CodeType | None:
    """Return the code that runs when a handler is called; None where it is not Python's."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__"):
        function = type(handler).__call__ if callable(handler) else None
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
