"""Commands on a disk that is full: each ends with one line, and a token can be revoked."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import sqlalchemy as sa
from command import hearsay
from disks import SmallDisk, mounted
from postgres import Postgres

from hearsay_server.__main__ import main
from hearsay_server.storage import schema
from hearsay_server.storage.database import Database, open_folder, open_url
from hearsay_server.storage.tokens import Tokens

REVOCATIONS = 12
"""In a row, on a disk that stays full; the reserve has room for 16."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "small", "4m") as found:
        yield found


@contextlib.contextmanager
def filling(folder: Path) -> Iterator[threading.Event]:
    """Let a server write as much as the disk takes while the context lasts; yield an event that is
    set once it is full."""
    full, ended = threading.Event(), threading.Event()

    def write(database: Database) -> None:
        number = 0
        while not ended.is_set():
            number += 1
            row = {"server": f"{number}", "at": 0.0, "filler": bytes(3000)}
            try:
                with database.beside() as connection:
                    connection.execute(sa.insert(schema.probes), row)
            except sa.exc.OperationalError:
                full.set()

    with contextlib.closing(open_folder(folder)) as database:
        thread = threading.Thread(target=write, args=(database,))
        thread.start()
        try:
            yield full
        finally:
            ended.set()
            thread.join()


def state(folder: Path) -> list[str]:
    with contextlib.closing(open_folder(folder)) as database:
        tokens = Tokens(database)
        return [each.state(tokens.clock()) for each in tokens.list()]


def test_tokens_are_revoked_while_they_fill_the_disk(disk: SmallDisk) -> None:
    data = disk.folder / "data"
    with contextlib.closing(open_folder(data)) as database:
        made = [Tokens(database).create("device")[0].id for _ in range(REVOCATIONS)]
    with filling(data) as full:
        assert full.wait(60)
        disk.fill()
        for id_ in made:
            done = hearsay("token", "revoke", id_, "--data", data)
            assert (done.returncode, done.stderr) == (0, "")
        assert (data / "reserve").stat().st_size > 0
    assert state(data) == ["revoked"] * REVOCATIONS


def test_a_token_is_revoked_on_a_full_disk_where_no_server_runs(disk: SmallDisk) -> None:
    data = disk.folder / "data"
    with contextlib.closing(open_folder(data)) as database:
        made = Tokens(database).create("device")[0].id
    disk.fill()
    assert hearsay("token", "revoke", made, "--data", data).returncode == 0
    assert state(data) == ["revoked"]
    disk.empty()
    open_folder(data).close()
    assert (data / "reserve").stat().st_size == 1 << 20  # it is kept again
    assert (data / "reserve").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "command",
    ["token create --role admin", "token rotate {} --grace 1", "retention --keep-days 30"],
)
def test_what_cannot_be_written_is_said_in_one_line(disk: SmallDisk, command: str) -> None:
    data = disk.folder / "data"
    with contextlib.closing(open_folder(data)) as database:
        made = Tokens(database).create("device")[0].id
    disk.fill()
    done = hearsay(*command.format(made).split(), "--data", data)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "hearsay: the database cannot be used: database or disk is full: make room on its disk\n"
    )
    assert state(data) == ["works"]


@pytest.mark.parametrize("command", ["token list", "token list --csv", "config", "token create"])
def test_what_cannot_be_printed_is_said_in_one_line(tmp_path: Path, command: str) -> None:
    data = tmp_path / "data"
    open_folder(data).close()
    argv = ["hearsay", *command.split()]
    argv += [] if command == "config" else ["--data", str(data)]
    argv += ["--role", "admin"] if command == "token create" else []
    with (
        Path("/dev/full").open("w") as full,
        patch.object(sys, "argv", argv),
        patch.object(sys, "stdout", full),
        pytest.raises(SystemExit) as end,
    ):
        main()
        full.flush()
    assert end.value.code == "hearsay: cannot write: No space left on device"


@pytest.mark.parametrize("command", ["token list", "verify", "audit-log", "retention"])
def test_a_database_that_is_damaged_is_said_in_one_line(tmp_path: Path, command: str) -> None:
    open_folder(tmp_path).close()
    content = bytearray((tmp_path / "hearsay.db").read_bytes())
    page = 4096
    content[3 * page :] = b"\xff" * (len(content) - 3 * page)
    (tmp_path / "hearsay.db").write_bytes(content)
    done = hearsay(*command.split(), "--data", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("hearsay: ")
    assert done.stderr.count("\n") == 1


def test_a_database_that_is_gone_meanwhile_is_said_in_one_line(postgres: Postgres) -> None:
    url = postgres.create()
    with contextlib.closing(open_url(url)) as database:
        with database.engine.connect() as connection:
            connection.exec_driver_sql("ALTER TABLE tokens RENAME TO gone")
            connection.commit()
        done = hearsay("token", "list", "--database", url)
    assert done.returncode == 1
    assert done.stderr.startswith('hearsay: the database cannot be used: relation "tokens" does')
    assert done.stderr.count("\n") == 1
