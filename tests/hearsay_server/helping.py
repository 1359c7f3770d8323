"""A helper of a server that leads, in a thread of this process."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hearsay_server.config import HelperConfig
from hearsay_server.helper.serve import running
from support import Calendar


@contextlib.contextmanager
def helping(data: Path, collector: str, port: int, clock: Calendar, **keys: Any) -> Iterator[None]:
    """Run a helper on a thread of its own while the context lasts."""
    config = HelperConfig(data=data, collector=collector, listen=f"127.0.0.1:{port}", **keys)
    started, ended = threading.Event(), threading.Event()

    async def serve() -> None:
        async with running(config, clock):
            started.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        while not started.wait(0.1):
            assert thread.is_alive(), "the helper did not start"
        yield
    finally:
        ended.set()
        thread.join()
