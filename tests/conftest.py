import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from hearsay.v1 import collector_pb2_grpc
from ldp.testing import SeededCoins
from support import Server

# The same examples every time: a verdict that changes by itself helps nobody.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")


# The modules of all tests stay: to look for garbage among them takes a second each time.
gc.disable()


def pytest_collection_finish() -> None:
    """Let garbage be collected from now on, outside of what was loaded."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def coins() -> SeededCoins:
    """Coins that repeat, so that a statistical test gives the same verdict every time."""
    return SeededCoins(20260704)


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of this test's own, with the survey of `SURVEY`.

    A parameter says what devices reach it over, "grpc" or "http".
    """
    running = Server(tmp_path / "data", over=getattr(request, "param", "grpc"))
    running.start()
    running.create()
    yield running
    if running.is_running():
        running.stop(signal.SIGKILL)


@pytest.fixture
def collector(server: Server) -> Iterator[collector_pb2_grpc.CollectorStub]:
    with server.channel() as channel:
        yield collector_pb2_grpc.CollectorStub(channel)
