"""Readiness follows the disk and the database; liveness follows the process."""

import asyncio
import contextlib
import resource
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
import sqlalchemy as sa
from grpc_health.v1 import health_pb2, health_pb2_grpc
from postgres import Postgres
from serving import batch, connected, register, serving, submit

from hearsay.v1 import analyst_pb2, analyst_pb2_grpc, collector_pb2, collector_pb2_grpc
from hearsay_server.serving.health import Health, Readiness, prober
from hearsay_server.serving.metrics import Metrics
from hearsay_server.serving.status import LIVE
from hearsay_server.storage.database import open_folder
from hearsay_server.storage.schema import probes
from support import Server

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no disk to fill: {error}")
    if done.returncode:
        pytest.skip(f"no disk to fill: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def status(channel: grpc.Channel, service: str = "") -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=20).status)


def becomes(channel: grpc.Channel, wanted: int) -> bool:
    """Wait until readiness is as wanted, or 20 s are over."""
    deadline = time.monotonic() + 20
    while status(channel) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return status(channel) == wanted


@contextlib.contextmanager
def without_a_table(folder: Path, table: str) -> Iterator[None]:
    """Break the database meanwhile."""
    with contextlib.closing(sqlite3.connect(folder / "hearsay.db")) as connection:
        connection.execute(f"ALTER TABLE {table} RENAME TO elsewhere")
        yield
        connection.execute(f"ALTER TABLE elsewhere RENAME TO {table}")


def test_a_full_disk_ends_readiness_and_room_on_it_brings_it_back(small_disk: Path) -> None:
    with serving(small_disk / "data", probe_seconds=0.2) as address:
        revision = register(address)
        with connected(address) as channel:
            assert status(channel) == SERVING
            filler = small_disk / "filler"
            with filler.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
                while stream.write(bytes(4096)):
                    pass
            large = batch(revision, 1, rows=90_000)
            with pytest.raises(grpc.RpcError) as error:
                for number in range(1, 100):  # what the database has of room is used up first
                    large.id = number.to_bytes(16, "big")
                    submit(address, large)
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
            assert becomes(channel, NOT_SERVING)
            assert status(channel, "hearsay.v1.Collector") == NOT_SERVING
            assert status(channel, LIVE) == SERVING
            filler.unlink()
            assert becomes(channel, SERVING)
        assert [r.status for r in submit(address, large)] == [collector_pb2.Result.STORED]


def test_a_database_that_may_not_grow_is_a_full_disk_too(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", "--probe-seconds", "0.2")
    server.start()
    try:
        process = server.pid()
        before = resource.prlimit(process, resource.RLIMIT_FSIZE)
        revision = register(server.address)
        with connected(server.address) as channel:
            size = max(file.stat().st_size for file in server.folder.iterdir())
            resource.prlimit(process, resource.RLIMIT_FSIZE, (size, before[1]))
            with pytest.raises(grpc.RpcError) as error:
                submit(server.address, batch(revision, 1, rows=90_000))
                submit(server.address, *(batch(revision, n, rows=90_000) for n in range(2, 20)))
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
            assert becomes(channel, NOT_SERVING)
            assert status(channel, LIVE) == SERVING
            resource.prlimit(process, resource.RLIMIT_FSIZE, before)
            assert becomes(channel, SERVING)
        assert submit(server.address, batch(revision, 99))[0].status == collector_pb2.Result.STORED
        assert server.stop() == 0
    finally:
        if server.is_running():
            server.stop(signal.SIGKILL)


def test_a_database_that_is_gone_is_waited_for(tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.create()
    with (
        serving(tmp_path, database=url, probe_seconds=0.2) as address,
        connected(address) as channel,
    ):
        collector = collector_pb2_grpc.CollectorStub(channel)
        analyst = analyst_pb2_grpc.AnswersStub(channel)
        revision = register(address)
        first, second = (
            collector_pb2.SubmitRequest(batches=[batch(revision, number)]) for number in (1, 2)
        )
        question = analyst_pb2.EstimateRequest(survey="health", attribute="smokes")
        collector.Submit(first, timeout=20)
        postgres.stop()
        for call in (
            lambda: collector.Submit(second, timeout=20),
            lambda: analyst.Estimate(question, timeout=20),
        ):
            with pytest.raises(grpc.RpcError) as error:
                call()
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
            assert dict(error.value.trailing_metadata())["retry-after-ms"] == "5000"
        assert becomes(channel, NOT_SERVING)
        assert status(channel, LIVE) == SERVING
        time.sleep(0.5)  # probes go on in vain
        postgres.start()
        assert becomes(channel, SERVING)
        assert analyst.Estimate(question, timeout=20).reports == 1
        for request, known in ((first, True), (second, False)):
            (result,) = collector.Submit(request, timeout=20).results
            assert (result.status == collector_pb2.Result.DUPLICATE) == known


@pytest.mark.slow
def test_a_database_that_hangs_ends_readiness_and_is_waited_for(
    tmp_path: Path, postgres: Postgres
) -> None:
    url = postgres.create()
    with (
        serving(tmp_path, database=url, probe_seconds=0.2) as address,
        connected(address) as channel,
    ):
        request = collector_pb2.SubmitRequest(batches=[batch(register(address))])
        collector = collector_pb2_grpc.CollectorStub(channel)
        postgres.signal(signal.SIGSTOP)
        try:
            waiting = collector.Submit.future(request, timeout=1)
            assert becomes(channel, NOT_SERVING)
            assert status(channel, LIVE) == SERVING
            assert waiting.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        finally:
            postgres.signal(signal.SIGCONT)
        assert becomes(channel, SERVING)
        collector.Submit(request, timeout=20)  # the one that was given up may be stored or not
        question = analyst_pb2.EstimateRequest(survey="health", attribute="smokes")
        answer = analyst_pb2_grpc.AnswersStub(channel).Estimate(question, timeout=20)
        assert answer.reports == 1


def test_a_probe_that_fails_ends_readiness(tmp_path: Path) -> None:
    with serving(tmp_path, probe_seconds=0.1) as address, connected(address) as channel:
        with without_a_table(tmp_path, "probes"):
            assert becomes(channel, NOT_SERVING)
            assert status(channel, LIVE) == SERVING
        assert becomes(channel, SERVING)


def test_a_commit_that_fails_ends_readiness_at_once_and_a_probe_brings_it_back(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, probe_seconds=2.0) as address, connected(address) as channel:
        revision = register(address)
        with without_a_table(tmp_path, "tallies"), pytest.raises(grpc.RpcError):
            submit(address, batch(revision))
        assert status(channel) == NOT_SERVING
        assert becomes(channel, SERVING)


def test_readiness_ends_by_what_the_database_fails_not_by_what_it_is_given() -> None:
    def refused(kind: type[sa.exc.DBAPIError]) -> Exception:
        return kind("INSERT", {}, Exception())

    async def after(error: Exception) -> float | None:
        metrics = Metrics()
        readiness = Readiness(Health([]), metrics)
        # No probe comes: a commit alone says it.
        async with readiness.watched(None, lambda thorough: None, 60.0):  # type: ignore[arg-type]
            readiness.committed(0.1, error)
            await asyncio.sleep(0.05)
            return metrics.registry.get_sample_value("hearsay_ready")

    errors = [ZeroDivisionError(), *map(refused, (sa.exc.DataError, sa.exc.OperationalError))]
    assert [asyncio.run(after(error)) for error in errors] == [1, 1, 0]


def test_every_watcher_hears_of_a_change_whoever_else_leaves(tmp_path: Path) -> None:
    with serving(tmp_path, probe_seconds=0.1) as address, connected(address) as channel:
        watching = health_pb2_grpc.HealthStub(channel).Watch
        leaving, staying = (watching(health_pb2.HealthCheckRequest()) for _ in range(2))
        assert next(leaving).status == next(staying).status == SERVING
        leaving.cancel()
        with without_a_table(tmp_path, "probes"):
            assert next(staying).status == NOT_SERVING
        assert next(staying).status == SERVING
        staying.cancel()


def test_a_service_that_is_not_here_is_not_found(tmp_path: Path) -> None:
    with serving(tmp_path) as address, connected(address) as channel:
        with pytest.raises(grpc.RpcError) as error:
            status(channel, "hearsay.v1.Nothing")
        assert error.value.code() == grpc.StatusCode.NOT_FOUND


def test_most_probes_write_little_but_those_that_may_end_what_is_wrong(tmp_path: Path) -> None:
    database = open_folder(tmp_path)
    probe, written = prober(database), []

    def noted(thorough: bool) -> None:
        probe(thorough)
        with database.reading() as connection:
            written.append(len(connection.scalars(sa.select(probes.c.filler)).one()))

    class Here:
        """A writer whose thread is this one."""

        async def run(self, write: Callable[[], None]) -> None:
            write()

    async def test() -> None:
        readiness = Readiness(Health([]), Metrics())
        async with readiness.watched(Here(), noted, 0.001):  # type: ignore[arg-type]
            while len(written) < 20:
                await asyncio.sleep(0.001)
            assert written[:20] == [65536, *[16] * 11, 65536, *[16] * 7]
            readiness.committed(0.1, sa.exc.OperationalError("INSERT", {}, Exception()))
            before = len(written)
            while len(written) < before + 4:
                await asyncio.sleep(0.001)
            assert 65536 in written[before : before + 2]

    asyncio.run(test())
    database.close()


def test_probes_leave_one_row_however_many_there_were(tmp_path: Path) -> None:
    for _ in range(2):
        with serving(tmp_path, probe_seconds=0.05):
            time.sleep(0.4)
    with contextlib.closing(sqlite3.connect(tmp_path / "hearsay.db")) as connection:
        assert connection.execute("SELECT count(*) FROM probes").fetchone() == (2,)
