"""Counts and tallies: each writer adds to rows of its own, and they are read as sums."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import sqlalchemy as sa

from hearsay_server.ingest.intake import Cohort
from hearsay_server.storage.database import Database
from hearsay_server.storage.packed import PackedTallies
from hearsay_server.storage.schema import counts, tallies
from ldp import Tally

_COHORT = [tallies.c[field.name] for field in fields(Cohort)]
_LISTED = ("attribute", "level", "map")
_FIXED = ("survey", "revision", "period", "panel", "group")
_SELECT = sa.select(*_COHORT, tallies.c.writer, tallies.c.tally).order_by(
    *_COHORT, tallies.c.writer
)
# Equalities and lists of single values: a tuple in a list has SQLite read the whole table.
_SELECT_MINE = _SELECT.where(
    *(tallies.c[name] == sa.bindparam(name) for name in _FIXED),
    *(tallies.c[name].in_(sa.bindparam(name, expanding=True)) for name in _LISTED),
    tallies.c.writer == sa.bindparam("writer"),
).with_for_update()
_SELECT_ONE = _SELECT.where(*(column == sa.bindparam(column.name) for column in _COHORT))
_ROW = [*_COHORT, tallies.c.writer]
_SAME_ROW = [column == sa.bindparam(f"_{column.name}") for column in _ROW]
_UPDATE = sa.update(tallies).where(*_SAME_ROW).values(tally=sa.bindparam("_tally"))
_DELETE = sa.delete(tallies).where(*_SAME_ROW)


@dataclass(frozen=True)
class Counted:
    """How many batches and records count, and how many of the batches are no longer stored."""

    batches: int = 0
    records: int = 0
    dropped: int = 0

    @property
    def stored(self) -> int:
        """How many of the batches are stored still."""
        return self.batches - self.dropped

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(
            self.batches + other.batches,
            self.records + other.records,
            self.dropped + other.dropped,
        )


Period = tuple[str, str]
"""A survey and one of its periods."""


def count(database: Database, connection: sa.Connection, more: Mapping[Period, Counted]) -> None:
    """Add to our rows of the counts; the numbers may be negative."""
    if not more:
        return
    rows = [  # always in the same order, so that two of one shard do not wait for each other
        (survey, period, database.shard, counted.batches, counted.records, counted.dropped)
        for (survey, period), counted in sorted(more.items(), key=lambda item: item[0])
    ]
    database.change(connection, _upsert(database.insert), rows)


@cache
def _upsert(insert: Callable[[sa.Table], Any]) -> sa.ClauseElement:
    new = insert(counts)
    added = {
        name: counts.c[name] + new.excluded[name] for name in ("batches", "records", "dropped")
    }
    key = [counts.c.survey, counts.c.period, counts.c.writer]
    upsert: sa.ClauseElement = new.on_conflict_do_update(index_elements=key, set_=added)
    return upsert


def counted(connection: sa.Connection, survey: str) -> dict[str, Counted]:
    """Return the counts of a survey by period."""
    sums = [sa.func.sum(counts.c[name]) for name in ("batches", "records", "dropped")]
    query = (
        sa.select(counts.c.period, *sums)
        .where(counts.c.survey == survey)
        .group_by(counts.c.period)
        .order_by(counts.c.period)
    )
    return {row[0]: Counted(*map(int, row[1:])) for row in connection.execute(query)}


def add(database: Database, connection: sa.Connection, more: Mapping[Cohort, Tally]) -> None:
    """Add to our rows of the tallies."""
    cohorts = sorted(more)
    stored: dict[Cohort, bytes] = {}
    parts: defaultdict[tuple[object, ...], list[Cohort]] = defaultdict(list)
    for cohort in cohorts:
        parts[tuple(getattr(cohort, name) for name in _FIXED)].append(cohort)
    for part, some in parts.items():
        chosen = dict(zip(_FIXED, part, strict=True))
        listed = {name: list({getattr(c, name) for c in some}) for name in _LISTED}
        rows = connection.execute(_SELECT_MINE, {**chosen, **listed, "writer": database.shard})
        found = ((Cohort(*row[:-2]), row[-1]) for row in rows)
        stored |= {cohort: data for cohort, data in found if cohort in more}
    new = [_row(c, database.shard, more[c]) for c in cohorts if c not in stored]
    old = [
        ((Tally.from_bytes(stored[c]) + more[c]).to_bytes(), *_key(c), database.shard)
        for c in cohorts
        if c in stored
    ]
    if old:
        database.change(connection, _UPDATE, old)
    if new:
        connection.execute(sa.insert(tallies), new)


def subtract(database: Database, connection: sa.Connection, less: Mapping[Cohort, Tally]) -> None:
    """Subtract tallies; must be called while nobody else writes.

    Raises `InvalidInput` where they were not all counted: then the transaction must be rolled back.
    """
    for cohort, tally in sorted(less.items(), key=lambda item: item[0]):
        rows = connection.execute(_SELECT_ONE, vars(cohort)).all()
        whole = _packed(rows).get(cohort, Tally.empty(tally.counts.size))
        rest = Tally(whole.n - tally.n, whole.counts - tally.counts)
        if rows:  # what one shard lacks may be in another
            connection.execute(_DELETE, [_bound(_row(cohort, row.writer)) for row in rows])
        if rest.n:
            connection.execute(sa.insert(tallies), _row(cohort, database.shard, rest))


def read(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> PackedTallies:
    """Return the tallies that meet the conditions, summed over the writers, in order."""
    return _packed(connection.execute(_SELECT.where(*conditions)))


def reports(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> dict[Cohort, int]:
    """Return the number of reports in each tally that meets the conditions, in order, without its
    counts."""
    n = sa.func.substr(tallies.c.tally, 1, Tally.N_BYTES)
    found: Counter[Cohort] = Counter()
    for *key, head in connection.execute(
        sa.select(*_COHORT, n).where(*conditions).order_by(*_COHORT)
    ):
        found[Cohort(*key)] += Tally.n_of(head)
    return dict(found)


def _packed(rows: Iterable[Any]) -> PackedTallies:
    packed: dict[Cohort, list[bytes]] = {}
    for row in rows:
        packed.setdefault(Cohort(*row[:-2]), []).append(row[-1])
    return PackedTallies(packed)


def _key(cohort: Cohort) -> tuple[object, ...]:
    return tuple(vars(cohort).values())


def _row(cohort: Cohort, writer: int, tally: Tally | None = None) -> dict[str, object]:
    row: dict[str, object] = {**vars(cohort), "writer": writer}
    return row if tally is None else {**row, "tally": tally.to_bytes()}


def _bound(row: Mapping[str, object]) -> dict[str, object]:
    return {f"_{name}": value for name, value in row.items()}
