"""A process that ends with reports waiting ends soon, on every interpreter that can be had."""

import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

import hearsay
import ldp
from hearsay import Client, create_ledger
from support import Server, device, free_port

ENDS_WITHIN = 8.0
"""Seconds: the `exit_timeout` of leaver.py and what a busy machine may add.

Well below the seconds that a call waits for its answer, which an exit must not wait for.
"""

NEEDS = [f"{name}=={version(name)}" for name in ("grpcio", "protobuf")] + ["numpy"]


def prepared(server: Server, file: Path) -> Path:
    """Return a new ledger that has the plan already, so that no server is needed to record."""
    create_ledger(file)
    device(server.target, "health", epsilon=1.0, ledger=file).close()
    return file


@pytest.fixture
def ledger(server: Server, tmp_path: Path) -> Path:
    return prepared(server, tmp_path / "ledger.db")


@pytest.fixture
def silent(server: Server) -> Iterator[str]:
    """A target that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield server.to(f"127.0.0.1:{listener.getsockname()[1]}")


def seconds_to_end(address: str, ledger: Path, python: str = sys.executable) -> float:
    """Return how long a process that records takes to end once its code is through."""
    script = str(Path(__file__).with_name("leaver.py"))
    folders = [Path(hearsay.__file__).parents[1], Path(ldp.__file__).parents[1]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    done = subprocess.run(
        [python, script, address, str(ledger)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    ended = time.monotonic()
    assert done.returncode == 0, done.stderr
    return ended - float(done.stdout)


def batches_answered(ledger: Path) -> int:
    """Return how many batches the processes that had a ledger know to be stored."""
    away = f"127.0.0.1:{free_port()}"
    with Client(away, "health", level="strict", epsilon=1.0, ledger=ledger) as client:
        return client.counters.get("stored", 0)


def test_a_server_that_never_answers_does_not_keep_a_process(ledger: Path, silent: str) -> None:
    assert seconds_to_end(silent, ledger) < ENDS_WITHIN


def test_a_port_where_nothing_listens_does_not_keep_a_process(server: Server, ledger: Path) -> None:
    assert seconds_to_end(server.to(f"127.0.0.1:{free_port()}"), ledger) < ENDS_WITHIN


def test_what_waits_is_sent_as_the_process_ends(server: Server, ledger: Path) -> None:
    assert seconds_to_end(server.target, ledger) < ENDS_WITHIN
    assert server.show("health").status.records == 1
    assert batches_answered(ledger) == 1


def interpreters(minor: str) -> dict[str, str]:
    """Return the interpreters of a minor version of Python that there are, by their versions."""
    candidates = [shutil.which(f"python{minor}")]
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout
        versions = Path(root.strip()) / "versions"
        candidates += map(str, sorted(versions.glob(f"{minor}.*/bin/python")))
    found = {}
    for python in filter(None, candidates):
        code = "import platform, sqlite3; print(platform.python_version())"
        asked = subprocess.run([python, "-c", code], capture_output=True, text=True)
        if asked.returncode == 0:  # a launcher may lead nowhere
            found[asked.stdout.strip()] = python
    return found


def with_grpc(python: str, folder: Path) -> str:
    """Return the Python of an environment that has what the SDK needs, or skip the test.

    Both transports' tests, in one process or two, use the one that the first of them makes.
    """
    import fcntl  # only POSIX has it

    folder.parent.mkdir(exist_ok=True)
    made, ready = str(folder / "bin" / "python"), folder / "ready"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ready.exists():
            return made
        venv = [python, "-m", "venv", "--clear", "--without-pip", str(folder)]
        subprocess.run(venv, check=True, capture_output=True)
        install = [sys.executable, "-m", "pip", "--python", made, "install", "--quiet"]
        chosen = ["--only-binary", ":all:", "--no-compile", *NEEDS]
        done = subprocess.run([*install, *chosen], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"what the SDK needs cannot be installed: {done.stderr.strip()[-300:]}")
        ready.touch()
    return made


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="the environment's layout is that of POSIX")
@pytest.mark.parametrize("minor", ["3.11", "3.12", "3.13", "3.14"])
def test_a_process_of_another_python_ends_as_soon(
    server: Server,
    silent: str,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    minor: str,
) -> None:
    found = interpreters(minor)
    found.pop(platform.python_version(), None)
    if not found:
        pytest.skip(f"there is no other Python {minor} here")
    base = tmp_path_factory.getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # all workers share it
    for number, (name, python) in enumerate(found.items(), 1):
        there = with_grpc(python, run / "pythons" / name)
        for target in (silent, server.to(f"127.0.0.1:{free_port()}"), server.target):
            ledger = prepared(server, tmp_path / f"{name} {target.rpartition(':')[2]}.db")
            assert seconds_to_end(target, ledger, there) < ENDS_WITHIN, (name, target)
        assert server.show("health").status.records == number
        assert batches_answered(ledger) == 1
