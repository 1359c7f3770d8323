"""A real server in this process, on a thread of its own."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import pytest

import preloaded
from hearsay.sending.over_grpc import open_channel
from hearsay.sending.transport import Tls
from hearsay.v1 import admin_pb2, admin_pb2_grpc, collector_pb2, collector_pb2_grpc
from hearsay_server.config import Config
from hearsay_server.serving.inside import MakeSite
from hearsay_server.serving.serve import running
from hearsay_server.storage.database import open_folder
from hearsay_server.storage.tokens import Tokens
from hearsay_server.surveys import survey as surveys
from support import SURVEY


@contextlib.contextmanager
def serving(data: Path, *, site: MakeSite | None = None, **keys: Any) -> Iterator[str]:
    """Serve with these keys of the configuration while the context lasts; yield the address."""
    preloaded.context()
    config = Config(data=data, **{"listen": "127.0.0.1:0", **keys})
    started, ended = threading.Event(), threading.Event()
    found: list[str] = []

    async def serve() -> None:
        async with running(config, site=site) as port:
            found.append(f"127.0.0.1:{port}")
            started.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        while not started.wait(0.1):
            assert thread.is_alive(), "the server did not start"
        yield found[0]
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def connected(
    address: str, token: str | None = None, tls: Tls | None = None
) -> Iterator[grpc.Channel]:
    """Open a channel that shares no connection with others."""
    with open_channel(address, tls=tls, token=token) as channel:
        yield channel


def tokens_of(folder: Path) -> Tokens:
    """Return the tokens of a folder, as one that is open for a moment at each use."""
    database = open_folder(folder)
    database.close()
    return Tokens(database)


@contextlib.contextmanager
def held(data: Path) -> Iterator[None]:
    """Keep a server from writing to its database while the context lasts."""
    with contextlib.closing(sqlite3.connect(data / "hearsay.db", isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        yield


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that the tests of a module share; each registers a survey of its own name."""
    with serving(tmp_path_factory.mktemp("shared")) as found:
        yield found


@dataclass(frozen=True)
class Survey:
    """A survey with the questions of `SURVEY`, and the server that has it."""

    address: str
    name: str
    revision: bytes

    def batch(self, number: int = 0, rows: int = 1, code: int = 0) -> collector_pb2.Batch:
        """Return a good batch; another number, another id."""
        made = batch(self.revision, number, rows, code)
        made.survey = self.name
        return made

    def status(self) -> admin_pb2.SurveyStatus:
        """Return what an admin is shown of it."""
        with connected(self.address) as channel:
            request = admin_pb2.ShowSurveyRequest(survey=self.name)
            return admin_pb2_grpc.AdminStub(channel).ShowSurvey(request, timeout=20).status


@pytest.fixture
def survey(address: str, request: pytest.FixtureRequest) -> Survey:
    """A survey of this test's own, at the server that its module shares."""
    return registered(address, own_name(request))


def own_name(request: pytest.FixtureRequest) -> str:
    """Return a name for a survey that no other test takes, in whatever order they run."""
    return f"of_{sha256(request.node.nodeid.encode()).hexdigest()[:12]}"


def create(address: str, toml: str, token: str | None = None) -> admin_pb2.SurveyStatus:
    """Ask a server for a survey of this text."""
    request = admin_pb2.CreateSurveyRequest(survey=surveys.from_toml(toml, "test.toml"))
    with connected(address, token) as channel:
        return admin_pb2_grpc.AdminStub(channel).CreateSurvey(request, timeout=20)


def registered(address: str, name: str = "health", token: str | None = None) -> Survey:
    """Register `SURVEY` by a name."""
    created = create(address, SURVEY.replace('"health"', f'"{name}"'), token)
    return Survey(address, name, created.revision)


def register(address: str, token: str | None = None) -> bytes:
    """Register `SURVEY`; return its revision."""
    return registered(address, token=token).revision


def batch(revision: bytes, number: int = 0, rows: int = 1, code: int = 0) -> collector_pb2.Batch:
    """Return a good batch; another number, another id."""
    codes = bytes([code]) * rows
    column = collector_pb2.Column(attribute="smokes", level="strict", codes=codes)
    return collector_pb2.Batch(
        id=number.to_bytes(16, "big"),
        survey="health",
        revision=revision,
        period="once",
        rows=rows,
        columns=[column],
    )


def submit(
    address: str, *batches: collector_pb2.Batch, token: str | None = None
) -> list[collector_pb2.Result]:
    """Submit batches in one request."""
    with connected(address, token) as channel:
        stub = collector_pb2_grpc.CollectorStub(channel)
        request = collector_pb2.SubmitRequest(batches=batches)
        return list(stub.Submit(request, timeout=20).results)
