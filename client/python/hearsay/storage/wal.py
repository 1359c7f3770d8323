"""The write-ahead log of a device's file: its durability, and the main file that expects it.

After an fsync that failed, Linux calls the pages that it could not write clean: the next fsync
writes others and reports success, and some file systems go back to the disk's content. So after a
failure all of the log is written again where it stands, once its checksums were found good.
(Rebello et al., "Can applications recover from fsync failures?", USENIX ATC 2020. The format of
the log: https://www.sqlite.org/fileformat2.html#walformat.)

A main file without its log is an older state of the ledger. So the main file notes which log it
expects. After a complete checkpoint, which moves all of the log into the main file, SQLite begins
the log anew at its beginning: a new life of the log, whose header has the next salt. The main
file expects a life by this number.
"""

import os
import shutil
import sqlite3
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from hearsay.interrupts import is_from_handler
from hearsay.storage.alone import alone
from hearsay.storage.room import Room
from hearsay.trouble import Reason, Trouble

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

R = TypeVar("R")


class Transact(Protocol):
    """Runs a function in one transaction, within which nobody else writes to the log."""

    def __call__(self, work: Callable[[sqlite3.Connection], R], /) -> R:
        """Run `work` and return its result."""


LONG_LOG = 1 << 18
"""Bytes of the log at which a checkpoint is due, on a disk with space."""
_PART = 4
"""On a disk with less space, a checkpoint is due when the log fills one part in so many of the
space open to it. The main file then has space for all pages that are new in the log, and the next
checkpoint for its note."""

_HEADER, _FRAME = 32, 24
_MAGIC = 0x377F0682
_TRIES = 50
"""Tries to write the log again: other processes may begin the log anew in between."""


@dataclass(frozen=True)
class Life:
    """One life of a log, as its header has it."""

    number: int  # the first of two salts: random in a new log, then one more in each life
    new: bool  # the log has had no life before
    page: int  # bytes
    seal: bytes  # both salts, which each frame of this life has


TABLE = "CREATE TABLE log (expected TEXT NOT NULL)"
"""The table of one row, whose text never changes its length: so it is on one page for ever, and
can be read from a main file in which a checkpoint was cut short."""

MAY_GO = (
    "UPDATE log SET expected = replace(expected, 'needed', 'may go') WHERE expected LIKE '%needed'"
)
"""The statement that every connection runs first, and every checkpoint last."""


@dataclass(frozen=True)
class Expected:
    """The log that a main file expects: the life of number `life`, or the life before with at least
    `frames` frames, all of which are in the main file already or being moved there.

    `needed` stands in the main file while a ledger is in use. In the log, over it, stands that
    the log may go: SQLite takes this into the main file when the last connection closes, and
    then removes the log. A store that closes names the next life there, which no log has yet: so
    none that was kept is taken for the one that a killed close left.
    """

    life: int
    frames: int
    needed: bool

    def __str__(self) -> str:
        """Return the text that the table holds."""
        rest = "needed" if self.needed else "may go"
        return f"{self.life:08x} {self.frames:08x} {rest}"

    @classmethod
    def parse(cls, text: str) -> "Expected":
        """Parse the text that the table holds."""
        life, frames, rest = text.split(" ", 2)
        return cls(int(life, 16), int(frames, 16), rest == "needed")


NO_LOG = Expected(0, 0, needed=False)
"""The expectation of a new main file, which has no log."""


def mismatch(expected: Expected, log: Path) -> str:
    """Return why a log cannot be the log that the main file expects; "" where it can be.

    A new log has nothing in it yet that counts: an opening ends with a checkpoint. Beside a main
    file that was closed, a log of the same life is older: the close moved all of it.
    """
    try:
        file = log.open("rb", buffering=0)
    except FileNotFoundError:
        missing = f"the log {log} is missing, and with it what was spent last"
        return missing if expected.needed else ""
    with file:
        life = _life(file)
        if life is None:
            empty = f"the log {log} is empty or damaged, and what was spent last is lost"
            return empty if expected.needed else ""
        if life.number == expected.life if expected.needed else life.new:
            return ""
        if life.number == _next(expected.life, -1) and (
            _frames(file, life) >= expected.frames
            # Where a close was killed, the log has this text; an older log has not.
            and (expected.needed or str(expected).encode() in _read(file))
        ):
            return ""
    return f"the log {log} is not the one that the ledger was last used with"


class Log:
    """The log of an open database, opened by us as a file.

    The descriptor stays the same from opening to closing, because Linux tells a descriptor of
    every failure to write since it was opened, and a later descriptor perhaps of none.
    """

    def __init__(self, database: Path) -> None:
        self._path = Path(f"{database}-wal")
        self._file = self._path.open("r+b", buffering=0)
        self._listed = False  # durably, in its folder
        self.room = Room(database.parent)
        """Reserved disk space, which a checkpoint may use on a full disk."""
        self.trusted = False
        """Whether all writes before the last sync are on the disk. Whether the syncs of an earlier
        process succeeded is not known."""

    def close(self) -> None:
        """Close the file; a sync under way in another thread may fail."""
        self.room.give()
        self._file.close()

    def sync(self, transact: Transact) -> None:
        """Sync the log: all committed transactions are on the disk when this returns.

        Raises `Trouble`: of the disk, where that fails, and `CORRUPT` where a part of the log
        is lost.
        """
        try:
            if not self.trusted:
                self._write_again(transact)
            self.trusted = False
            # Without any lock: no answer waits for the disk.
            _sync(self._file.fileno())
            if not self._listed:
                _sync_folder(self._path.parent)
            if not os.path.samestat(os.fstat(self._file.fileno()), self._path.stat()):
                raise OSError(f"{self._path} is not the file that was opened")
        except (OSError, ValueError) as error:  # a ValueError: it was closed meanwhile
            if is_from_handler(error):
                raise
            raise Trouble(
                Reason.DISK,
                f"the disk did not take the ledger's log ({error}): nothing leaves before all of "
                "it was written again",
            ) from error
        self._listed = self.trusted = True

    def expected(self, *, needed: bool) -> Expected:
        """Return the log that the main file is to expect once all of this life is in it. To be
        called in a transaction, after something was ever written to the log."""
        life = self._life()
        return Expected(_next(life.number, 1), _frames(self._file, life), needed)

    def is_in(self, life: int) -> bool:
        """Tell whether the log is in the life of this number."""
        return self._life().number == life

    def is_before(self, life: int) -> bool:
        """Tell whether the log is in the life before the one of this number."""
        return self._life().number == _next(life, -1)

    def size(self) -> int:
        """Return how many bytes this life of the log has. The file may be longer."""
        life = _life(self._file)
        return _HEADER + _frames(self._file, life) * (_FRAME + life.page) if life else 0

    def limit(self) -> int:
        """Return the bytes of this life at which a checkpoint is due."""
        free = shutil.disk_usage(self._path.parent).free
        return min(LONG_LOG, (free + os.fstat(self._file.fileno()).st_size) // _PART)

    def alone(self, wait: float, work: Callable[[], R]) -> R:
        """Run `work` while no other process runs something by this method; see `alone`."""
        return alone(self._file.fileno(), wait, work)

    def _life(self) -> Life:
        life = _life(self._file)
        if life is None:
            raise Trouble(Reason.CORRUPT, "the disk lost the beginning of the ledger's log")
        return life

    def _write_again(self, transact: Transact) -> None:
        """Write the log's bytes once more, so that the next sync says how writing them went."""
        for _ in range(_TRIES):
            mark = os.urandom(16)
            before = self._marked(transact, mark)
            content = _read(self._file)
            content = content[: intact(content)]
            if _life(self._file) != before:
                continue  # with that mark, or since; it may be in the main file by now
            if mark not in content:
                raise Trouble(Reason.CORRUPT, "the disk lost a part of the ledger's log")
            if self._overwrote(transact, content):
                return
        raise Trouble(Reason.LOCKED, "other processes begin the ledger's log anew all the time")

    def _marked(self, transact: Transact, mark: bytes) -> Life | None:
        """Write a mark to the log; return the life that the log was in just before."""

        def leave(connection: sqlite3.Connection) -> Life | None:
            connection.execute("INSERT OR REPLACE INTO settings VALUES ('mark', ?)", (mark,))
            return _life(self._file)

        return transact(leave)

    def _overwrote(self, transact: Transact, content: bytes) -> bool:
        """Write the log's content over itself; return False where the log has begun anew."""

        def overwrite(_: sqlite3.Connection) -> bool:
            if _read(self._file, _HEADER) != content[:_HEADER]:
                return False
            self._file.seek(0)
            rest = content
            while rest:
                rest = rest[self._file.write(rest) :]
            return True

        return transact(overwrite)


def intact(log: bytes) -> int:
    """Return how many bytes of a log, from its beginning, are whole transactions as they were
    written, which SQLite would recover."""
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
    if magic & ~1 != _MAGIC or size < 512 or size & (size - 1) or sums != header[2:]:
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


def _life(file: BinaryIO) -> Life | None:
    """Return the life that a log is in; None where it is empty or not a log."""
    header = _read(file, _HEADER)
    if len(header) < _HEADER:
        return None
    # Each connection counts checkpoints by itself, from 0 in a new log; the salt they share.
    magic, _, page, checkpoints, salt, _, _, _ = struct.unpack(">8I", header)
    if magic & ~1 != _MAGIC:
        return None
    return Life(salt, checkpoints == 0, page, header[16:24])


def _frames(file: BinaryIO, life: Life) -> int:
    """Return how many frames a life of the log has; frames of earlier lives come after them."""
    low, high = 0, (os.fstat(file.fileno()).st_size - _HEADER) // (_FRAME + life.page)
    while low < high:
        middle = (low + high) // 2
        file.seek(_HEADER + middle * (_FRAME + life.page) + 8)
        if file.read(8) == life.seal:
            low = middle + 1
        else:
            high = middle
    return low


def _next(number: int, by: int) -> int:
    """Add to the number of a life, which has 32 bits."""
    return (number + by) & 0xFFFFFFFF


def _read(file: BinaryIO, size: int = -1) -> bytes:
    file.seek(0)
    return file.read(size)


def _sync_folder(folder: Path) -> None:
    """Sync a folder's list of files to the disk."""
    if os.name == "nt":
        return  # Windows keeps folders by itself
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    """Sync a file's content to the disk."""
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone does not reach the platter
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)
