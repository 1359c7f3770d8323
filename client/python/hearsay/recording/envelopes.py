"""Sealed records on the device: kept as they were sealed, until a shuffler has them for good.

A shuffler knows a record again by its bytes, so every retry sends the same ones.
"""

import sqlite3
from collections.abc import Iterable

from hearsay.storage.schema import ENVELOPES
from hearsay.storage.store import Store
from hearsay.v1 import shuffler_pb2


def keep(
    connection: sqlite3.Connection,
    sealed: Iterable[tuple[bytes, shuffler_pb2.SealedRecord]],
    *,
    forget: bool = False,
) -> None:
    """Keep sealed records by the id of the batch inside, or with `forget` of the batch that is to
    be forgotten. They go with the row of the batch, or of the request to forget."""
    for statement in ENVELOPES.split(";;\n"):
        connection.execute(statement)
    connection.executemany(
        "INSERT OR REPLACE INTO envelopes VALUES (?, ?, ?)",
        [(id_, forget, record.SerializeToString()) for id_, record in sealed],
    )


def find(store: Store, id_: bytes, *, forget: bool = False) -> shuffler_pb2.SealedRecord | None:
    """Return a sealed record by the id of its batch; None where there is none."""

    def work(connection: sqlite3.Connection) -> bytes | None:
        table = "SELECT 1 FROM sqlite_master WHERE name = 'envelopes'"
        if connection.execute(table).fetchone() is None:
            return None
        query = "SELECT envelope FROM envelopes WHERE id = ? AND forget = ?"
        found = connection.execute(query, (id_, forget)).fetchone()
        return None if found is None else bytes(found[0])

    data = store.read(work)
    return None if data is None else shuffler_pb2.SealedRecord.FromString(data)


def drop(store: Store, id_: bytes, *, forget: bool) -> None:
    """Delete a sealed record, so that another one can be sealed in its place."""
    store.write(
        lambda connection: connection.execute(
            "DELETE FROM envelopes WHERE id = ? AND forget = ?", (id_, forget)
        )
    )
