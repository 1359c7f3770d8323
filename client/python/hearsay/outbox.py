"""The reports that wait: sealed into batches, kept until they are answered, then remembered.

A batch is sealed in a durable transaction before it leaves for the first time: its id and bytes
are on the disk, and with them what was spent on it, so that every retry sends the same, whatever
dies in between.
"""

import contextlib
import os
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from hearsay.store import Store
from hearsay.trouble import Trouble
from hearsay.v1 import collector_pb2
from ldp import Coins

Batch = collector_pb2.Batch

_UNANSWERED = 8
"""Batches of a survey that may wait for an answer before more are sealed: so what piles up while
the server is away goes in large batches. Those that the server put off do not count."""

_LEASE = 30.0
"""Seconds for which a process has a batch to itself. Two that send one do no harm."""

_KEPT, _KEPT_BYTES = 100, 1 << 20
"""Batches that are remembered after they left, and their bytes."""

_FORGETTABLE = 1000
"""Batches that the queue dropped while they were under way, whose ids are kept: the latest."""


@dataclass(frozen=True)
class Sent:
    """A batch that left the device: when (UTC), and what became of it."""

    at: datetime
    became: str
    batch: Batch


@dataclass(frozen=True)
class Outbox:
    """What waits and what left, decoded: exactly what the server gets to see.

    `reports` are not in a batch yet, and each is shown as a batch of one row without an id;
    `batches` are, and wait for an answer; `sent` are the last 100 that left, or 1 MiB of them.
    """

    reports: tuple[Batch, ...]
    batches: tuple[Batch, ...]
    sent: tuple[Sent, ...]

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self.reports or self.batches)


def add(
    connection: sqlite3.Connection, survey: str, report: bytes, at: float, limits: tuple[int, int]
) -> tuple[tuple[int, int], int]:
    """Queue a report, made `at` so many seconds since 1970, and drop the oldest while more than
    the limits wait, reports and bytes; return what waits then, and how many were dropped."""
    (seq, size), (gone, gone_size) = _totals(connection, survey)
    seq, size = seq + 1, size + len(report)
    # A row and nothing else: every page that an answer changes delays it.
    connection.execute(
        "INSERT INTO reports VALUES (?, ?, ?, ?, ?)", (survey, seq, size, at, report)
    )
    overflow = 0
    while seq - gone > limits[0] or size - gone_size > limits[1]:
        rows, dropped_size = _drop_oldest(connection, survey, at)
        if not rows:
            break
        overflow += rows
        gone += rows
        gone_size += dropped_size
    return (seq - gone, size - gone_size), overflow


def _totals(connection: sqlite3.Connection, survey: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return how many reports were ever queued and how many wait no more, with their bytes."""
    # The last one may have left the table before one that was queued earlier.
    rows = connection.execute(
        "SELECT seq, size, gone, gone_size FROM totals WHERE survey = ?1 UNION ALL SELECT * FROM"
        " (SELECT seq, size, 0, 0 FROM reports WHERE survey = ?1 ORDER BY seq DESC LIMIT 1)",
        (survey,),
    ).fetchall() or [(0, 0, 0, 0)]
    return max(row[:2] for row in rows), max(row[2:] for row in rows)


def _keep_totals(connection: sqlite3.Connection, survey: str) -> None:
    """Note how many were ever queued, before some of them leave the table of reports."""
    (seq, size), _ = _totals(connection, survey)
    connection.execute(
        "INSERT INTO totals VALUES (?, ?, ?, 0, 0)"
        " ON CONFLICT DO UPDATE SET seq = excluded.seq, size = excluded.size",
        (survey, seq, size),
    )


def seal(store: Store, survey: str, coins: Coins, *, rows: int, size: int) -> None:
    """Turn waiting reports into batches: of one period and revision each, of at most `rows` rows
    and about `size` bytes, the rows in random order. `lease` makes them durable."""
    while _seal_some(store, survey, coins, rows, size):
        pass


def _seal_some(store: Store, survey: str, coins: Coins, rows: int, size: int) -> bool:
    """Seal the oldest reports, few enough that no answer waits long; return whether any were."""
    with store.write() as connection:
        (unanswered,) = connection.execute(
            "SELECT count(*) FROM batches WHERE survey = ? AND leased >= 0", (survey,)
        ).fetchone()
        if unanswered >= _UNANSWERED:
            return False
        waiting = connection.execute(
            "SELECT seq, report FROM reports WHERE survey = ? ORDER BY seq LIMIT ?", (survey, rows)
        ).fetchall()
        if waiting:
            _keep_totals(connection, survey)
        for group in _groups(waiting, rows, size)[: _UNANSWERED - unanswered]:
            reports = [report for _, report in group]
            batch = _batch([reports[i] for i in coins.permutation(len(group))])
            connection.execute(
                "INSERT INTO batches (id, survey, period, rows, size, batch)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    batch.id,
                    survey,
                    batch.period,
                    batch.rows,
                    sum(report.ByteSize() for report in reports),
                    batch.SerializeToString(deterministic=True),
                ),
            )
            connection.executemany(
                "DELETE FROM reports WHERE survey = ? AND seq = ?", [(survey, s) for s, _ in group]
            )
    return bool(waiting)


def _groups(
    waiting: Sequence[tuple[int, bytes]], rows: int, size: int
) -> list[list[tuple[int, Batch]]]:
    groups: list[list[tuple[int, Batch]]] = []
    open_: dict[tuple[bytes, str], tuple[list[tuple[int, Batch]], int]] = {}
    for seq, data in waiting:
        report = Batch.FromString(data)
        kind = (report.revision, report.period)
        group, filled = open_.get(kind, ([], 0))
        if not group or len(group) >= rows or filled + len(data) > size:
            group, filled = [], 0
            groups.append(group)
        group.append((seq, report))
        open_[kind] = group, filled + len(data)
    return groups


def _batch(reports: Sequence[Batch]) -> Batch:
    """Put reports of one period and revision together, as the rows of a batch in this order."""
    codes: dict[tuple[str, str], list[bytes | None]] = {}
    for row, report in enumerate(reports):
        for column in report.columns:
            kept = codes.setdefault((column.attribute, column.level), [None] * len(reports))
            kept[row] = column.codes
    first = reports[0]
    columns = []
    for (attribute, level), by_row in sorted(codes.items()):
        present = [code is not None for code in by_row]
        bits = b"" if all(present) else np.packbits(present, bitorder="little").tobytes()
        columns.append(
            collector_pb2.Column(
                attribute=attribute,
                level=level,
                codes=b"".join(code for code in by_row if code is not None),
                present=bits,
            )
        )
    return Batch(
        id=os.urandom(16),  # never from seeded coins: two simulations must not share ids
        survey=first.survey,
        revision=first.revision,
        period=first.period,
        rows=len(reports),
        columns=columns,
    )


def lease(store: Store, survey: str, now: float) -> list[Batch]:
    """Return the sealed batches that no other process is sending, and mark them as ours, durably.

    `now` is in seconds since 1970. They are marked as having left, too: from here on the server
    may have them.
    """
    # A lease from the future is one of a clock that was set back since.
    free = "survey = ? AND (leased <= ? OR leased > ?)"
    which = (survey, now - _LEASE, now)
    with store.read() as connection:
        if not connection.execute(f"SELECT 1 FROM batches WHERE {free}", which).fetchone():
            return []
    try:
        with store.write_durably() as connection:
            found = connection.execute(
                f"UPDATE batches SET leased = ?, left = 1 WHERE {free} RETURNING seq, batch",
                (now, *which),
            ).fetchall()
    except Trouble:
        with contextlib.suppress(Trouble), store.write() as connection:
            connection.execute("UPDATE batches SET leased = 0 WHERE leased = ?", (now,))
        raise
    return [Batch.FromString(data) for _, data in sorted(found)]


def give_back(store: Store, batches: Sequence[Batch]) -> None:
    """Let others, and the next try, send what was leased."""
    with store.write() as connection:
        connection.executemany(
            "UPDATE batches SET leased = 0 WHERE id = ? AND leased > 0",
            [(batch.id,) for batch in batches],
        )


def put_off(store: Store, batch: Batch) -> None:
    """Note that the server will perhaps take a batch later, but not now."""
    with store.write() as connection:
        connection.execute("UPDATE batches SET leased = -1 WHERE id = ?", (batch.id,))


def settle(store: Store, batch: Batch, became: str, at: datetime) -> bool:
    """Take a batch that was answered for good out of the queue; return whether it was there."""
    with store.write() as connection:
        found = connection.execute(
            "DELETE FROM batches WHERE id = ? RETURNING rows, size, batch", (batch.id,)
        ).fetchone()
        if found is None:
            return False
        rows, size, data = found
        _less(connection, batch.survey, rows, size)
        _remember(connection, batch.survey, at.timestamp(), became, data)
        _count(connection, batch.survey, {became: 1})
    return True


def _remember(
    connection: sqlite3.Connection, survey: str, at: float, became: str, batch: bytes
) -> None:
    """Keep a batch among the last that left."""
    connection.execute(
        "INSERT INTO sent (survey, at, became, batch) VALUES (?, ?, ?, ?)",
        (survey, at, became, batch),
    )
    connection.execute("DELETE FROM sent WHERE seq <= (SELECT max(seq) FROM sent) - ?", (_KEPT,))
    while connection.execute("SELECT total(length(batch)) FROM sent").fetchone()[0] > _KEPT_BYTES:
        connection.execute("DELETE FROM sent WHERE seq = (SELECT min(seq) FROM sent)")


def _drop_oldest(connection: sqlite3.Connection, survey: str, at: float) -> tuple[int, int]:
    """Drop a survey's oldest batch or, where there is none, report; return its rows and bytes.

    What may have left is kept among what was sent, and its id for the server to forget.
    """
    found = connection.execute(
        "DELETE FROM batches WHERE seq = (SELECT min(seq) FROM batches WHERE survey = ?)"
        " RETURNING rows, size, left, id, period, batch",
        (survey,),
    ).fetchone()
    if found is not None and found[2]:
        id_, period, batch = found[3:]
        _remember(connection, survey, at, "overflow", batch)
        connection.execute(
            "INSERT OR IGNORE INTO forgets VALUES (?, ?, ?, 0)", (id_, survey, period)
        )
        connection.execute(
            "DELETE FROM forgets WHERE id IN (SELECT id FROM forgets WHERE survey = ?"
            " AND NOT asked ORDER BY period DESC LIMIT -1 OFFSET ?)",
            (survey, _FORGETTABLE),
        )
    if found is None:
        _keep_totals(connection, survey)
        found = connection.execute(
            "DELETE FROM reports WHERE survey = ?1"
            " AND seq = (SELECT min(seq) FROM reports WHERE survey = ?1)"
            " RETURNING 1, length(report)",
            (survey,),
        ).fetchone()
    rows, size = found[:2] if found else (0, 0)
    _less(connection, survey, rows, size)
    return rows, size


def grant(store: Store, survey: str) -> None:
    """Note consent. What waits from before, if a revocation was cut short, is dropped."""
    with store.write() as connection:
        found = connection.execute(
            "SELECT consent FROM surveys WHERE survey = ?", (survey,)
        ).fetchone()
        if not (found and found[0]):
            _clear(connection, survey)
            _set_consent(connection, survey, granted=True)


def revoke(store: Store, survey: str, now: datetime, *, forget: bool) -> None:
    """Note that there is no consent, and drop all that waits, as "revoked", in one durable step.

    What may have left is kept among what was sent; with `forget`, its ids are kept to be asked
    for.
    """
    with store.write_durably() as connection:
        _set_consent(connection, survey, granted=False)
        if forget:
            connection.execute(
                "INSERT OR IGNORE INTO forgets SELECT id, survey, period, 1 FROM batches"
                " WHERE survey = ? AND left",
                (survey,),
            )
            connection.execute("UPDATE forgets SET asked = 1 WHERE survey = ?", (survey,))
        connection.execute(
            "INSERT INTO sent (survey, at, became, batch)"
            " SELECT survey, ?, 'revoked', batch FROM batches WHERE survey = ? AND left",
            (now.timestamp(), survey),
        )
        _clear(connection, survey)


def _set_consent(connection: sqlite3.Connection, survey: str, *, granted: bool) -> None:
    connection.execute(
        "INSERT INTO surveys (survey, consent) VALUES (?, ?)"
        " ON CONFLICT DO UPDATE SET consent = excluded.consent",
        (survey, granted),
    )


def _clear(connection: sqlite3.Connection, survey: str) -> None:
    gone = connection.execute(
        "DELETE FROM batches WHERE survey = ? RETURNING rows", (survey,)
    ).fetchall()
    gone += connection.execute(
        "DELETE FROM reports WHERE survey = ? RETURNING 1", (survey,)
    ).fetchall()
    connection.execute("DELETE FROM totals WHERE survey = ?", (survey,))
    if gone:
        _count(connection, survey, {"revoked": sum(rows for (rows,) in gone)})


def to_forget(store: Store, survey: str) -> Mapping[str, list[bytes]]:
    """Return the ids that the server is to forget, by period."""
    with store.read() as connection:
        found = connection.execute(
            "SELECT period, id FROM forgets WHERE survey = ? AND asked ORDER BY period, id",
            (survey,),
        ).fetchall()
    by_period: dict[str, list[bytes]] = {}
    for period, id_ in found:
        by_period.setdefault(period, []).append(id_)
    return by_period


def forgotten(store: Store, ids: Sequence[bytes]) -> None:
    """Take ids off the list of those that the server is to forget."""
    with store.write() as connection:
        connection.executemany("DELETE FROM forgets WHERE id = ?", [(id_,) for id_ in ids])


def waiting(store: Store, survey: str) -> tuple[int, int, float]:
    """Return how many reports are not sealed, how many bytes they have, and when the oldest was
    made (seconds since 1970; infinity where there is none)."""
    with store.read() as connection:
        reports, size, oldest = connection.execute(
            "SELECT count(*), total(length(report)), min(at) FROM reports WHERE survey = ?",
            (survey,),
        ).fetchone()
    return reports, int(size), float("inf") if oldest is None else oldest


def unanswered(store: Store, survey: str) -> int:
    """Return how many batches wait for an answer."""
    with store.read() as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM batches WHERE survey = ?", (survey,)
        ).fetchone()
    return int(count)


def is_empty(store: Store, survey: str) -> bool:
    """Tell whether nothing waits."""
    with store.read() as connection:
        queued, gone = _totals(connection, survey)
    return queued == gone


def view(store: Store, survey: str) -> Outbox:
    """Return what waits and what left."""
    with store.read() as connection:
        reports = connection.execute(
            "SELECT report FROM reports WHERE survey = ? ORDER BY seq", (survey,)
        ).fetchall()
        batches = connection.execute(
            "SELECT batch FROM batches WHERE survey = ? ORDER BY seq", (survey,)
        ).fetchall()
        sent = connection.execute(
            "SELECT at, became, batch FROM sent WHERE survey = ? ORDER BY seq", (survey,)
        ).fetchall()
    return Outbox(
        tuple(Batch.FromString(data) for (data,) in reports),
        tuple(Batch.FromString(data) for (data,) in batches),
        tuple(
            Sent(datetime.fromtimestamp(at, UTC), became, Batch.FromString(data))
            for at, became, data in sent
        ),
    )


def count(store: Store, survey: str, counts: Mapping[str, int]) -> None:
    """Add to the counters of a survey."""
    with store.write() as connection:
        _count(connection, survey, counts)


def counters(store: Store, survey: str) -> dict[str, int]:
    """Return the counters of a survey."""
    with store.read() as connection:
        return dict(
            connection.execute("SELECT name, count FROM counters WHERE survey = ?", (survey,))
        )


def _count(connection: sqlite3.Connection, survey: str, counts: Mapping[str, int]) -> None:
    connection.executemany(
        "INSERT INTO counters VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET count = count + excluded.count",
        [(survey, name, number) for name, number in counts.items()],
    )


def _less(connection: sqlite3.Connection, survey: str, reports: int, size: int) -> None:
    connection.execute(
        "UPDATE totals SET gone = gone + ?, gone_size = gone_size + ? WHERE survey = ?",
        (reports, size, survey),
    )
