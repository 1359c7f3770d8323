"""The write-ahead log of a device's file, and what makes it durable although a sync may fail.

After an fsync that failed, Linux calls the pages that it could not write clean: the next fsync
writes others and reports success, and some file systems go back to what the disk has. So after a
failure all of the log is written again where it stands, once its checksums were found good.
(Rebello et al., "Can applications recover from fsync failures?", USENIX ATC 2020. The format of
the log: https://www.sqlite.org/fileformat2.html#walformat.)
"""

import os
import sqlite3
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from hearsay.trouble import Reason, Trouble

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Begin = Callable[[], AbstractContextManager[sqlite3.Connection]]
"""Begins a transaction, within which nobody else writes to the log."""

_HEADER, _FRAME = 32, 24
_TRIES = 3
"""Others may begin the log anew in between, but only when it has grown long."""


class Log:
    """The log of a database that is open, as a file of our own.

    The same descriptor from opening to closing, because Linux tells each one of every failure to
    write since it was opened, and a later one perhaps of none.
    """

    def __init__(self, database: Path) -> None:
        self._path = Path(f"{database}-wal")
        self._file = self._path.open("r+b", buffering=0)
        self.trusted = False
        """Whether what was written before the last sync is on the disk. Of an earlier process's
        syncs it is not known how they went."""

    def close(self) -> None:
        """Let go of the file; a sync under way in another thread may fail."""
        self._file.close()

    def sync(self, begin: Begin) -> None:
        """Have all transactions that were committed on the disk when this returns.

        Raises `Trouble`: of the disk, where that fails, and `CORRUPT` where a part of the log
        is lost.
        """
        try:
            if not self.trusted:
                self._write_again(begin)
            self.trusted = False
            # Without any lock: no answer waits for the disk.
            _sync(self._file.fileno())
            _sync_folder(self._path.parent)
            if not os.path.samestat(os.fstat(self._file.fileno()), self._path.stat()):
                raise OSError(f"{self._path} is not the file that was opened")
        except (OSError, ValueError) as error:  # a ValueError: it was closed meanwhile
            raise Trouble(
                Reason.DISK,
                f"the disk did not take the ledger's log ({error}): nothing leaves before all of "
                "it was written again",
            ) from error
        self.trusted = True

    def _write_again(self, begin: Begin) -> None:
        """Write the log's bytes once more, so that the next sync says how writing them went."""
        for _ in range(_TRIES):
            mark = os.urandom(16)
            with begin() as connection:
                connection.execute("INSERT OR REPLACE INTO settings VALUES ('mark', ?)", (mark,))
            content = self._read()
            content = content[: intact(content)]
            with begin():
                # The header changes when the log begins anew, its content moved to the database.
                if mark in content and self._read(_HEADER) == content[:_HEADER]:
                    self._file.seek(0)
                    while content:
                        content = content[self._file.write(content) :]
                    return
        raise Trouble(Reason.CORRUPT, "the disk lost a part of the ledger's log")

    def _read(self, size: int = -1) -> bytes:
        self._file.seek(0)
        return self._file.read(size)


def intact(log: bytes) -> int:
    """Return how many bytes of a log, from its beginning, are whole transactions as they were
    written: those that SQLite would recover."""
    if len(log) < _HEADER:
        return 0
    magic, _, size, _, *header = struct.unpack_from(">8I", log)
    pairs = struct.Struct(">2I" if magic & 1 else "<2I")

    def summed(data: bytes, s: int, t: int) -> list[int]:
        for x, y in pairs.iter_unpack(data):
            s = (s + x + t) & 0xFFFFFFFF
            t = (t + y + s) & 0xFFFFFFFF
        return [s, t]

    salt, sums = header[:2], summed(log[: _HEADER - 8], 0, 0)
    if magic & ~1 != 0x377F0682 or size < 512 or size & (size - 1) or sums != header[2:]:
        return 0
    whole = 0
    for begin in range(_HEADER, len(log) - _FRAME - size + 1, _FRAME + size):
        page = begin + _FRAME
        _, ends_transaction, *seal = struct.unpack_from(">6I", log, begin)
        sums = summed(log[begin : begin + 8] + log[page : page + size], *sums)
        if seal != salt + sums:
            break
        if ends_transaction:
            whole = page + size
    return whole


def _sync_folder(folder: Path) -> None:
    """Have a folder's list of files on the disk when this returns."""
    if os.name == "nt":
        return  # Windows keeps folders by itself
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    """Have a file's content on the disk when this returns."""
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone does not reach the platter
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)
