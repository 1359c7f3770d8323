"""The reports that wait: sealed into batches, kept until they are answered, then remembered.

A batch is sealed before it leaves for the first time: its id and bytes are on the disk, and with
them what was spent on it, so that every retry sends the same, whatever dies in between.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from hearsay.store import Store
from hearsay.trouble import Reason, Trouble
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

_PERSON = 16
"""Bytes that name the person of a row. They are all zero for the device's own user."""


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


class Waiting(NamedTuple):
    """What waits of one survey: reports that are not sealed, their bytes, and when the oldest of
    them was made (Unix time; infinity: none); when the oldest report in a batch was made; batches
    that may be sent now, and all batches; whether anybody consents; and whether the server is to
    forget something."""

    reports: int
    size: int
    oldest: float
    oldest_sealed: float
    free: int
    batches: int
    consent: bool
    forgets: bool


def waiting(store: Store, survey: str, now: float) -> Waiting:
    """Look at what waits at `now`, in Unix time."""

    def work(connection: sqlite3.Connection) -> Waiting:
        reports, size, oldest, batches, free, sealed, consent, forgets = connection.execute(
            "SELECT (SELECT count(*) FROM reports WHERE survey = ?1),"
            " (SELECT total(length(report)) FROM reports WHERE survey = ?1),"
            " (SELECT at FROM reports WHERE survey = ?1 ORDER BY seq LIMIT 1),"
            " count(*), total(leased <= ?2 OR leased > ?3), min(at),"
            " EXISTS (SELECT 1 FROM people WHERE survey = ?1 AND consent),"
            " EXISTS (SELECT 1 FROM forgets WHERE survey = ?1 AND asked)"
            " FROM batches WHERE survey = ?1",
            (survey, now - _LEASE, now + _LEASE),
        ).fetchone()
        never = float("inf")
        return Waiting(
            reports,
            int(size),
            never if oldest is None else oldest,
            never if sealed is None else sealed,
            int(free),
            batches,
            bool(consent),
            bool(forgets),
        )

    return store.read(work)


def add(
    connection: sqlite3.Connection,
    survey: str,
    person: bytes,
    report: bytes,
    at: float,
    limits: tuple[int, int],
) -> tuple[int, int, int]:
    """Queue a person's report, made at `at` (Unix time), and drop the oldest while more than the
    limits wait, reports and bytes; return what waits then, and how many were dropped."""
    (seq, size), (gone, gone_size) = _totals(connection, survey)
    seq, size = seq + 1, size + len(report)
    # A row and nothing else: every page that an answer changes delays it.
    connection.execute(
        "INSERT INTO reports VALUES (?, ?, ?, ?, ?, ?)", (survey, seq, size, at, person, report)
    )
    overflow = 0
    while seq - gone > limits[0] or size - gone_size > limits[1]:
        rows, dropped_size = _drop_oldest(connection, survey, at)
        if not rows:
            break
        overflow += rows
        gone += rows
        gone_size += dropped_size
    return seq - gone, size - gone_size, overflow


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


class _Row(NamedTuple):
    """One waiting report, as it is in the table."""

    seq: int
    at: float
    person: bytes
    report: bytes


def seal(store: Store, survey: str, coins: Coins, *, rows: int, size: int) -> None:
    """Turn waiting reports into batches: of one period and revision each, of at most `rows` rows
    and about `size` bytes, the rows in random order. `lease` makes them durable."""
    while _seal_some(store, survey, coins, rows, size):
        pass


def _seal_some(store: Store, survey: str, coins: Coins, rows: int, size: int) -> bool:
    """Seal the oldest reports; return whether there may be more."""

    def look(connection: sqlite3.Connection) -> tuple[int, list[_Row]]:
        (unanswered,) = connection.execute(
            "SELECT count(*) FROM batches WHERE survey = ? AND leased >= 0", (survey,)
        ).fetchone()
        found = connection.execute(
            "SELECT seq, at, person, report FROM reports WHERE survey = ? ORDER BY seq LIMIT ?",
            (survey, rows),
        )
        return unanswered, [_Row(*row) for row in found]

    unanswered, found = store.read(look)
    # Batches are built outside of the transaction, so that no answer waits for it.
    sealed = [
        (group, _sealed(survey, group, coins))
        for group in _groups(found, rows, size)[: max(0, _UNANSWERED - unanswered)]
    ]

    def work(connection: sqlite3.Connection) -> None:
        _keep_totals(connection, survey)
        for group, row in sealed:
            if _take_out(connection, survey, [each.seq for each in group]):
                connection.execute(
                    "INSERT INTO batches (id, survey, period, rows, size, batch, people, at)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    row,
                )

    if sealed:
        store.write(work)
    return len(found) == rows and bool(sealed)


def _take_out(connection: sqlite3.Connection, survey: str, seqs: Sequence[int]) -> bool:
    """Delete reports if all are still there; return whether they were.

    Somebody else may have sealed, dropped or revoked some of them since they were read.
    """
    first, last = seqs[0], seqs[-1]
    within = "survey = ? AND seq BETWEEN ? AND ?"
    (there,) = connection.execute(
        f"SELECT count(*) FROM reports WHERE {within}", (survey, first, last)
    ).fetchone()
    if there == len(seqs) == last - first + 1:
        connection.execute(f"DELETE FROM reports WHERE {within}", (survey, first, last))
        return True
    marks = ", ".join("?" * len(seqs))
    (there,) = connection.execute(
        f"SELECT count(*) FROM reports WHERE survey = ? AND seq IN ({marks})", (survey, *seqs)
    ).fetchone()
    if there < len(seqs):
        return False
    connection.execute(
        f"DELETE FROM reports WHERE survey = ? AND seq IN ({marks})", (survey, *seqs)
    )
    return True


def _groups(found: Sequence[_Row], rows: int, size: int) -> list[list[_Row]]:
    groups: list[list[_Row]] = []
    open_: dict[tuple[bytes, str], tuple[list[_Row], int]] = {}
    for number, row in enumerate(found):
        _let_others(number)
        report = Batch.FromString(row.report)
        kind = (report.revision, report.period)
        group, filled = open_.get(kind, ([], 0))
        if not group or len(group) >= rows or filled + len(row.report) > size:
            group, filled = [], 0
            groups.append(group)
        group.append(row)
        open_[kind] = group, filled + len(row.report)
    return groups


def _let_others(number: int) -> None:
    """Let other threads have the interpreter now and then, in a loop over many reports.

    Otherwise this thread keeps it for 5 ms at a time, and an answer waits for that.
    """
    if number % 16 == 15:
        time.sleep(0)


def _sealed(survey: str, group: Sequence[_Row], coins: Coins) -> tuple[object, ...]:
    """Return reports of one period and revision as a row of the table of batches."""
    shuffled = [group[i] for i in coins.permutation(len(group))]
    reports = []
    for number, row in enumerate(shuffled):
        _let_others(number)
        reports.append(Batch.FromString(row.report))
    batch = _batch(reports)
    return (
        batch.id,
        survey,
        batch.period,
        batch.rows,
        sum(len(row.report) for row in group),
        batch.SerializeToString(deterministic=True),
        b"".join(row.person or bytes(_PERSON) for row in shuffled),
        min(row.at for row in group),
    )


def _batch(reports: Sequence[Batch]) -> Batch:
    """Put reports of one period and revision together, as the rows of a batch in this order."""
    codes: dict[tuple[str, str], list[bytes | None]] = {}
    for row, report in enumerate(reports):
        _let_others(row)
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
    """Return the sealed batches that no other process is sending, marked as ours; what was spent
    on them is in the ledger's main file by then.

    `now` is in Unix time. They are marked as having left, too: from here on the server may have
    them. Where the disk is full they go without the marks: they may go twice, with the same ids.
    """
    # A lease from the far future is one of a clock that was set back since.
    free = "survey = ? AND (leased <= ? OR leased > ?)"
    which = (survey, now - _LEASE, now + _LEASE)

    def work(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
        return connection.execute(
            f"UPDATE batches SET leased = ?, left = 1 WHERE {free} RETURNING seq, batch",
            (now, *which),
        ).fetchall()

    def look(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
        return connection.execute(f"SELECT seq, batch FROM batches WHERE {free}", which).fetchall()

    try:
        found = store.write(work)
    except Trouble as trouble:
        if trouble.status.reason is not Reason.DISK:
            raise
        found = store.read(look)
    batches = [Batch.FromString(data) for _, data in sorted(found)]
    if batches:
        try:
            store.secure()
        except Trouble:
            with contextlib.suppress(Trouble):  # the lease runs out
                give_back(store, batches)
            raise
    return batches


def give_back(store: Store, batches: Sequence[Batch]) -> None:
    """Let others, and the next try, send what was leased."""
    store.write(
        lambda connection: connection.executemany(
            "UPDATE batches SET leased = 0 WHERE id = ? AND leased > 0",
            [(batch.id,) for batch in batches],
        )
    )


def put_off(store: Store, batch: Batch) -> None:
    """Note that the server will perhaps take a batch later, but not now."""
    store.write(
        lambda connection: connection.execute(
            "UPDATE batches SET leased = -1 WHERE id = ?", (batch.id,)
        )
    )


def settle(
    store: Store, batch: Batch, became: str, at: datetime, server_time: float | None = None
) -> bool:
    """Take a batch that was answered for good out of the queue; return whether it was there.

    Keeps the server's time (Unix time), which came with the answer.
    """

    def work(connection: sqlite3.Connection) -> bool:
        found = connection.execute(
            "DELETE FROM batches WHERE id = ? RETURNING rows, size, batch", (batch.id,)
        ).fetchone()
        if found is None:
            return False
        rows, size, data = found
        if server_time is not None:
            connection.execute(
                "UPDATE surveys SET server_time = ? WHERE survey = ?", (server_time, batch.survey)
            )
        _less(connection, batch.survey, rows, size)
        _remember(connection, batch.survey, at.timestamp(), became, data)
        _count(connection, batch.survey, {became: 1})
        return True

    return store.write(work)


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


def drop_person(
    connection: sqlite3.Connection, survey: str, person: bytes, at: float, *, forget: bool
) -> None:
    """Drop all that waits of one person, as "revoked".

    A batch that may have left cannot be changed: the rows of others in it are dropped, too. It is
    kept among what was sent; with `forget`, its id is kept for the server to be asked.
    """
    _keep_totals(connection, survey)
    gone = connection.execute(
        "DELETE FROM reports WHERE survey = ? AND person = ? RETURNING 1, length(report)",
        (survey, person),
    ).fetchall()
    mark = person or bytes(_PERSON)
    found = connection.execute(
        "SELECT id, period, rows, size, batch, people, left FROM batches WHERE survey = ?",
        (survey,),
    ).fetchall()
    for id_, period, rows, size, data, people, left in found:
        others = [row for row in range(rows) if people[_PERSON * row : _PERSON * (row + 1)] != mark]
        if len(others) == rows:
            continue
        if others and not left:
            kept = _only(Batch.FromString(data), others)
            kept.id = id_  # the server has not seen it
            kept_size = size * len(others) // rows
            connection.execute(
                "UPDATE batches SET batch = ?, rows = ?, size = ?, people = ? WHERE id = ?",
                (
                    kept.SerializeToString(deterministic=True),
                    len(others),
                    kept_size,
                    b"".join(people[_PERSON * row : _PERSON * (row + 1)] for row in others),
                    id_,
                ),
            )
            gone.append((rows - len(others), size - kept_size))
            continue
        connection.execute("DELETE FROM batches WHERE id = ?", (id_,))
        gone.append((rows, size))
        if left:
            _remember(connection, survey, at, "revoked", data)
        if left and forget:
            connection.execute(
                "INSERT OR IGNORE INTO forgets VALUES (?, ?, ?, 1)", (id_, survey, period)
            )
    if forget:
        connection.execute("UPDATE forgets SET asked = 1 WHERE survey = ?", (survey,))
    if gone:
        rows, size = (sum(each) for each in zip(*gone, strict=True))
        _less(connection, survey, rows, size)
        _count(connection, survey, {"revoked": rows})


def _only(batch: Batch, rows: Sequence[int]) -> Batch:
    """Return a batch, which has not left yet, with these of its rows only."""
    reports = [
        Batch(survey=batch.survey, revision=batch.revision, period=batch.period) for _ in rows
    ]
    for column in batch.columns:
        present = np.ones(batch.rows, dtype=bool)
        if column.present:
            bits = np.frombuffer(column.present, dtype=np.uint8)
            present = np.unpackbits(bits, count=batch.rows, bitorder="little").astype(bool)
        width = len(column.codes) // int(present.sum())
        begins = np.cumsum(present) - 1
        for report, row in zip(reports, rows, strict=True):
            if present[row]:
                begin = int(begins[row]) * width
                report.columns.add(
                    attribute=column.attribute,
                    level=column.level,
                    codes=column.codes[begin : begin + width],
                )
    return _batch(reports)


def to_forget(store: Store, survey: str) -> Mapping[str, list[bytes]]:
    """Return the ids that the server is to forget, by period."""
    found = store.read(
        lambda connection: connection.execute(
            "SELECT period, id FROM forgets WHERE survey = ? AND asked ORDER BY period, id",
            (survey,),
        ).fetchall()
    )
    by_period: dict[str, list[bytes]] = {}
    for period, id_ in found:
        by_period.setdefault(period, []).append(id_)
    return by_period


def forgotten(store: Store, ids: Sequence[bytes]) -> None:
    """Take ids off the list of those that the server is to forget."""
    store.write(
        lambda connection: connection.executemany(
            "DELETE FROM forgets WHERE id = ?", [(id_,) for id_ in ids]
        )
    )


def left(store: Store, survey: str) -> int:
    """Return how many reports wait, in batches or not."""
    (queued, _), (gone, _) = store.read(lambda connection: _totals(connection, survey))
    return queued - gone


def view(store: Store, survey: str) -> Outbox:
    """Return what waits and what left."""

    def work(connection: sqlite3.Connection) -> Outbox:
        def all_of(what: str) -> list[tuple[bytes]]:
            return connection.execute(what, (survey,)).fetchall()

        reports = all_of("SELECT report FROM reports WHERE survey = ? ORDER BY seq")
        batches = all_of("SELECT batch FROM batches WHERE survey = ? ORDER BY seq")
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

    return store.read(work)


def count(store: Store, survey: str, counts: Mapping[str, int]) -> None:
    """Add to the counters of a survey."""
    store.write(lambda connection: _count(connection, survey, counts))


def counters(store: Store, survey: str) -> dict[str, int]:
    """Return the counters of a survey."""
    return store.read(
        lambda connection: dict(
            connection.execute("SELECT name, count FROM counters WHERE survey = ?", (survey,))
        )
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
