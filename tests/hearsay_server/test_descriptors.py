"""A process that has no descriptor left says so: in its log, and by a metric."""

import asyncio
import logging
import resource
from pathlib import Path

import pytest

from hearsay_server.serving.descriptors import watched
from hearsay_server.serving.metrics import Metrics
from support import Server, wait_until


def found(metrics: Metrics) -> float:
    value = metrics.registry.get_sample_value("hearsay_no_descriptor_total")
    assert value is not None
    return value


def test_it_is_counted_at_each_look_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()

    async def run() -> None:
        async with watched(metrics, every=0.001):
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))  # no file can be opened
            try:
                async with asyncio.timeout(10):
                    while found(metrics) < 3:
                        await asyncio.sleep(0.001)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
            counted = found(metrics)
            await asyncio.sleep(0.01)
            assert found(metrics) <= counted + 1

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    (record,) = [each for each in caplog.records if "no descriptor is left" in each.getMessage()]
    assert "of 3: " in record.getMessage()


@pytest.mark.slow
def test_a_server_that_runs_out_of_descriptors_logs_it_and_goes_on(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    server.start()
    server.create()
    before = resource.prlimit(server.pid(), resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid(), resource.RLIMIT_NOFILE, (8, before[1]))
    log = tmp_path / "log"
    wait_until(lambda: "no descriptor is left of 8" in log.read_text())
    resource.prlimit(server.pid(), resource.RLIMIT_NOFILE, before)
    server.wait_until_healthy()
    assert server.stop() == 0
    assert server.log.count("no descriptor is left") == 1
