"""Whether the process can open any more descriptors: each connection takes one, and each file.

Where none is left, connections wait unseen, and neither gRPC nor uvloop says so.
"""

import asyncio
import contextlib
import errno
import logging
import os
import resource
import time
from collections.abc import AsyncIterator

from hearsay_server.serving.metrics import Metrics

_log = logging.getLogger("hearsay.server")

_EVERY = 1.0
"""Seconds between two looks."""

_AGAIN = 60.0
"""Seconds until the log says again that none is left."""


@contextlib.asynccontextmanager
async def watched(metrics: Metrics, every: float = _EVERY) -> AsyncIterator[None]:
    """Look again and again while the context lasts; count and log where none is left."""
    task = asyncio.create_task(_watch(metrics, every))
    try:
        yield
    finally:
        task.cancel()


async def _watch(metrics: Metrics, every: float) -> None:
    said = -_AGAIN
    while True:
        await asyncio.sleep(every)
        if _one_is_left():
            continue
        metrics.no_descriptor.inc()
        if time.monotonic() - said >= _AGAIN:
            said = time.monotonic()
            most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            _log.error(
                "no descriptor is left of %d: connections and files cannot be opened; raise the "
                "limit of the process (LimitNOFILE, ulimit -n), or lower max_connections",
                most,
            )


def _one_is_left() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True
