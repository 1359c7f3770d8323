"""Functions that end a call with a status, shared by the services."""

import math
from typing import Any, NoReturn

import grpc

from hearsay_server.limits import TooMany

Context = grpc.aio.ServicerContext[Any, Any]

MENDED = 5.0
"""Seconds after which to look whether a disk or a database that failed is mended."""


_MOST = 2000
"""Most bytes of an error's detail; gRPC may write three for each."""


def shortened(detail: str) -> str:
    """Shorten a detail, which may quote a long input: clients take a few kilobytes of a status."""
    data = detail.encode()
    if len(data) <= _MOST:
        return detail
    return data[:_MOST].decode(errors="ignore") + "..."


def no_survey(name: str) -> str:
    """Return the detail of an error for an unknown survey."""
    return f"there is no survey {name!r} here"


async def abort(context: Context, code: grpc.StatusCode, detail: str) -> NoReturn:
    """End a call with a status."""
    await context.abort(code, shortened(detail))
    raise AssertionError("abort always raises")


async def refuse(context: Context, error: TooMany) -> NoReturn:
    """End a call that exceeds a limit, and say when it may come again."""
    await put_off(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(error), error.retry_after)


async def put_off(context: Context, code: grpc.StatusCode, detail: str, seconds: float) -> NoReturn:
    """End a call that may come again after so long: `retry-after-ms` in the trailing metadata."""
    delay = str(math.ceil(1000 * seconds))
    await context.abort(code, shortened(detail), (("retry-after-ms", delay),))
    raise AssertionError("abort always raises")
