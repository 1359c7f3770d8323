"""A real server process, and a survey for it."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hearsay import MEMORY, Agreement, Client
from hearsay.asking.answer import Answer
from hearsay.sending.transport import Transport
from hearsay.v1 import admin_pb2, admin_pb2_grpc
from hearsay_server.surveys import survey as surveys
from preloaded import Preloaded

FROM_NOTHING = ("-m", "hearsay_server")
"""The command of a `Server` that has nothing loaded: gRPC reads what it may log as it is loaded."""

SURVEY = """
name = "health"
title = "A survey of two questions"
[levels]
strict = 1.0
open = 4.0
[[attributes]]
name = "smokes"
mechanism = "krr"
[attributes.categorical]
values = ["no", "sometimes", "yes"]
[[attributes]]
name = "age"
mechanism = "hybrid"
[attributes.numeric]
low = 20
high = 60
"""


def free_port() -> int:
    """Return a port of loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(holds: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until something holds; fail where it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def at_once(*calls: Callable[[], object]) -> None:
    """Make calls on a thread each, and wait until all have returned."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Calendar:
    """A clock that a test sets; it begins today at noon."""

    def __init__(self, days: int = 0) -> None:
        self.now = datetime.now(UTC).replace(hour=12) + timedelta(days=days)

    def __call__(self) -> datetime:
        return self.now

    def pass_days(self, days: int) -> None:
        self.now += timedelta(days=days)


DAILY = SURVEY.replace('title = "A', 'period = "P1D"\ntitle = "A').replace("health", "daily")
"""The same survey, answered every day."""


def new_client(target: str | Transport, survey: str | Agreement, **choices: Any) -> Client:
    """A client at level "strict", with consent and its ledger in memory unless told otherwise."""
    usual: dict[str, Any] = {"ledger": MEMORY, "level": "strict", "consent": True}
    if isinstance(survey, str):  # an agreement lists the levels with their epsilons
        usual["epsilon"] = 64.0
    return Client(target, survey, **{**usual, **choices})


def device(target: str | Transport, survey: str | Agreement, **choices: Any) -> Client:
    """A client that is ready to answer and raises on mistakes; raises where it cannot be."""
    client = new_client(target, survey, **{"strict": True, **choices})
    try:
        assert client.wait_ready(), client.status()
    except BaseException:
        client.close(0)
        raise
    return client


BOTH = ["grpc", pytest.param("http", marks=pytest.mark.slow)]
"""What devices reach a server over; a quick run has the first one alone."""

over_both = pytest.mark.parametrize("server", BOTH, indirect=True)
"""Runs a test twice: its devices reach the server over gRPC, and over HTTP."""


class Server:
    """A real `hearsay serve` process on one port, which can be killed and started again."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        command: Sequence[str] = (),
        address: str = "",
        over: str = "grpc",
        run: Callable[[], None] | None = None,
    ) -> None:
        """Serve a folder, with options and, instead of `hearsay`, another command of Python's.

        With `run`, that function finds `command` and the rest in `sys.argv`, and is preloaded.
        `address` is that of a server to share the port with (`--share-port`). Devices reach it at
        `target`: over "grpc", or over "http", at which it then listens, too.
        """
        self.folder = folder
        self.over = over
        self._http = f"127.0.0.1:{free_port()}" if over == "http" else ""
        self._options = (*options, *(("--http", self._http) if self._http else ()))
        self.command = command
        self._run = run
        self.address = address or f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[str] | Preloaded | None = None
        self.log = ""

    @property
    def target(self) -> str:
        """What a device is given to reach this server."""
        return self.to(self._http or self.address)

    def to(self, address: str) -> str:
        """Return a target at any address, over what devices reach this server by."""
        return f"http://{address}" if self.over == "http" else address

    def start(self) -> None:
        serve = ["serve", "--listen", self.address, "--data", str(self.folder), *self._options]
        file = self.folder.parent / "log"  # a pipe would fill up
        if self._run is not None:
            self._process = Preloaded([*self.command, *serve], file, self._run)
        elif self.command:
            with file.open("a") as log:
                command = [sys.executable, *self.command, *serve]
                self._process = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=log, text=True
                )
        else:
            self._process = Preloaded(serve, file)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"listening on {self.address}\n"

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal; return the exit code once the process is gone."""
        assert self._process is not None
        self._process.send_signal(how)
        return self.wait()

    def wait(self) -> int:
        """Return the exit code once the process is gone."""
        assert self._process is not None
        self._process.communicate(timeout=30)
        self.log = (self.folder.parent / "log").read_text()
        code = self._process.returncode
        self._process = None
        return code

    def is_running(self) -> bool:
        return self._process is not None

    def pid(self) -> int:
        """Return the id of its process."""
        assert self._process is not None
        return self._process.pid

    def channel(self) -> grpc.Channel:
        """Open a channel that shares no connection with others, so that a kill is seen."""
        return grpc.insecure_channel(
            self.address,
            [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)],
        )

    def wait_until_healthy(self) -> None:
        with self.channel() as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest()
            answer = stub.Check(request, timeout=20, wait_for_ready=True)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING

    def create(self, toml: str = SURVEY) -> admin_pb2.SurveyStatus:
        request = admin_pb2.CreateSurveyRequest(survey=surveys.from_toml(toml, "test.toml"))
        with self.channel() as channel:
            return admin_pb2_grpc.AdminStub(channel).CreateSurvey(request, timeout=20)

    def show(self, survey: str) -> admin_pb2.ShowSurveyResponse:
        request = admin_pb2.ShowSurveyRequest(survey=survey)
        with self.channel() as channel:
            return admin_pb2_grpc.AdminStub(channel).ShowSurvey(request, timeout=20)


def rows_of(answer: Answer, table: str = "") -> list[Any]:
    """Return the rows of a table of an answer, with its labels and numbers by name; the first label
    is `label`, too."""
    chosen = answer.table(table)
    columns: dict[str, Any] = {level.name: level.labels for level in chosen.index}
    columns |= {column.name: column.plain() for column in chosen.columns}
    labels = chosen.index[0].labels
    return [
        SimpleNamespace(label=label, **dict(zip(columns, numbers, strict=True)))
        for label, numbers in zip(labels, zip(*columns.values(), strict=True), strict=True)
    ]
