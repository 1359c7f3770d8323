"""A shuffler before a collector, in threads of this process."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sealing import Sealed
from serving import connected

from hearsay.v1 import collector_pb2, shuffler_pb2, shuffler_pb2_grpc
from hearsay_server.config import ShufflerConfig
from hearsay_server.shuffler import pools
from hearsay_server.shuffler.pools import Pool
from hearsay_server.shuffler.serve import running


@dataclass
class Shuffler:
    """A shuffler that runs, and its folder."""

    address: str
    data: Path

    def submit(
        self, *records: shuffler_pb2.SealedRecord, token: str | None = None
    ) -> list[collector_pb2.Result]:
        """Hand records over in requests of 256, as devices do."""
        results: list[collector_pb2.Result] = []
        with connected(self.address, token) as channel:
            stub = shuffler_pb2_grpc.ShufflerStub(channel)
            for first in range(0, len(records), 256):
                some = records[first : first + 256]
                request = shuffler_pb2.SubmitSealedRequest(records=some)
                results += stub.SubmitSealed(request, timeout=20).results
        return results

    def pool(self, period: str) -> Pool:
        """Return the pool of a period of a survey."""
        (found,) = [pool for pool in pools.look(self.data)[0] if pool.period == period]
        return found


@contextlib.contextmanager
def shuffling(data: Path, server: Sealed, **keys: Any) -> Iterator[Shuffler]:
    """Run a shuffler before a collector, by its clock, while the context lasts."""
    given = {
        "listen": "127.0.0.1:0",
        "collector": server.address,
        "collector_token": server.token("shuffler"),
        "check_seconds": 0.05,
    }
    config = ShufflerConfig(data=data, **given | keys)
    started, ended = threading.Event(), threading.Event()
    found: list[str] = []

    async def serve() -> None:
        async with running(config, server.clock) as port:
            found.append(f"127.0.0.1:{port}")
            started.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        while not started.wait(0.1):
            assert thread.is_alive(), "the shuffler did not start"
        yield Shuffler(found[0], data)
    finally:
        ended.set()
        thread.join()
