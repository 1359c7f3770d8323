"""What a shuffler keeps: sealed records by survey and period, and nothing of who sent them.

A record lies under the hash of its bytes, in a table without row numbers: neither the table nor its
order tells when it came. Nothing of a token, an address or a time is stored but the day on which a
pool without periods began. The hash of a record that has left stays as long as its period takes
records, so that no repeat of it counts toward the threshold.
"""

import hashlib
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hearsay.sealed import hpke
from hearsay.sealed.keys import key_config
from hearsay.v1 import shuffler_pb2
from hearsay_server import private
from hearsay_server.at_rest import NOT_ENCRYPTED, AtRest, KeyLost
from hearsay_server.elsewhere.own_file import OwnFile, opened, read_declared, translated
from ldp.errors import InvalidInput

_SCHEMA = """
CREATE TABLE IF NOT EXISTS pools (
    survey TEXT, period TEXT, day INTEGER NOT NULL, forwarded INTEGER NOT NULL,
    dropped INTEGER NOT NULL, PRIMARY KEY (survey, period)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS records (
    survey TEXT, period TEXT, leaving INTEGER, hash BLOB, record BLOB NOT NULL,
    PRIMARY KEY (survey, period, hash)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gone (
    survey TEXT, period TEXT, hash BLOB, PRIMARY KEY (survey, period, hash)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mixes (
    survey TEXT, period TEXT, number INTEGER, mix BLOB NOT NULL,
    PRIMARY KEY (survey, period, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gateway_keys (number INTEGER PRIMARY KEY, private BLOB, public BLOB);
"""

_PRIVATE = "the private key for requests through a relay"
"""Where it is stored, as `AtRest` is told."""

_THIS = "survey = ? AND period = ? AND hash = ?"
"""The condition of one record. On its way `leaving` is the number of its mix, and else 0."""


@dataclass(frozen=True)
class Pool:
    """The records of one period: how many gather, and how many are on their way to the collector.

    `day` is the day, counted from 1970, on which the first of those that gather came; `forwarded`
    and `dropped` count what has gone.
    """

    survey: str
    period: str
    day: int
    gathering: int
    leaving: int
    forwarded: int
    dropped: int


class Pools(OwnFile):
    """The records of a shuffler, in one file. Safe from several threads at once."""

    def __init__(self, folder: Path, keys: AtRest = NOT_ENCRYPTED) -> None:
        """Open the folder's file, and make it if missing; raise as `OwnFile`.

        The private keys for requests through a relay are encrypted under `keys`, also those that
        were not; one that is encrypted under another key stays as it is.
        """
        super().__init__(folder, "pools", _SCHEMA, "shuffler")
        self._encryption = keys
        with self.writing() as connection:
            query = "SELECT private, public FROM gateway_keys"
            for stored, public in connection.execute(query).fetchall():
                with suppress(KeyLost):
                    opened = keys.opened(stored, _PRIVATE, public.hex())
                    if not keys.is_current(stored):
                        connection.execute(
                            "UPDATE gateway_keys SET private = ? WHERE public = ?",
                            (keys.seal(opened, _PRIVATE, public.hex()), public),
                        )

    def new_key(self) -> None:
        """Make a key for requests through a relay; of the earlier ones the last alone stays."""
        private, public = hpke.new_pair()
        sealed = self._encryption.seal(private, _PRIVATE, public.hex())
        with self.writing() as connection:
            connection.execute(
                "INSERT INTO gateway_keys (private, public) VALUES (?, ?)", (sealed, public)
            )
            connection.execute(
                "DELETE FROM gateway_keys WHERE number < (SELECT max(number) FROM gateway_keys) - 1"
            )

    def keys(self) -> dict[int, tuple[bytes, bytes]]:
        """Return the private and the public keys for requests through a relay, the newest first.

        Raises `KeyLost` where one is encrypted under a key that is not here.
        """
        with self.reading() as connection:
            found = _keys(connection)
        return {
            number: (self._encryption.opened(stored, _PRIVATE, public.hex()), public)
            for number, (stored, public) in found.items()
        }

    def add(self, records: Sequence[shuffler_pb2.SealedRecord], day: int) -> list[bool]:
        """Store records durably; return for each whether it is new: not here, and never left."""
        rows = [(each.survey, each.period, *_hashed(each)) for each in records]
        known = f"SELECT 1 FROM gone WHERE {_THIS}"
        added = []
        with self.writing() as connection:
            for survey, period, hash_, data in rows:
                if connection.execute(known, (survey, period, hash_)).fetchone():
                    added.append(False)
                    continue
                done = connection.execute(
                    "INSERT OR IGNORE INTO records VALUES (?, ?, 0, ?, ?)",
                    (survey, period, hash_, data),
                )
                added.append(bool(done.rowcount))
            new = {row[:2] for row, is_new in zip(rows, added, strict=True) if is_new}
            for survey, period in new:
                connection.execute(
                    "INSERT INTO pools VALUES (?, ?, ?, 0, 0) ON CONFLICT DO UPDATE SET day = ? "
                    "WHERE day < 0",
                    (survey, period, day, day),
                )
        return added

    def all(self) -> list[Pool]:
        """Return all pools, by survey and period."""
        with self.reading() as connection:
            return _pools(connection)

    def begin(self, survey: str, period: str, least: int) -> int:
        """Let the records that gather leave, if they are `least` or more; return how many do.

        They are one mix. Whatever comes later gathers anew, for another one: those who leave are at
        least so many, also where the process ends on the way.
        """
        where = (survey, period)
        with self.writing() as connection:
            ((count,),) = connection.execute(
                "SELECT count(*) FROM records WHERE survey = ? AND period = ? AND leaving = 0",
                where,
            )
            if count < least:
                return 0
            ((last,),) = connection.execute(
                "SELECT coalesce(max(number), 0) FROM mixes WHERE survey = ? AND period = ?", where
            )
            connection.execute(
                "INSERT INTO mixes VALUES (?, ?, ?, ?)", (*where, last + 1, secrets.token_bytes(16))
            )
            connection.execute(
                "UPDATE records SET leaving = ? WHERE survey = ? AND period = ? AND leaving = 0",
                (last + 1, *where),
            )
            connection.execute("UPDATE pools SET day = -1 WHERE survey = ? AND period = ?", where)
            return int(count)

    def leaving(self, survey: str, period: str) -> dict[bytes, list[bytes]]:
        """Return the hashes of the records that are on their way, by the id of their mix."""
        query = (
            "SELECT mix, hash FROM records JOIN mixes USING (survey, period) "
            "WHERE survey = ? AND period = ? AND leaving = number ORDER BY number"
        )
        found: dict[bytes, list[bytes]] = {}
        with self.reading() as connection:
            for mix, hash_ in connection.execute(query, (survey, period)):
                found.setdefault(mix, []).append(hash_)
        return found

    def read(self, survey: str, period: str, hashes: Iterable[bytes]) -> list[bytes]:
        """Return records that are on their way, in the order of their hashes."""
        query = f"SELECT record FROM records WHERE {_THIS}"
        with self.reading() as connection:
            found = [connection.execute(query, (survey, period, each)) for each in hashes]
            return [record for rows in found for (record,) in rows]

    def forwarded(self, survey: str, period: str, hashes: Sequence[bytes]) -> None:
        """Delete records that the collector has, but for their hashes."""
        of = (survey, period)
        with self.writing() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO gone VALUES (?, ?, ?)", [(*of, each) for each in hashes]
            )
            connection.executemany(
                f"DELETE FROM records WHERE {_THIS}",
                [(*of, each) for each in hashes],
            )
            connection.execute(
                "UPDATE pools SET forwarded = forwarded + ? WHERE survey = ? AND period = ?",
                (len(hashes), *of),
            )

    def drop(self, survey: str, period: str, least: int | None) -> int:
        """Delete the records that gather, if they are fewer than `least`, or without it those that
        are on their way; return how many."""
        of = (survey, period)
        where = f"WHERE survey = ? AND period = ? AND leaving {'> 0' if least is None else '= 0'}"
        with self.writing() as connection:
            ((count,),) = connection.execute(f"SELECT count(*) FROM records {where}", of)
            if not count or (least is not None and count >= least):
                return 0
            connection.execute(f"DELETE FROM records {where}", of)
            connection.execute(
                "UPDATE pools SET dropped = dropped + ?, day = -1 WHERE survey = ? AND period = ?",
                (count, *of),
            )
            return int(count)

    def forget(self, survey: str, period: str) -> None:
        """Delete the hashes of the records that have left, and the names of their mixes once no
        record is on its way: the period takes none any more."""
        of = {"survey": survey, "period": period}
        here = "survey = :survey AND period = :period"
        is_empty = f"NOT EXISTS (SELECT 1 FROM records WHERE {here})"
        with self.writing() as connection:
            connection.execute(f"DELETE FROM gone WHERE {here}", of)
            connection.execute(f"DELETE FROM mixes WHERE {here} AND {is_empty}", of)


def look(folder: Path) -> tuple[list[Pool], dict[str, bytes]]:
    """Return the pools and the plans in a folder, also while a shuffler runs there.

    Raises `InvalidInput` where there are none.
    """
    with _looking(folder) as connection:
        return _pools(connection), read_declared(connection, "survey")


def look_for_keys(folder: Path) -> list[bytes]:
    """Return the public keys for requests through a relay, as `keys.key_config` writes them, the
    newest first; raise as `look`."""
    with _looking(folder) as connection:
        return [key_config(number, public) for number, (_, public) in _keys(connection).items()]


@contextmanager
def _looking(folder: Path) -> Iterator[sqlite3.Connection]:
    file = folder / "pools.db"
    if not private.is_there(file):
        raise InvalidInput(f"there is no shuffler's data in {folder}")
    connection = opened(file, "?mode=rw")  # which takes back what a kill left half done
    try:
        with translated():
            yield connection
    finally:
        connection.close()


def _keys(connection: sqlite3.Connection) -> dict[int, tuple[bytes, bytes]]:
    query = "SELECT number, private, public FROM gateway_keys ORDER BY number DESC"
    # A KeyConfig has one byte for its number.
    rows = connection.execute(query)
    return {number % 256: (private, public) for number, private, public in rows}


def _pools(connection: sqlite3.Connection) -> list[Pool]:
    query = """
        SELECT survey, period, day, count(hash) - coalesce(sum(leaving > 0), 0),
            coalesce(sum(leaving > 0), 0), forwarded, dropped
        FROM pools LEFT JOIN records USING (survey, period)
        GROUP BY survey, period ORDER BY survey, period"""
    return [Pool(*row) for row in connection.execute(query)]


def _hashed(record: shuffler_pb2.SealedRecord) -> tuple[bytes, bytes]:
    data = record.SerializeToString(deterministic=True)
    return hashlib.sha256(data).digest(), data
