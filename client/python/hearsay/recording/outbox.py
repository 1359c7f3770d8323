"""The queue of reports: packed into batches, kept until they are answered, then remembered.

A batch is packed before it leaves for the first time: its id and bytes are on the disk, and with
them the epsilon spent on it, so that every retry sends the same, whatever dies in between.
"""

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from hearsay.recording.batches import Batch, only
from hearsay.storage.store import Store
from hearsay.trouble import Reason, Trouble

_LEASE = 30.0
"""Seconds for which one process alone sends a batch. Two processes that send it do no harm."""

_KEPT, _KEPT_BYTES = 100, 1 << 20
"""Most batches, and most bytes of batches, that are remembered after they left."""

_FORGETTABLE = 1000
"""Most ids kept of batches that were dropped after they may have left, where nobody asked to forget
them: the latest."""

_MOST_IDS = 256
"""Most ids that one `Forget` may hold."""

PERSON = 16
"""Bytes that name the person of a row. They are all zero for the device's own user."""


@dataclass(frozen=True)
class Sent:
    """A batch that left the device: the time (UTC) and the name of its outcome."""

    at: datetime
    became: str
    batch: Batch


@dataclass(frozen=True)
class Outbox:
    """The waiting reports and sent batches, decoded, exactly as the server sees them.

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
    """The queue of one survey: reports that are not packed, their bytes, and when the oldest of
    them was made (Unix time; infinity: none); when the oldest report in a batch was made; batches
    that may be sent now, and all batches; whether anybody consents; and whether the server is to
    be asked to forget batches."""

    reports: int
    size: int
    oldest: float
    oldest_sealed: float
    free: int
    batches: int
    consent: bool
    forgets: bool


def waiting(store: Store, survey: str, now: float) -> Waiting:
    """Return the state of a survey's queue at `now`, in Unix time."""

    def work(connection: sqlite3.Connection) -> Waiting:
        reports, size, oldest, batches, free, packed, consent, forgets = connection.execute(
            "SELECT (SELECT count(*) FROM reports WHERE survey = :survey),"
            " (SELECT total(length(report)) FROM reports WHERE survey = :survey),"
            " (SELECT at FROM reports WHERE survey = :survey ORDER BY seq LIMIT 1),"
            " count(*), total(leased <= :ended OR leased > :ahead), min(at),"
            " EXISTS (SELECT 1 FROM people WHERE survey = :survey AND consent),"
            " EXISTS (SELECT 1 FROM forgets WHERE survey = :survey AND asked)"
            " FROM batches WHERE survey = :survey",
            {"survey": survey, "ended": now - _LEASE, "ahead": now + _LEASE},
        ).fetchone()
        never = float("inf")
        return Waiting(
            reports,
            int(size),
            never if oldest is None else oldest,
            never if packed is None else packed,
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
    """Queue a person's report, made at `at` (Unix time), and drop the oldest while more than
    `limits` (reports, bytes) wait; return the reports and bytes that wait, and the drops."""
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
    """Return how many reports were ever queued and how many left the queue, with their bytes."""
    # The last one may have left the table before one that was queued earlier.
    rows = connection.execute(
        "SELECT seq, size, gone, gone_size FROM totals WHERE survey = :survey UNION ALL"
        " SELECT * FROM (SELECT seq, size, 0, 0 FROM reports WHERE survey = :survey"
        " ORDER BY seq DESC LIMIT 1)",
        {"survey": survey},
    ).fetchall() or [(0, 0, 0, 0)]
    return max(row[:2] for row in rows), max(row[2:] for row in rows)


def keep_totals(connection: sqlite3.Connection, survey: str) -> None:
    """Note how many reports were ever queued, before some of them leave the table."""
    (seq, size), _ = _totals(connection, survey)
    connection.execute(
        "INSERT INTO totals VALUES (?, ?, ?, 0, 0)"
        " ON CONFLICT DO UPDATE SET seq = excluded.seq, size = excluded.size",
        (survey, seq, size),
    )


def kept_plan(connection: sqlite3.Connection, survey: str) -> bytes:
    """Return the survey's plan that the ledger has; empty where it has none."""
    query = "SELECT plan FROM surveys WHERE survey = ?"
    found = connection.execute(query, (survey,)).fetchone()
    return bytes(found[0]) if found else b""


def lease(store: Store, survey: str, now: float) -> list[Batch]:
    """Return the packed batches that no other process is sending, marked as ours; the epsilon
    spent on them is in the ledger's main file by then.

    `now` is in Unix time. They are marked as having left, too: from here on the server may have
    them. Where the disk is full only those go that were marked as having left before: they may go
    twice, with the same bytes. Raises `Trouble` where there are none of these.
    """
    # A lease from the far future was made by a clock that was set back since.
    free = "survey = ? AND (leased <= ? OR leased > ?)"
    which = (survey, now - _LEASE, now + _LEASE)

    def work(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
        return connection.execute(
            f"UPDATE batches SET leased = ?, left = 1 WHERE {free} RETURNING seq, batch",
            (now, *which),
        ).fetchall()

    def look(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
        # One that is not marked as having left would be rewritten when its person revokes.
        return connection.execute(
            f"SELECT seq, batch FROM batches WHERE left AND {free}", which
        ).fetchall()

    try:
        found = store.write(work)
    except Trouble as trouble:
        if trouble.status.reason is not Reason.DISK:
            raise
        found = store.read(look)
        if not found:
            raise
    batches = [Batch.FromString(data) for _, data in sorted(found)]
    if batches:
        try:
            store.secure()
        except Trouble:
            with contextlib.suppress(Trouble):  # the lease runs out
                give_back(store, batches)
            raise
    return batches


def is_queued(store: Store, batch: Batch) -> bool:
    """Tell whether a batch still waits: another process may have dropped or sent it."""
    return (
        store.read(
            lambda connection: connection.execute(
                "SELECT 1 FROM batches WHERE id = ?", (batch.id,)
            ).fetchone()
        )
        is not None
    )


def give_back(store: Store, batches: Sequence[Batch]) -> None:
    """End the lease of batches, so that the next try or another process may send them."""
    store.write(
        lambda connection: connection.executemany(
            "UPDATE batches SET leased = 0 WHERE id = ? AND leased > 0",
            [(batch.id,) for batch in batches],
        )
    )


def put_off(store: Store, batch: Batch) -> None:
    """Mark a batch as put off: the server may take it later, but not now."""
    store.write(
        lambda connection: connection.execute(
            "UPDATE batches SET leased = -1 WHERE id = ?", (batch.id,)
        )
    )


def settle(
    store: Store, batch: Batch, became: str, at: datetime, server_time: float | None = None
) -> bool:
    """Remove a batch with a final answer from the queue; return whether it was there.

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
        add_counts(connection, batch.survey, {became: 1})
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

    A batch that may have left is kept among the sent ones, and its id for the server to forget.
    """
    found = connection.execute(
        "DELETE FROM batches WHERE seq = (SELECT min(seq) FROM batches WHERE survey = ?)"
        " RETURNING rows, size, left, id, period, batch",
        (survey,),
    ).fetchone()
    if found is not None and found[2]:
        id_, period, batch = found[3:]
        _remember(connection, survey, at, "overflow", batch)
        _keep_ids(connection, survey, [(id_, period)])
    if found is None:
        keep_totals(connection, survey)
        found = connection.execute(
            "DELETE FROM reports WHERE survey = :survey"
            " AND seq = (SELECT min(seq) FROM reports WHERE survey = :survey)"
            " RETURNING 1, length(report)",
            {"survey": survey},
        ).fetchone()
    rows, size = found[:2] if found else (0, 0)
    _less(connection, survey, rows, size)
    return rows, size


def drop_reports(
    connection: sqlite3.Connection, survey: str, seqs: Sequence[int], became: str
) -> None:
    """Drop waiting reports by their numbers, and count them as `became`."""
    sizes = [
        size
        for seq in seqs
        for (size,) in connection.execute(
            "DELETE FROM reports WHERE survey = ? AND seq = ? RETURNING length(report)",
            (survey, seq),
        ).fetchall()
    ]
    _less(connection, survey, len(sizes), sum(sizes))
    add_counts(connection, survey, {became: len(sizes)})


def drop_all(connection: sqlite3.Connection, survey: str, became: str) -> None:
    """Drop all that waits of a survey, counted as `became`, and its requests to forget."""
    keep_totals(connection, survey)
    seqs = connection.execute("SELECT seq FROM reports WHERE survey = ?", (survey,)).fetchall()
    drop_reports(connection, survey, [seq for (seq,) in seqs], became)
    batches = connection.execute(
        "DELETE FROM batches WHERE survey = ? RETURNING rows, size", (survey,)
    ).fetchall()
    _less(connection, survey, sum(rows for rows, _ in batches), sum(size for _, size in batches))
    add_counts(connection, survey, {became: len(batches)})
    connection.execute("DELETE FROM forgets WHERE survey = ?", (survey,))


def _keep_ids(
    connection: sqlite3.Connection, survey: str, batches: Sequence[tuple[bytes, str]]
) -> None:
    """Keep the ids and periods of batches that the server may hold although they were dropped, for
    somebody who wants them forgotten."""
    connection.executemany(
        "INSERT OR IGNORE INTO forgets VALUES (?, ?, ?, 0)",
        [(id_, survey, period) for id_, period in batches],
    )
    connection.execute(
        "DELETE FROM forgets WHERE id IN (SELECT id FROM forgets WHERE survey = ?"
        " AND NOT asked ORDER BY period DESC LIMIT -1 OFFSET ?)",
        (survey, _FORGETTABLE),
    )


def drop_person(
    connection: sqlite3.Connection, survey: str, person: bytes, at: float, *, forget: bool
) -> int:
    """Drop one person's waiting reports, as "revoked"; return how many reports were dropped.

    A batch that may have left cannot be changed: the rows of others in it are dropped, too. It is
    kept among the sent batches, and its id is kept. With `forget` the server is asked to forget it,
    and all batches of the survey that were dropped earlier after they may have left, by the queue's
    bound or by anybody's revocation: the file no longer knows whose rows they hold. These batches
    count as dropped on this device already, for everybody in them.
    """
    keep_totals(connection, survey)
    gone = connection.execute(
        "DELETE FROM reports WHERE survey = ? AND person = ? RETURNING 1, length(report)",
        (survey, person),
    ).fetchall()
    mark = person or bytes(PERSON)
    found = connection.execute(
        "SELECT id, period, rows, size, batch, people, left FROM batches WHERE survey = ?",
        (survey,),
    ).fetchall()
    dropped_ids = []
    for id_, period, rows, size, data, people, left in found:
        others = [row for row in range(rows) if people[PERSON * row : PERSON * (row + 1)] != mark]
        if len(others) == rows:
            continue
        if others and not left:
            kept = only(Batch.FromString(data), others)
            kept.id = id_  # the server has not seen it
            kept_size = size * len(others) // rows
            connection.execute(
                "UPDATE batches SET batch = ?, rows = ?, size = ?, people = ? WHERE id = ?",
                (
                    kept.SerializeToString(deterministic=True),
                    len(others),
                    kept_size,
                    b"".join(people[PERSON * row : PERSON * (row + 1)] for row in others),
                    id_,
                ),
            )
            gone.append((rows - len(others), size - kept_size))
            continue
        connection.execute("DELETE FROM batches WHERE id = ?", (id_,))
        gone.append((rows, size))
        if left:
            _remember(connection, survey, at, "revoked", data)
            dropped_ids.append((id_, period))
    if dropped_ids and not forget:
        _keep_ids(connection, survey, dropped_ids)
    if forget:
        connection.executemany(
            "INSERT OR IGNORE INTO forgets VALUES (?, ?, ?, 1)",
            [(id_, survey, period) for id_, period in dropped_ids],
        )
        connection.execute("UPDATE forgets SET asked = 1 WHERE survey = ?", (survey,))
    dropped = sum(int(rows) for rows, _ in gone)
    if dropped:
        _less(connection, survey, dropped, sum(size for _, size in gone))
        add_counts(connection, survey, {"revoked": dropped})
    return dropped


def to_forget(store: Store, survey: str) -> Sequence[tuple[str, list[bytes]]]:
    """Return the ids that the server is to forget, in lists of one period and at most 256 ids."""
    found = store.read(
        lambda connection: connection.execute(
            "SELECT period, id FROM forgets WHERE survey = ? AND asked ORDER BY period, id",
            (survey,),
        ).fetchall()
    )
    by_period: dict[str, list[bytes]] = {}
    for period, id_ in found:
        by_period.setdefault(period, []).append(id_)
    return [
        (period, ids[start : start + _MOST_IDS])
        for period, ids in by_period.items()
        for start in range(0, len(ids), _MOST_IDS)
    ]


def forgotten(store: Store, ids: Sequence[bytes]) -> None:
    """Remove ids from the list of batches that the server is to forget."""
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
    """Return the waiting reports and sent batches, decoded."""

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
    store.write(lambda connection: add_counts(connection, survey, counts))


def counters(store: Store, survey: str) -> dict[str, int]:
    """Return the counters of a survey."""
    return store.read(
        lambda connection: dict(
            connection.execute("SELECT name, count FROM counters WHERE survey = ?", (survey,))
        )
    )


def newly_lost(store: Store, survey: str) -> int:
    """Return how many reports of a survey were counted as lost since this was last asked, by
    whichever process."""
    asked = f"lost of {survey}"

    def work(connection: sqlite3.Connection) -> int:
        (lost, before) = connection.execute(
            "SELECT (SELECT total(count) FROM counters WHERE survey = ? AND name = 'lost'),"
            " (SELECT total(value) FROM settings WHERE name = ?)",
            (survey, asked),
        ).fetchone()
        if lost > before:
            connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (asked, int(lost)))
        return int(lost - before)

    return store.write(work)


def add_counts(connection: sqlite3.Connection, survey: str, counts: Mapping[str, int]) -> None:
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
