"""What the services share."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

import grpc

Clock = Callable[[], datetime]
Context = grpc.aio.ServicerContext[Any, Any]


def no_survey(name: str) -> str:
    """Say that there is no such survey."""
    return f"there is no survey {name!r} here"


async def abort(context: Context, code: grpc.StatusCode, detail: str) -> NoReturn:
    """End a call with a status."""
    await context.abort(code, detail)
    raise AssertionError("abort always raises")
