"""A real PostgreSQL of a test run's own: a cluster in a temporary folder, on a free port."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from support import free_port


def _binaries() -> Path:
    known = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: p.parent.name)
    on_path = shutil.which("initdb")
    for folder in [*reversed(known), *([Path(on_path).resolve().parent] if on_path else [])]:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    pytest.skip("there is no PostgreSQL here: neither in /usr/lib/postgresql nor on the PATH")


def _user() -> list[str]:
    """Return the words before a command that keep it from running as root, which it refuses."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL does not run as root, and there is no setpriv to run it otherwise")
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


class Postgres:
    """A cluster that can be stopped and started again."""

    def __init__(self, folder: Path, **settings: str) -> None:
        """Make the cluster in `folder`, which must not exist, and start it with these settings."""
        self._settings = settings
        self._binaries, self._user = _binaries(), _user()
        self._folder = folder
        folder.mkdir()
        if self._user:
            os.chown(folder, 65534, 65534)
        self.port = free_port()
        self._run("initdb", "--auth=trust", "--username=hearsay", "--no-sync", "-D", str(folder))
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self.start()

    def _run(self, name: str, *arguments: str) -> None:
        command = [*self._user, str(self._binaries / name), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=60)
        if done.returncode:
            pytest.skip(f"PostgreSQL's {name} fails here: {done.stderr.strip()[-500:]}")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self._folder),
            "max_connections": "60",
            "shared_buffers": "16MB",
            "fsync": "off",  # only a machine that fails would tell; here processes do
            **self._settings,
        }
        options = [f"-c{name}={value}" for name, value in settings.items()]
        command = [*self._user, str(self._binaries / "postgres"), "-D", str(self._folder)]
        with (self._folder.parent / "postgres.log").open("ab") as log:
            self._process = subprocess.Popen([*command, *options], stdout=log, stderr=log, cwd="/")
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it at once; SIGQUIT is a crash that the next start recovers from."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(timeout=30)
        self._process = None

    def kill(self) -> None:
        """Kill all its processes at once."""
        assert self._process is not None
        self.signal(signal.SIGKILL)
        self._process.wait(timeout=30)
        self._process = None

    def signal(self, how: signal.Signals) -> None:
        """Send a signal to all its processes."""
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, how)

    def processes(self) -> list[int]:
        """Return the ids of all its processes; only Linux tells which they are."""
        assert self._process is not None
        parent = self._process.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return [parent, *map(int, children)]

    def url(self, database: str) -> str:
        """Return where a database is."""
        return f"postgresql://hearsay@127.0.0.1:{self.port}/{database}"

    def create(self) -> str:
        """Make a fresh database; return its URL."""
        self._databases += 1
        name = f"test_{self._databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def is_running(self) -> bool:
        return self._process is not None

    @classmethod
    @contextmanager
    def temporary(cls, **settings: str) -> Iterator["Postgres"]:
        """Run a cluster in a temporary folder while the context lasts."""
        with tempfile.TemporaryDirectory(prefix="hearsay-postgres-") as folder:
            Path(folder).chmod(0o711)  # it runs as another user
            cluster = cls(Path(folder) / "data", **settings)
            try:
                yield cluster
            finally:
                if cluster.is_running():
                    cluster.stop(signal.SIGQUIT)  # nothing of it is to be kept


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A cluster that the tests of one process share; each takes a database of its own."""
    with Postgres.temporary() as cluster:
        yield cluster


EITHER = ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]
"""What stores are tested on; a quick run has the first one alone."""


@pytest.fixture(params=EITHER)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """A place for a store: an empty folder, then an empty database of a real PostgreSQL, with the
    slow tests."""
    if request.param == "sqlite":
        return tmp_path / "data"
    cluster: Postgres = request.getfixturevalue("postgres")
    return cluster.create()
