"""Anchors: a few bytes kept outside of backups, which reveal a restored copy of a ledger.

A copy of a ledger looks like the ledger itself. An anchor remembers, in a place that is never
copied back, which ledger was used last and how often it was secured: an older copy has counted
less far.
"""

import base64
import binascii
import contextlib
import importlib
import os
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol

from hearsay.interrupts import is_from_handler
from hearsay.trouble import Reason, Trouble
from ldp.errors import needs


class Anchor(Protocol):
    """A place for 24 bytes that no backup contains and no restore brings back.

    Both methods may raise any exception; then no answer is taken and nothing leaves.
    """

    def load(self) -> bytes | None:
        """Return the value stored last; None where none was stored yet."""

    def store(self, value: bytes) -> None:
        """Keep a value in place of the last one; it must be durable when this returns."""


class FileAnchor:
    """An anchor in a file, which the app must exclude from its backups."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Name the file. Its folder must exist."""
        self._path = Path(path).absolute()

    def load(self) -> bytes | None:
        """Return the file's content; None where there is no file."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def store(self, value: bytes) -> None:
        """Replace the file by one with this content, which only its owner may read."""
        descriptor, name = tempfile.mkstemp(prefix=f"{self._path.name}.", dir=self._path.parent)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor, not a path)
                file.write(value)
                file.flush()
                os.fsync(descriptor)
            Path(name).replace(self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
        if os.name != "nt":
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


class KeyringAnchor:
    """An anchor in the system's keyring: Keychain, Credential Manager, Secret Service, KWallet."""

    def __init__(self, service: str, name: str) -> None:
        """Name the entry: the app, and the ledger within the app.

        Raises `MissingExtra` where the keyring package is not installed.
        """
        self._keyring = _import_keyring()
        self._entry = service, name

    def load(self) -> bytes | None:
        """Return the entry's bytes; None where there is no entry."""
        text = self._keyring.get_password(*self._entry)
        if text is None:
            return None
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            return b""  # no value of a ledger's; the ledger says so

    def store(self, value: bytes) -> None:
        """Keep a value as base64 text, since a keyring stores text only."""
        self._keyring.set_password(*self._entry, base64.b64encode(value).decode())


def _import_keyring() -> ModuleType:
    # Imported here, because only apps that use this anchor have the package.
    with needs("KeyringAnchor", "keyring"):
        return importlib.import_module("keyring")


_FORMAT = struct.Struct(">16sQ")


@dataclass(frozen=True)
class Mark:
    """The content of an anchor: a ledger's id, and how often that ledger was secured."""

    id: bytes
    count: int

    def differs(self, ledger: "Mark") -> str:
        """Return why `ledger` is not the latest state of this mark's ledger; "" where it may be."""
        if ledger.id != self.id:
            return "the anchor was used by another ledger than this one"
        # A ledger that is ahead was killed before the anchor was told.
        if ledger.count < self.count:
            return (
                f"the ledger is an earlier copy: it was secured {ledger.count} times, "
                f"and the anchor counts {self.count}"
            )
        return ""


def load(anchor: Anchor) -> Mark | None:
    """Return an anchor's mark, None where it is empty; raise `Trouble` where it cannot be read."""
    try:
        value = anchor.load()
    except Exception as error:
        if is_from_handler(error):
            raise
        raise Trouble(Reason.DISK, f"the anchor cannot be read ({_kind(error)})") from error
    if value is None:
        return None
    if not isinstance(value, bytes) or len(value) != _FORMAT.size:
        return Mark(b"", 0)  # not a ledger's, so no ledger has this id
    return Mark(*_FORMAT.unpack(value))


def store(anchor: Anchor, mark: Mark) -> None:
    """Store a mark in an anchor; raise `Trouble` where it cannot be written."""
    try:
        anchor.store(_FORMAT.pack(mark.id, mark.count))
    except Exception as error:
        if is_from_handler(error):
            raise
        raise Trouble(
            Reason.DISK, f"the anchor cannot be written ({_kind(error)}): nothing leaves"
        ) from error


def _kind(error: Exception) -> str:
    """Name an error without its text, which may contain the value."""
    reason = getattr(error, "strerror", None)
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__
