"""The log: a line an event, and nobody but the server writes into it."""

import io
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
from certificates import Authority

from hearsay_server.build import revision, version
from hearsay_server.serving import logs
from support import FROM_NOTHING, Server


@pytest.fixture
def root() -> Iterator[None]:
    """Leave the process's log as it was."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


def test_a_record_is_one_line_of_json_with_its_extras_and_its_traceback(root: None) -> None:
    stream = io.StringIO()
    logs.configure("json", "info", stream)
    log = logging.getLogger("hearsay.test")
    log.debug("not this")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("it %s", "failed", extra={"batches": 3})
    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert (record["level"], record["logger"]) == ("error", "hearsay.test")
    assert (record["message"], record["batches"]) == ("it failed", 3)
    assert "ValueError: two\nlines" in record["traceback"]
    assert record["time"].endswith("+00:00")


def test_the_level_is_kept(root: None) -> None:
    stream = io.StringIO()
    logs.configure("text", "error", stream)
    logging.getLogger("hearsay.test").warning("not this")
    logging.getLogger("hearsay.test").error("this")
    assert stream.getvalue().endswith("ERROR this\n")
    assert "not this" not in stream.getvalue()


def test_strangers_write_nothing_into_the_log(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = (tmp_path / "server.pem", tmp_path / "server.key")
    authority.issue(*files)
    tls = ("--tls-certificate", str(files[0]), "--tls-key", str(files[1]))
    server = Server(tmp_path / "data", "--log-format", "json", *tls, command=FROM_NOTHING)
    server.start()
    host, _, port = server.address.rpartition(":")
    for message in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(500), b""):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(message)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(10)
            while connection.recv(1024):
                pass
    assert server.stop() == 0
    messages = [json.loads(line)["message"] for line in server.log.splitlines()]
    assert [message.partition(":")[0] for message in messages] == [
        "no token was ever made",
        f"hearsay {version()}, revision {revision()}, has started",
        "stopping",
    ]


def test_an_outage_of_the_database_is_one_line_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: None
) -> None:
    stream = io.StringIO()
    logs.configure("text", "info", stream)
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'missing' / 'file.db'}")
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def fail() -> None:
        try:
            with engine.connect():
                pass
        except sqlalchemy.exc.OperationalError:
            logging.getLogger("hearsay.server").exception("batches could not be stored")

    for _ in range(100):
        fail()
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(
        "batches could not be stored: the database is away: unable to open database file"
    )
    now += 61
    fail()
    assert len(stream.getvalue().splitlines()) == 2
    try:
        raise KeyError("a fault of ours")
    except KeyError:
        logging.getLogger("hearsay.server").exception("a call failed")
    assert "Traceback" in stream.getvalue()
