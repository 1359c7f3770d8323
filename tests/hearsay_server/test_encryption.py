"""Backups that only the holder of a private key reads, and that leave no plaintext behind."""

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyrage
import pytest
import sqlalchemy as sa
from command import hearsay
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from stored import OLDER_ROW, add, batch, register, tallied, write_older

from hearsay_server.storage import audit, schema
from hearsay_server.storage.backup import backup, restore
from hearsay_server.storage.database import open_folder
from hearsay_server.storage.store import Store
from hearsay_server.storage.verify import Verdict, verify
from ldp.errors import InvalidInput, MissingExtra, StorageFailed


def age_key(file: Path) -> str:
    """Write a private key as age-keygen does; return its public key."""
    key = pyrage.x25519.Identity.generate()
    file.write_text(f"# created: 2026-07-04\n# public key: {key.to_public()}\n{key}\n")
    return str(key.to_public())


def ssh_key(file: Path) -> str:
    """Write a private key as ssh-keygen does; return its public key."""
    key = Ed25519PrivateKey.generate()
    private, public = serialization.PrivateFormat.OpenSSH, serialization.PublicFormat.OpenSSH
    ssh = serialization.Encoding.OpenSSH
    unlocked = serialization.NoEncryption()
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, private, unlocked))
    return key.public_key().public_bytes(ssh, public).decode()


@pytest.mark.parametrize("made", [age_key, ssh_key])
def test_an_encrypted_backup_is_restored_with_the_private_key(
    store: Store, tmp_path: Path, made: Callable[[Path], str]
) -> None:
    recipient = made(tmp_path / "key")
    add(store, [batch(number) for number in range(5)])
    backup(store.database, tmp_path / "backup", [recipient])
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    other = Store(tmp_path / "other")
    restore(tmp_path / "backup", other.database, tmp_path / "key")
    assert tallied(other, "health") == tallied(store, "health")
    assert {checked.verdict for checked in verify(other.database)} == {Verdict.EQUAL}
    written = next(a for a in audit.entries(other.database) if a.action == "back up")
    assert written.detail["recipients"] == [recipient]
    other.close()


def test_each_of_several_recipients_can_restore(store: Store, tmp_path: Path) -> None:
    keys = [age_key(tmp_path / "ada"), age_key(tmp_path / "grace")]
    backup(store.database, tmp_path / "backup", keys)
    for name in ("ada", "grace"):
        other = Store(tmp_path / f"of-{name}")
        restore(tmp_path / "backup", other.database, tmp_path / name)
        assert [s.survey for s in other.surveys()] == ["daily", "health"]
        other.close()


def _is_nowhere(folder: Path, *words: bytes) -> bool:
    contents = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return not any(word in content for content in contents for word in words)


PLAINTEXT = (b"SQLite format 3", b"smokes")

KILLED = """
import os, signal, sys
from pathlib import Path
from hearsay_server.storage import backup, encryption
from hearsay_server.storage.database import open_folder

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

module, name, *arguments = sys.argv[1:]
setattr({"backup": backup, "encryption": encryption}[module], name, die)
command, data, file, key = arguments
if command == "backup":
    backup.backup(open_folder(Path(data)), Path(file), [key])
else:
    backup.restore(Path(file), open_folder(Path(data)), Path(key))
"""


def _killed(*arguments: object) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, *map(str, arguments)], timeout=60)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("module", "name"), [("backup", "_seal"), ("encryption", "encrypt"), ("backup", "_sync")]
)
def test_a_backup_that_is_killed_leaves_no_plaintext(
    tmp_path: Path, module: str, name: str
) -> None:
    """With all rows copied, before they are encrypted, and after."""
    store = Store(tmp_path / "data")
    register(store)
    add(store, [batch(number) for number in range(5)])
    store.close()
    (tmp_path / "backups").mkdir()
    key = age_key(tmp_path / "key")
    _killed(module, name, "backup", tmp_path / "data", tmp_path / "backups" / "one", key)
    assert not (tmp_path / "backups" / "one").exists()
    assert _is_nowhere(tmp_path / "backups", *PLAINTEXT)


def test_a_restore_that_is_killed_leaves_no_plaintext(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "data")
    register(store)
    backup(store.database, tmp_path / "backup", [age_key(tmp_path / "key")])
    store.close()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    where = (tmp_path / "new", tmp_path / "backup", tmp_path / "key")
    _killed("backup", "_copy", "restore", *where)
    assert _is_nowhere(tmp_path / "temporary", *PLAINTEXT)
    assert not _is_nowhere(tmp_path / "data", *PLAINTEXT)


def test_no_changed_byte_of_an_encrypted_backup_is_restored(store: Store, tmp_path: Path) -> None:
    backup(store.database, tmp_path / "backup", [age_key(tmp_path / "key")])
    content = (tmp_path / "backup").read_bytes()
    assert not any(word in content for word in PLAINTEXT)
    chance = random.Random(4)
    target = open_folder(tmp_path / "other-folder")
    harmed = tmp_path / "harmed"
    for place in (0, 30, *chance.sample(range(100, len(content)), 40)):
        changed = bytearray(content)
        changed[place] ^= 1
        harmed.write_bytes(changed)
        with pytest.raises((StorageFailed, InvalidInput)):
            restore(harmed, target, tmp_path / "key")
    for length in (100, len(content) // 2, len(content) - 1):
        harmed.write_bytes(content[:length])
        with pytest.raises(StorageFailed, match="cannot decrypt"):
            restore(harmed, target, tmp_path / "key")
    restore(tmp_path / "backup", target, tmp_path / "key")
    target.close()


def test_the_checksum_within_is_compared_before_anything_is_written(
    store: Store, tmp_path: Path
) -> None:
    """Where somebody who has the public key encrypts a backup that was changed."""
    recipient = age_key(tmp_path / "key")
    backup(store.database, tmp_path / "plain")
    changed = bytearray((tmp_path / "plain").read_bytes())
    changed[-1] ^= 1
    key = pyrage.x25519.Recipient.from_str(recipient)
    (tmp_path / "backup").write_bytes(pyrage.encrypt(bytes(changed), [key]))
    target = open_folder(tmp_path / "other-folder")
    with pytest.raises(StorageFailed, match="is damaged"):
        restore(tmp_path / "backup", target, tmp_path / "key")
    with target.reading() as connection:
        assert connection.execute(sa.select(schema.surveys)).all() == []
    target.close()


def test_an_encrypted_backup_of_an_older_schema_is_upgraded(tmp_path: Path) -> None:
    key = pyrage.x25519.Recipient.from_str(age_key(tmp_path / "key"))
    older = write_older(tmp_path / "older").read_bytes()
    (tmp_path / "backup").write_bytes(pyrage.encrypt(older, [key]))
    target = open_folder(tmp_path / "other")
    restore(tmp_path / "backup", target, tmp_path / "key")
    with target.reading() as connection:
        assert connection.execute(sa.select(schema.token_rows)).one() == OLDER_ROW
    target.close()


def test_keys_that_are_missing_or_wrong_are_said(store: Store, tmp_path: Path) -> None:
    backup(store.database, tmp_path / "backup", [age_key(tmp_path / "key")])
    backup(store.database, tmp_path / "plain")
    age_key(tmp_path / "other-key")
    (tmp_path / "no-key").write_text("AGE-SECRET-KEY-1SECRET\n")
    target = open_folder(tmp_path / "other-folder")
    for file, identity, error, message in (
        ("backup", None, InvalidInput, r"backup is encrypted: give the file .* \(--identity\)"),
        ("plain", "key", InvalidInput, "plain is not encrypted"),
        ("backup", "other-key", StorageFailed, "cannot decrypt .*: No matching keys found"),
        ("backup", "missing", InvalidInput, "cannot read the private key: .*No such file"),
        ("backup", "no-key", InvalidInput, "no-key holds no private key of age"),
    ):
        with pytest.raises(error, match=message) as raised:
            restore(tmp_path / file, target, None if identity is None else tmp_path / identity)
        assert "SECRET\n" not in str(raised.value)
    target.close()


@pytest.mark.parametrize("recipient", ["age1nobody", "ssh-ed25519 AAAA", "ada@example.org", ""])
def test_a_recipient_that_is_no_public_key_is_refused_before_anything_is_written(
    store: Store, tmp_path: Path, recipient: str
) -> None:
    before = audit.entries(store.database)
    with pytest.raises(InvalidInput, match="a recipient is a public key of age"):
        backup(store.database, tmp_path / "backup", [recipient])
    assert not (tmp_path / "backup").exists()
    assert audit.entries(store.database) == before


def test_without_the_library_the_error_names_the_extra(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipient = age_key(tmp_path / "key")
    monkeypatch.setitem(sys.modules, "pyrage", None)
    with pytest.raises(MissingExtra, match=r"needs pyrage: pip install 'hearsay-ldp\[encryption"):
        backup(store.database, tmp_path / "backup", [recipient])
    assert not (tmp_path / "backup").exists()


def test_the_commands_encrypt_and_decrypt(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    register(store)
    store.close()
    recipient = age_key(tmp_path / "key")
    file = tmp_path / "backup"
    done = hearsay("backup", file, "--recipient", recipient, "--data", tmp_path / "data")
    assert (done.returncode, done.stderr) == (0, "")
    assert file.read_bytes().startswith(b"age-encryption.org/v1\n")
    new = ("--data", tmp_path / "new")
    assert "is encrypted" in hearsay("restore", file, *new).stderr
    done = hearsay("restore", file, "--identity", tmp_path / "key", *new)
    assert (done.returncode, done.stderr) == (0, "")
    assert "recipients: age1" in hearsay("audit-log", "--csv", *new).stdout
