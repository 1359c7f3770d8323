"""What a helper keeps: its key, shares until they are summed, and which records were summed.

A share lies under its record's id, in a table without row numbers: its order tells nothing. The ids
of summed records stay, so that no record is ever in two sums.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from hearsay.sealed import hpke
from hearsay.sealed.shares import ID_BYTES
from hearsay_server import private
from hearsay_server.at_rest import NOT_ENCRYPTED, AtRest
from hearsay_server.elsewhere.own_file import OwnFile, opened, read_declared, translated
from ldp.errors import InvalidInput
from ldp.two_servers.shares import sum_rests

_SCHEMA = """
CREATE TABLE IF NOT EXISTS key (one INTEGER PRIMARY KEY CHECK (one = 1), private BLOB, public BLOB);
CREATE TABLE IF NOT EXISTS shares (
    survey TEXT, period TEXT, id BLOB, share BLOB NOT NULL,
    PRIMARY KEY (survey, period, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS summed (
    survey TEXT, period TEXT, id BLOB, PRIMARY KEY (survey, period, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sums (
    survey TEXT, period TEXT, ids BLOB, records INTEGER NOT NULL, sum BLOB NOT NULL,
    PRIMARY KEY (survey, period, ids)) WITHOUT ROWID;
"""

_PRIVATE = "the helper's private key"
"""Where it is stored, as `AtRest` is told."""

_HERE = "survey = ? AND period = ?"


class NoSum(InvalidInput):
    """A set cannot be summed: it is too small, not all here, or overlaps one that was summed."""


@dataclass(frozen=True)
class Held:
    """The shares of one period, or of one round of a training: how many wait, how many were summed,
    and in how many sums."""

    survey: str
    period: str
    waiting: int
    summed: int
    sums: int


class Shares(OwnFile):
    """The shares of a helper, in one file. Safe from several threads at once."""

    def __init__(self, folder: Path, keys: AtRest = NOT_ENCRYPTED) -> None:
        """Open the folder's file, and make it, with a key, if missing; raise as `OwnFile`.

        The key's private half is encrypted under `keys`, also if it was not; raises `KeyLost` where
        it is encrypted under another one.
        """
        super().__init__(folder, "shares", _SCHEMA, "helper")
        try:
            with self.writing() as connection:
                if connection.execute("SELECT 1 FROM key").fetchone() is None:
                    connection.execute("INSERT INTO key VALUES (1, ?, ?)", hpke.new_pair())
                query = "SELECT private, public FROM key"
                ((stored, self.public),) = connection.execute(query)
                self.private = keys.opened(stored, _PRIVATE)
                if not keys.is_current(stored):
                    sealed = keys.seal(self.private, _PRIVATE)
                    connection.execute("UPDATE key SET private = ?", (sealed,))
        except BaseException:
            self.close()
            raise

    def add(self, survey: str, period: str, some: Iterable[tuple[bytes, bytes]]) -> list[bool]:
        """Store shares by id durably; return for each whether it is new.

        A record that was summed is not stored again, and neither is another share of an id.
        """
        added = []
        with self.writing() as connection:
            for id_, share in some:
                known = connection.execute(
                    f"SELECT 1 FROM summed WHERE {_HERE} AND id = ?", (survey, period, id_)
                ).fetchone()
                done = known is None and connection.execute(
                    "INSERT OR IGNORE INTO shares VALUES (?, ?, ?, ?)", (survey, period, id_, share)
                )
                added.append(bool(done and done.rowcount))
        return added

    def waiting(self, survey: str, period: str, ids: Sequence[bytes]) -> list[bytes]:
        """Return those of some ids whose shares are here, in their order."""
        with self.reading() as connection:
            query = f"SELECT id FROM shares WHERE {_HERE}"
            here = {bytes(id_) for (id_,) in connection.execute(query, (survey, period))}
        return [id_ for id_ in ids if id_ in here]

    def sum(self, survey: str, period: str, ids: bytes, least: int, dim: int, bits: int) -> bytes:
        """Return the sum of the shares of a set, given as rising ids; it is durable, and its shares
        are deleted. The same set gets the same sum again.

        Raises `NoSum`, with nothing changed, for ids that do not rise, fewer than `least`, and ids
        that are not here, as those of records that are in another sum.
        """
        each = split(ids)
        if any(later <= earlier for earlier, later in pairwise(each)):
            raise NoSum("the ids of a set must rise, each once")
        if len(each) < least:
            raise NoSum(f"a sum is of {least:,} records or more, got {len(each):,}")
        digest = hashlib.sha256(ids).digest()
        with self.writing() as connection:
            found = connection.execute(
                f"SELECT sum FROM sums WHERE {_HERE} AND ids = ?", (survey, period, digest)
            ).fetchone()
            if found is not None:
                return bytes(found[0])
            shares = _shares(connection, survey, period, each)
            total = sum_rests(shares, dim, bits).tobytes()
            keys = [(survey, period, id_) for id_ in each]
            connection.executemany(f"DELETE FROM shares WHERE {_HERE} AND id = ?", keys)
            connection.executemany("INSERT INTO summed VALUES (?, ?, ?)", keys)
            connection.execute(
                "INSERT INTO sums VALUES (?, ?, ?, ?, ?)",
                (survey, period, digest, len(each), total),
            )
        return total


def _shares(
    connection: sqlite3.Connection, survey: str, period: str, ids: Sequence[bytes]
) -> Iterator[bytes]:
    """Yield the shares of a set one by one: all of them may be gigabytes."""
    query = f"SELECT share FROM shares WHERE {_HERE} AND id = ?"
    for id_ in ids:
        row = connection.execute(query, (survey, period, id_)).fetchone()
        if row is None:
            raise NoSum(
                f"of record {id_.hex()[:12]} no share waits here: it never came, or it is in "
                "another sum"
            )
        yield row[0]


def split(ids: bytes) -> list[bytes]:
    """Return the ids that stand one after the other; raise `InvalidInput` for a part of one."""
    if len(ids) % ID_BYTES:
        raise InvalidInput(f"ids have {ID_BYTES} bytes each, got {len(ids)} bytes")
    return [ids[first : first + ID_BYTES] for first in range(0, len(ids), ID_BYTES)]


def look(folder: Path) -> tuple[str, list[Held], dict[str, bytes], dict[str, bytes]]:
    """Return the public key in hex, what is held by survey and period, the plans and the trainings,
    in a folder, also while a helper runs there. Raises `InvalidInput` where there is nothing."""
    file = folder / "shares.db"
    if not private.is_there(file):
        raise InvalidInput(f"there is no helper's data in {folder}")
    connection = opened(file, "?mode=rw")  # which takes back what a kill left half done
    try:
        with translated():
            ((public,),) = connection.execute("SELECT public FROM key")
            counted: dict[tuple[str, str], list[int]] = {}
            for place, query in enumerate(
                (
                    "SELECT survey, period, count(*) FROM shares GROUP BY survey, period",
                    "SELECT survey, period, sum(records) FROM sums GROUP BY survey, period",
                    "SELECT survey, period, count(*) FROM sums GROUP BY survey, period",
                )
            ):
                for survey, period, count in connection.execute(query):
                    counted.setdefault((survey, period), [0, 0, 0])[place] = count
            held = [Held(*key, *counts) for key, counts in sorted(counted.items())]
            plans = read_declared(connection, "survey")
            return bytes(public).hex(), held, plans, read_declared(connection, "training")
    finally:
        connection.close()
