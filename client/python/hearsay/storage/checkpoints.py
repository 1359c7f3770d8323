"""Checkpoints: move a ledger's log into the main file, which then expects the log's next life."""

import sqlite3
from pathlib import Path

from hearsay.storage.database import on
from hearsay.storage.main_file import expect, look
from hearsay.storage.wal import MAY_GO, Log
from hearsay.trouble import Reason, Trouble

_MODES = ("PASSIVE", *["FULL"] * 5)
"""How to try a checkpoint: at first without holding up writers. Not by RESTART, after which
a connection that has seen no checkpoint yet would begin the log with random salts."""


def renew(file: Path, connection: sqlite3.Connection, log: Log) -> None:
    """Move the log into the main file, note there the next life, and let that begin.

    A process may be killed anywhere here. Up to the checkpoint the main file expects the life
    that the log is in. The checkpoint moves the new expectation with all the rest: the next life,
    or this one with as many frames. Then the next transaction begins the new life, which holds
    that the log may go.
    """
    try:
        for mode in _MODES:
            expected = on(connection)(lambda c: expect(c, log, needed=True))
            if not log.is_before(expected.life):
                continue  # that transaction began a new life itself
            connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
            # Another process that opens the file meanwhile may have changed it.
            moved = look(file) == expected
            connection.execute(MAY_GO)
            if moved and log.is_in(expected.life):
                # Closing notes it again, unless there is no space at all by then.
                let_go(connection, log)
                return
    except BaseException:
        try:  # noqa: SIM105 (a handler could raise as suppress() begins)
            connection.execute(MAY_GO)  # or a plain close would look like a loss
        except sqlite3.Error:
            pass
        raise
    raise Trouble(Reason.LOCKED, "other processes use the ledger's log without a pause")


def let_go(connection: sqlite3.Connection, log: Log) -> None:
    """Note for the main file that this log is gone once the database is closed.

    Another process may have been killed while it renewed the log: then the first transaction
    begins a new life, and the second one is in it.
    """
    for _ in range(2):
        expected = on(connection)(lambda c: expect(c, log, needed=False))
        if log.is_before(expected.life):
            return
