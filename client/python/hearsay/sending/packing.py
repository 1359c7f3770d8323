"""Pack waiting reports into batches, outside of the transactions that answers wait for."""

import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from hearsay.plans.plan import Plan
from hearsay.recording import envelopes
from hearsay.recording.batches import Batch, kind, let_others, together
from hearsay.recording.outbox import PERSON, drop_reports, keep_totals, kept_plan
from hearsay.sealed import records
from hearsay.storage.store import Store
from hearsay.v1 import shuffler_pb2
from ldp import Coins

_UNANSWERED = 8
"""Batches of a survey that may wait for an answer before more are packed: so reports that pile up
while the server is away go in large batches. Batches that the server put off do not count."""


_UNANSWERED_SEALED = 256
"""The same for sealed records, which are batches of one row each."""


class _Row(NamedTuple):
    """One waiting report, as it is in the table."""

    seq: int
    at: float
    person: bytes
    report: bytes


def pack(store: Store, survey: str, revision: bytes, coins: Coins, *, rows: int, size: int) -> None:
    """Turn waiting reports into batches: of one period, panel and tuple of properties each, of at
    most `rows` rows and about `size` bytes, the rows in random order. `lease` makes them durable.

    `revision` is that of the ledger's plan: where another one has taken its place, nothing is done.
    What waits of another revision is dropped, and counted as "refused": its own plan may have had
    it sealed, split, or kept from servers without evidence.
    """
    while _pack_some(store, survey, revision, coins, rows, size):
        pass


def seal(store: Store, coins: Coins, plan: Plan) -> None:
    """Turn waiting reports into sealed records: each a batch of its own, in random order.

    A record that is split between two servers was sealed when it was made, and keeps its id.
    What waits of another revision is dropped as by `pack`, and nothing is done where another plan
    has taken the place of this one.
    """

    def look(connection: sqlite3.Connection) -> list[_Row]:
        (unanswered,) = connection.execute(
            "SELECT count(*) FROM batches WHERE survey = ? AND leased >= 0", (plan.survey,)
        ).fetchone()
        found = connection.execute(
            "SELECT seq, at, person, report FROM reports WHERE survey = ? ORDER BY seq LIMIT ?",
            (plan.survey, max(0, _UNANSWERED_SEALED - unanswered)),
        ).fetchall()
        return [_Row(*row) for row in found]

    found = store.read(look)
    fresh, stale = _of_revision(found, plan.revision)
    packed: list[tuple[_Row, tuple[Any, ...], shuffler_pb2.SealedRecord | None]] = []
    for number, place in enumerate(coins.permutation(len(fresh))):
        let_others(number)
        row = fresh[place]
        if plan.two_servers:
            packed.append((row, _packed(plan.survey, [row], coins, by_record=True), None))
            continue
        batch = _packed(plan.survey, [row], coins)
        content = shuffler_pb2.Sealed(batch=Batch.FromString(batch[5]))
        packed.append((row, batch, records.seal(plan, content.batch.period, content)))

    def work(connection: sqlite3.Connection) -> None:
        if not _is_kept(connection, plan.survey, plan.revision):
            return
        keep_totals(connection, plan.survey)
        for row, batch, sealed in packed:
            if _take_out(connection, plan.survey, [row.seq]):
                _insert(connection, batch)
                if sealed is not None:
                    envelopes.keep(connection, [(batch[0], sealed)])
        if stale:
            drop_reports(connection, plan.survey, stale, "refused")

    if found:
        store.write(work)


def _insert(connection: sqlite3.Connection, row: tuple[Any, ...]) -> None:
    connection.execute(
        "INSERT INTO batches (id, survey, period, rows, size, batch, people, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        row,
    )


def _pack_some(
    store: Store, survey: str, revision: bytes, coins: Coins, rows: int, size: int
) -> bool:
    """Pack the oldest reports, or in a survey with panels or properties all reports of the kind of
    some that are drawn; return whether there may be more.

    Few reports are of one kind there: the oldest reports alone would make small batches, which
    would leave in the order in which people answered.
    """

    def look(connection: sqlite3.Connection) -> tuple[int, bool, list[_Row]]:
        (unanswered,) = connection.execute(
            "SELECT count(*) FROM batches WHERE survey = ? AND leased >= 0", (survey,)
        ).fetchone()
        waiting = "SELECT seq, at, person, report FROM reports WHERE survey = ? ORDER BY seq"
        if unanswered >= _UNANSWERED:
            return 0, False, []
        found = connection.execute(f"{waiting} LIMIT ?", (survey, rows)).fetchall()
        grouped = bool(found) and _is_grouped(_Row(*found[0]))
        if grouped:
            found = connection.execute(waiting, (survey,)).fetchall()
        return _UNANSWERED - unanswered, grouped, [_Row(*row) for row in found]

    free, grouped, found = store.read(look)
    # Batches are built outside of the transaction, so that no answer waits for it.
    if grouped:
        found = [found[i] for i in coins.permutation(len(found))]
    fresh, stale = _of_revision(found, revision)
    packed = [(group, _packed(survey, group, coins)) for group in _groups(fresh, rows, size)[:free]]

    def work(connection: sqlite3.Connection) -> bool:
        if not _is_kept(connection, survey, revision):
            return False
        keep_totals(connection, survey)
        for group, row in packed:
            if _take_out(connection, survey, [each.seq for each in group]):
                _insert(connection, row)
        if stale:
            drop_reports(connection, survey, stale, "refused")
        return True

    if not packed and not stale:
        return False
    return store.write(work) and len(found) == rows


def _of_revision(found: Sequence[_Row], revision: bytes) -> tuple[list[_Row], list[int]]:
    """Return the rows of a revision, and the numbers of the others, rising."""
    fresh = [row for row in found if Batch.FromString(row.report).revision == revision]
    return fresh, sorted({row.seq for row in found} - {row.seq for row in fresh})


def _is_kept(connection: sqlite3.Connection, survey: str, revision: bytes) -> bool:
    """Tell whether the ledger's plan is of this revision, still."""
    kept = kept_plan(connection, survey)
    return kept != b"" and hashlib.sha256(kept).digest() == revision


def _take_out(connection: sqlite3.Connection, survey: str, seqs: Sequence[int]) -> bool:
    """Delete reports if all are still there; return whether they were.

    Somebody else may have packed, dropped or revoked some of them since they were read.
    """
    first, last = min(seqs), max(seqs)
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


def _is_grouped(row: _Row) -> bool:
    """Tell whether a report is of a survey with panels or properties."""
    report = Batch.FromString(row.report)
    return bool(report.panel or report.properties)


def _groups(found: Sequence[_Row], rows: int, size: int) -> list[list[_Row]]:
    groups: list[list[_Row]] = []
    open_: dict[tuple[object, ...], tuple[list[_Row], int]] = {}
    for number, row in enumerate(found):
        let_others(number)
        shared = kind(Batch.FromString(row.report))
        group, filled = open_.get(shared, ([], 0))
        if not group or len(group) >= rows or filled + len(row.report) > size:
            group, filled = [], 0
            groups.append(group)
        group.append(row)
        open_[shared] = group, filled + len(row.report)
    return groups


def _packed(
    survey: str, group: Sequence[_Row], coins: Coins, *, by_record: bool = False
) -> tuple[Any, ...]:
    """Return reports of one `kind` as a row of the table of batches; `by_record` a single one that
    is split between two servers, whose id is sealed with it."""
    shuffled = [group[i] for i in coins.permutation(len(group))]
    reports = []
    for number, row in enumerate(shuffled):
        let_others(number)
        reports.append(Batch.FromString(row.report))
    batch = together(reports)
    if by_record:
        batch.id = reports[0].id
    return (
        batch.id,
        survey,
        batch.period,
        batch.rows,
        sum(len(row.report) for row in group),
        batch.SerializeToString(deterministic=True),
        b"".join(row.person or bytes(PERSON) for row in shuffled),
        min(row.at for row in group),
    )
