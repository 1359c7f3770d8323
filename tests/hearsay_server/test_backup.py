"""A backup is one state, and restores into either kind of database as it was."""

import contextlib
import random
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from command import hearsay
from disks import mounted
from postgres import EITHER, Postgres
from stored import OLDER_ROW, add, batch, daily, register, tallied, write_older

from hearsay_server.storage import audit, migrations, retention, schema
from hearsay_server.storage.backup import backup, restore
from hearsay_server.storage.database import as_it_was, open_folder
from hearsay_server.storage.store import Store
from hearsay_server.storage.tokens import Tokens
from hearsay_server.storage.verify import Verdict, verify
from ldp.errors import InvalidInput, StorageFailed


@pytest.fixture(params=EITHER)
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Another place, which is empty."""
    if request.param == "sqlite":
        opened = Store(tmp_path / "other")
    else:
        cluster: Postgres = request.getfixturevalue("postgres")
        opened = Store(cluster.create())
    yield opened
    opened.close()


def everything(store: Store) -> dict[str, list[tuple[object, ...]]]:
    tables = [table for table in schema.metadata.sorted_tables if table is not schema.probes]
    with store.database.reading() as connection:
        return {
            table.name: sorted(tuple(row) for row in connection.execute(sa.select(table)))
            for table in tables
        }


def test_a_backup_and_what_is_restored_from_it_have_no_order_of_arrival(
    store: Store, tmp_path: Path, postgres: Postgres
) -> None:
    for number in (5, 2, 9, 1, 7):
        add(store, [batch(number)])
    backup(store.database, tmp_path / "backup")
    other = Store(postgres.create())
    restore(tmp_path / "backup", other.database)
    with other.database.reading() as connection:
        ids = connection.exec_driver_sql("SELECT id FROM batches ORDER BY ctid").scalars()
        assert [int.from_bytes(id_, "big") for id_ in ids] == [1, 2, 5, 7, 9]
    other.close()


def test_a_backup_is_read_where_it_lies_and_copied_nowhere(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, [batch(1)])
    folder = tmp_path / "read only # 1?"
    folder.mkdir()
    backup(store.database, folder / "backup")
    other = open_folder(tmp_path / "other")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    restore(folder / "backup", other)
    assert [path.name for path in folder.iterdir()] == ["backup"]
    assert {checked.verdict for checked in verify(other)} == {Verdict.EQUAL}
    other.close()


def test_a_backup_of_an_older_schema_is_upgraded_on_the_way(tmp_path: Path) -> None:
    old = write_older(tmp_path / "backup")
    before = old.read_bytes()
    target = open_folder(tmp_path / "other")
    restore(old, target)
    with target.reading() as connection:
        kept = connection.execute(sa.select(schema.token_rows)).one()
    assert kept == OLDER_ROW
    assert old.read_bytes() == before
    target.close()


def test_what_is_restored_is_what_was_backed_up(store: Store, other: Store, tmp_path: Path) -> None:
    sent = [batch(number) for number in range(5)] + [daily(20), daily(21, 1)]
    add(store, sent)
    Tokens(store.database).create("admin", "Ada")
    retention.close_survey(store.database, "health")
    backup(store.database, tmp_path / "backup")
    restore(tmp_path / "backup", other.database)
    copied = everything(other)
    *acts, last = audit.entries(other.database)
    assert acts == audit.entries(store.database)
    assert (last.action, last.os_user) == ("restore", audit.this_user())
    assert last.detail == {"file": str(tmp_path / "backup")}
    del copied["audit"]
    assert copied.items() < everything(store).items()
    assert add(other, sent) == [False] * 7
    assert {checked.verdict for checked in verify(other.database)} == {Verdict.EQUAL}


def test_a_backup_is_one_state_of_a_server_that_goes_on(store: Store, tmp_path: Path) -> None:
    """Every tally of the copy is that of its batches, whenever it was taken."""
    done = threading.Event()

    def collect() -> None:
        number = 0
        while not done.is_set():
            add(store, [batch(number), batch(number + 1)])
            number += 2

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        for number in range(3):
            backup(store.database, tmp_path / f"backup-{number}")
    finally:
        done.set()
        thread.join()
    for number in range(3):
        copy = Store(tmp_path / f"restored-{number}")
        restore(tmp_path / f"backup-{number}", copy.database)
        assert {checked.verdict for checked in verify(copy.database)} <= {Verdict.EQUAL}
        copy.close()
    assert sum(t.n for t in tallied(store, "health").values()) > 0


def test_a_refused_restore_leaves_nothing_behind(tmp_path: Path) -> None:
    open_folder(tmp_path / "data").close()
    (tmp_path / "text").write_text("no backup")
    with contextlib.closing(open_folder(tmp_path / "data")) as database:
        backup(database, tmp_path / "good")
    changed = bytearray((tmp_path / "good").read_bytes())
    changed[-1] ^= 1
    (tmp_path / "changed").write_bytes(changed)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "notes").write_text("of the operator")
    for name in ("text", "changed", "missing"):
        for folder in ("new", "new/deeper", "there"):
            done = hearsay("restore", tmp_path / name, "--data", tmp_path / folder)
            assert (done.returncode, done.stderr.count("\n")) == (1, 1)
            assert not (tmp_path / "new").exists()
            assert [path.name for path in (tmp_path / "there").iterdir()] == ["notes"]
    assert hearsay("restore", tmp_path / "good", "--data", tmp_path / "there").returncode == 0
    before = (tmp_path / "there" / "hearsay.db").read_bytes()
    assert hearsay("restore", tmp_path / "good", "--data", tmp_path / "there").returncode == 1
    assert (tmp_path / "there" / "hearsay.db").read_bytes() == before


def test_a_restore_that_finds_the_disk_full_leaves_nothing_behind(tmp_path: Path) -> None:
    """Also where the backup is good: the copy fails half way."""
    with contextlib.closing(Store(tmp_path / "data")) as store:
        register(store)
        add(store, [batch(number) for number in range(2000)])
        backup(store.database, tmp_path / "backup")
    with mounted(tmp_path / "small", "300k") as disk:
        done = hearsay("restore", tmp_path / "backup", "--data", disk.folder / "new" / "deeper")
        assert done.returncode == 1
        assert "make room on its disk" in done.stderr
        assert [*disk.folder.iterdir()] == []


def test_what_others_have_opened_meanwhile_is_not_taken_away(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(RuntimeError), as_it_was(data):
        theirs = open_folder(data)
        raise RuntimeError
    assert (data / "hearsay.db").exists()
    theirs.close()


def test_a_backup_is_one_file_that_only_its_owner_reads(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    backup(store.database, folder / "one")
    assert [path.name for path in folder.iterdir()] == ["one"]
    assert (folder / "one").stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidInput, match="one exists already"):
        backup(store.database, folder / "one")
    with pytest.raises(StorageFailed, match="cannot write"):
        backup(store.database, tmp_path / "missing" / "one")


def test_a_database_that_is_not_empty_is_not_restored_into(store: Store, tmp_path: Path) -> None:
    backup(store.database, tmp_path / "backup")
    before = everything(store)
    with pytest.raises(InvalidInput, match="the database is not empty: it has "):
        restore(tmp_path / "backup", store.database)
    assert everything(store) == before


def _newer(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("DROP TABLE seal")  # which would say that something was changed
    connection.close()


def test_no_changed_byte_is_restored(store: Store, tmp_path: Path) -> None:
    register(store)
    backup(store.database, tmp_path / "backup")
    content = (tmp_path / "backup").read_bytes()
    chance = random.Random(4)
    places = {*range(100), *chance.sample(range(len(content)), 150)}
    places |= {content.index(b"seal") + i for i in range(4)}
    places |= {len(content.rstrip(bytes(1))) - 1 - i for i in range(60)}  # the seal's own
    harmed = tmp_path / "harmed"
    target = open_folder(tmp_path / "other-folder")
    for place in sorted(places):
        changed = bytearray(content)
        changed[place] ^= 1 << chance.randrange(8)
        harmed.write_bytes(changed)
        with pytest.raises((StorageFailed, InvalidInput)):
            restore(harmed, target)
    restore(tmp_path / "backup", target)
    target.close()


def test_the_checksum_of_an_older_backup_counts_too(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup(store.database, tmp_path / "backup")
    harmed = bytearray((tmp_path / "backup").read_bytes())
    harmed[-1] ^= 1
    (tmp_path / "backup").write_bytes(harmed)
    target = open_folder(tmp_path / "other-folder")
    monkeypatch.setattr(migrations, "NEWEST", migrations.NEWEST + 1)  # as a later version
    with pytest.raises(StorageFailed, match="its checksum says"):
        restore(tmp_path / "backup", target)
    target.close()


def _torn(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096:8192] = bytes(4096)
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "kind", "detail"),
    [
        (lambda file: file.unlink(), InvalidInput, "cannot read"),
        (lambda file: file.write_bytes(b"no database" * 1000), StorageFailed, "is no backup"),
        (lambda file: file.write_bytes(b""), InvalidInput, "is no backup: nothing of ours is in"),
        (_newer, StorageFailed, "data of schema 99; this version knows up to"),
        (_torn, StorageFailed, "is damaged|malformed"),
    ],
    ids=["missing", "foreign", "empty", "newer", "torn"],
)
def test_what_is_no_good_backup_is_refused(
    tmp_path: Path, harm: Callable[[Path], object], kind: type[Exception], detail: str
) -> None:
    store = Store(tmp_path / "data")
    register(store)
    backup(store.database, tmp_path / "backup")
    store.close()
    harm(tmp_path / "backup")
    target = open_folder(tmp_path / "other")
    with pytest.raises(kind, match=detail):
        restore(tmp_path / "backup", target)
    with target.reading() as connection:
        assert connection.execute(sa.select(schema.surveys)).all() == []
    target.close()
