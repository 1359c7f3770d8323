"""A restored copy of a ledger is recognised by what an anchor keeps outside of the backups."""

import os
import shutil
import sqlite3
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import keyring
import pytest
from disks import SmallDisk
from keyrings.alt.file import PlaintextKeyring

from hearsay.storage.anchors import Anchor, FileAnchor, KeyringAnchor
from hearsay.storage.new_ledger import create_ledger
from hearsay.storage.store import Store
from hearsay.trouble import Reason, Trouble
from ldp.errors import InvalidInput, MissingExtra, StorageFailed

NOW = datetime(2026, 7, 4, 12, tzinfo=UTC)


@pytest.fixture
def anchor(tmp_path: Path) -> FileAnchor:
    """An anchor that is empty."""
    return FileAnchor(tmp_path / "anchor")


def a_store(file: Path, anchor: Anchor | None) -> Store:
    return Store(file, lambda: NOW, anchor=anchor)


def send(file: Path, anchor: Anchor | None, times: int = 1) -> None:
    """Use a ledger as a client does that sends so many batches."""
    store = a_store(file, anchor)
    for _ in range(times):
        store.write(
            lambda c: c.execute(
                "INSERT INTO counters VALUES ('s', 'sent', 1)"
                " ON CONFLICT DO UPDATE SET count = count + 1"
            )
        )
        store.secure()
    assert store.lost == ""
    store.release()


def lost(file: Path, anchor: Anchor | None) -> str:
    """Return why an opened ledger is lost, and check that it says so."""
    store = a_store(file, anchor)
    store.probe()
    assert store.created == (NOW if store.lost else None)
    store.release()
    return store.lost


def copy(file: Path, name: str) -> Path:
    return Path(shutil.copy(file, file.with_name(name)))


def test_the_latest_ledger_is_the_one_that_the_anchor_knows(file: Path, anchor: FileAnchor) -> None:
    assert lost(file, anchor) == ""
    send(file, anchor, 3)
    assert lost(file, anchor) == ""
    value = anchor.load()
    assert value is not None
    assert len(value) == 24
    assert int.from_bytes(value[16:], "big") == 3


def test_a_complete_copy_that_was_restored_is_lost(file: Path, anchor: FileAnchor) -> None:
    send(file, anchor)
    backup = copy(file, "backup.db")
    send(file, anchor)
    backup.replace(file)
    assert "an earlier copy: it was secured 1 times, and the anchor counts 2" in lost(file, anchor)
    send_after = a_store(file, anchor)  # adopted: it is known again
    send_after.secure()
    send_after.release()
    value = anchor.load()
    assert value is not None
    assert int.from_bytes(value[16:], "big") == 4


def test_without_an_anchor_a_complete_copy_is_not_recognised(file: Path) -> None:
    send(file, None)
    backup = copy(file, "backup.db")
    send(file, None)
    backup.replace(file)
    assert lost(file, None) == ""


def test_a_copy_from_before_anything_was_sent_is_lost(file: Path, anchor: FileAnchor) -> None:
    assert lost(file, anchor) == ""
    backup = copy(file, "backup.db")
    send(file, anchor)
    backup.replace(file)
    assert "it was secured 0 times, and the anchor counts 1" in lost(file, anchor)


def test_the_original_is_lost_once_a_restored_copy_was_used(file: Path, anchor: FileAnchor) -> None:
    send(file, anchor)
    older = copy(file, "older.db")
    send(file, anchor)
    assert "earlier copy" in lost(older, anchor)
    assert "earlier copy" in lost(file, anchor)


def test_a_copy_on_a_device_with_an_empty_anchor_is_lost(file: Path, anchor: FileAnchor) -> None:
    send(file, anchor)
    elsewhere = FileAnchor(file.with_name("another"))
    assert "it is a copy on another device" in lost(file, elsewhere)
    assert elsewhere.load() is not None


def test_a_ledger_that_never_had_an_anchor_adopts_an_empty_one(
    file: Path, anchor: FileAnchor
) -> None:
    send(file, None, 5)
    assert lost(file, anchor) == ""
    send(file, anchor)
    assert anchor.load() is not None


@pytest.mark.parametrize("other", ["a ledger", "something else"])
def test_an_anchor_that_another_ledger_used_is_a_loss(
    file: Path, anchor: FileAnchor, other: str
) -> None:
    if other == "a ledger":
        second = file.with_name("second.db")
        create_ledger(second)
        send(second, anchor, 7)
    else:
        anchor.store(b"something")
    assert "used by another ledger" in lost(file, anchor)
    store = a_store(file, anchor)
    store.secure()
    assert "used by another ledger" in store.lost  # still, but no further
    store.release()
    value = anchor.load()
    assert value is not None
    assert int.from_bytes(value[16:], "big") == (9 if other == "a ledger" else 2)


def test_a_ledger_whose_anchor_is_behind_was_killed_in_between(
    file: Path, anchor: FileAnchor
) -> None:
    send(file, anchor)
    before = anchor.load()
    assert before is not None
    send(file, anchor)
    anchor.store(before)
    assert lost(file, anchor) == ""
    send(file, anchor)
    value = anchor.load()
    assert value is not None
    assert int.from_bytes(value[16:], "big") == 3


class Failing:
    """An anchor that raises, or not."""

    def __init__(self, anchor: Anchor) -> None:
        self.anchor = anchor
        self.loads = self.stores = True

    def load(self) -> bytes | None:
        if not self.loads:
            raise RuntimeError("no access to b'secret'")
        return self.anchor.load()

    def store(self, value: bytes) -> None:
        if not self.stores:
            raise RuntimeError(f"cannot keep {value!r}")
        self.anchor.store(value)


def test_an_anchor_that_cannot_be_written_lets_nothing_leave(
    file: Path, anchor: FileAnchor
) -> None:
    failing = Failing(anchor)
    store = a_store(file, failing)
    store.secure()
    failing.stores = False
    with pytest.raises(Trouble) as found:
        store.secure()
    assert str(found.value) == "the anchor cannot be written (RuntimeError): nothing leaves"
    assert found.value.status.reason is Reason.DISK
    failing.stores = True
    store.secure()
    store.release()
    assert lost(file, failing) == ""


@pytest.mark.parametrize("on_the_same_disk", [False, True])
def test_a_full_disk_lets_the_anchor_be_told(
    small_disk: SmallDisk, anchor: FileAnchor, on_the_same_disk: bool
) -> None:
    file = small_disk.ledger()
    if on_the_same_disk:
        anchor = FileAnchor(small_disk.folder / "anchor")
    send(file, anchor)
    backup = file.read_bytes()
    store = a_store(file, anchor)
    store.probe()
    small_disk.fill_log(file)
    store.secure()
    store.release()
    small_disk.empty()
    assert lost(file, anchor) == ""
    file.write_bytes(backup)  # of the closed ledger
    assert "is an earlier copy" in lost(file, anchor)


def test_an_anchor_that_cannot_be_read_lets_nothing_be_taken(
    file: Path, anchor: FileAnchor
) -> None:
    failing = Failing(anchor)
    failing.loads = False
    store = a_store(file, failing)
    with pytest.raises(Trouble) as found:
        store.probe()
    assert str(found.value) == "the anchor cannot be read (RuntimeError)"
    assert found.value.status.reason is Reason.DISK
    failing.loads = True
    assert lost(file, failing) == ""


def test_an_anchor_has_been_told_only_of_what_is_in_the_main_file(
    file: Path, anchor: FileAnchor
) -> None:
    counts = []

    class Watching(Failing):
        def store(self, value: bytes) -> None:
            alone = sqlite3.connect(f"{file.as_uri()}?immutable=1", uri=True)
            counts.append(
                (
                    int.from_bytes(value[16:], "big"),
                    *alone.execute("SELECT value FROM settings WHERE name = 'anchored'").fetchone(),
                )
            )
            alone.close()
            super().store(value)

    send(file, Watching(anchor), 3)
    assert counts == [(1, 1), (2, 2), (3, 3)]


def test_a_ledger_is_not_vouched_for_where_the_anchor_knows_an_earlier_one(
    file: Path, anchor: FileAnchor
) -> None:
    first = file.with_name("first.db")
    create_ledger(first, anchor=anchor)
    send(first, anchor)
    first.unlink()
    with pytest.raises(InvalidInput, match="the anchor knows an earlier ledger"):
        create_ledger(first, anchor=anchor)
    assert not first.exists()
    failing = Failing(anchor)
    failing.loads = False
    with pytest.raises(StorageFailed, match="the anchor cannot be read"):
        create_ledger(first, anchor=failing)


def test_two_stores_share_a_ledger_and_an_anchor(file: Path, anchor: FileAnchor) -> None:
    first, second = a_store(file, anchor), a_store(file, anchor)
    for _ in range(3):
        first.secure()
        second.secure()
    first.release()
    second.release()
    assert lost(file, anchor) == ""


def test_a_file_anchor_replaces_its_file_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "anchor"
    anchor = FileAnchor(path)
    assert anchor.load() is None
    anchor.store(b"one")
    inode = path.stat().st_ino
    anchor.store(b"another")
    assert anchor.load() == b"another"
    assert path.stat().st_ino != inode
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["anchor"]  # noqa: PTH208
    with pytest.raises(FileNotFoundError):
        FileAnchor(tmp_path / "nowhere" / "anchor").store(b"value")


def test_a_keyring_anchor_says_which_package_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(MissingExtra, match=r"needs keyring: pip install 'hearsay-ldp\[keyring\]'"):
        KeyringAnchor("app", "ledger")


@pytest.fixture
def in_a_file(tmp_path: Path) -> Iterator[None]:
    """Let keyring keep its entries in a file, where a desktop has a keyring of its own."""
    before, kept = keyring.get_keyring(), PlaintextKeyring()
    kept.file_path = str(tmp_path / "keyring.cfg")
    keyring.set_keyring(kept)
    yield
    keyring.set_keyring(before)


@pytest.mark.usefixtures("in_a_file")
def test_a_keyring_anchor_keeps_bytes_as_text(file: Path) -> None:
    anchor = KeyringAnchor("app", "ledger")
    assert anchor.load() is None
    anchor.store(bytes(range(24)))
    assert keyring.get_password("app", "ledger") == "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
    assert anchor.load() == bytes(range(24))
    keyring.delete_password("app", "ledger")
    send(file, anchor, 2)
    assert lost(file, anchor) == ""
    keyring.set_password("app", "ledger", "no base64")
    assert "used by another ledger" in lost(file, anchor)
