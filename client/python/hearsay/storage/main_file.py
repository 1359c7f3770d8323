"""A ledger's main file: the log that it expects, and starting over where that was lost."""

import sqlite3
import time
from datetime import datetime
from pathlib import Path

from hearsay.storage.anchors import Mark
from hearsay.storage.schema import APPLICATION, VERSION
from hearsay.storage.wal import Expected, Log, mismatch
from hearsay.trouble import Reason, Trouble

_LOOKS, _BETWEEN = 20, 0.01
"""How often, and every how many seconds, to look at a file and its log that do not match: other
processes may be changing both."""

_START_OVER = """
INSERT INTO totals
    SELECT survey, max(seq), max(size), count(*), sum(length(report)) FROM reports
    WHERE true GROUP BY survey
    ON CONFLICT DO UPDATE SET seq = max(seq, excluded.seq), size = max(size, excluded.size),
        gone = gone + excluded.gone, gone_size = gone_size + excluded.gone_size;
INSERT INTO counters SELECT survey, 'lost', count(*) FROM reports WHERE true GROUP BY survey
    ON CONFLICT DO UPDATE SET count = count + excluded.count;
DELETE FROM reports;
UPDATE people SET consent = 0;
DELETE FROM settings WHERE name = 'confirmed'
"""
"""Drops the reports that are in no batch, which the lost state of the ledger may have sent, and
every consent, which may have been revoked in it."""


def look(file: Path) -> Expected:
    """Return the log that the main file expects, read without any log.

    Raises `Trouble` unless the file is a ledger that this version knows.
    """
    connection = sqlite3.connect(f"{file.as_uri()}?immutable=1", uri=True)
    try:
        # A file that a checkpoint was making longer is not damaged.
        connection.execute("PRAGMA writable_schema = ON")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            raise Trouble(Reason.NOT_A_LEDGER, f"{file} is a database of something else")
        if version != VERSION:
            raise Trouble(
                Reason.OTHER_SCHEMA, f"{file} has schema {version}; this version knows {VERSION}"
            )
        (expected,) = connection.execute("SELECT expected FROM log").fetchone()
        return Expected.parse(expected)
    finally:
        connection.close()


def mismatch_of(file: Path) -> str:
    """Return why the file is not the latest state of the ledger; "" where it may be."""
    log = Path(f"{file}-wal")
    for number in range(_LOOKS):
        if number:
            time.sleep(_BETWEEN)
        try:
            why = mismatch(look(file), log)
        except sqlite3.DatabaseError:
            if number == _LOOKS - 1:
                raise
            continue
        if not why:
            break
    return why


def expects_log(file: Path) -> bool:
    """Tell whether the main file needs its log, and the log beside it is the expected one."""
    expected = look(file)
    return expected.needed and not mismatch(expected, Path(f"{file}-wal"))


def expect(connection: sqlite3.Connection, log: Log, *, needed: bool) -> Expected:
    """Note which log the main file is to expect once this one is moved into it."""
    expected = log.expected(needed=needed)
    connection.execute("UPDATE log SET expected = ?", (str(expected),))
    return expected


def own_mark(connection: sqlite3.Connection) -> Mark:
    """Return a ledger's id, and how often it was secured with an anchor."""
    return Mark(
        *connection.execute(
            "SELECT value, coalesce((SELECT value FROM settings WHERE name = 'anchored'), 0)"
            " FROM settings WHERE name = 'id'"
        ).fetchone()
    )


def count_once(connection: sqlite3.Connection) -> None:
    """Note that the ledger is secured once more."""
    connection.execute(
        "INSERT INTO settings VALUES ('anchored', 1) ON CONFLICT DO UPDATE SET value = value + 1"
    )


def start_over(connection: sqlite3.Connection, why: str, now: datetime, count: int) -> None:
    """Turn an earlier state of a ledger into a ledger that nobody vouched for."""
    for statement in _START_OVER.split(";\n"):
        connection.execute(statement)
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'updates'").fetchone():
        # Sealed updates may have been sent, or revoked, too; nothing else protects their bytes.
        connection.execute("PRAGMA secure_delete = ON").fetchall()
        connection.execute("DELETE FROM updates")
        connection.execute("PRAGMA secure_delete = OFF").fetchall()
    counted = max(count, own_mark(connection).count)
    connection.executemany(
        "INSERT OR REPLACE INTO settings VALUES (?, ?)",
        [("created", now.isoformat()), ("lost", why), ("anchored", counted)],
    )
