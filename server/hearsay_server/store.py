"""What the server keeps: surveys, batches and tallies, in SQLite or PostgreSQL.

A commit is durable: an fsync precedes its return. The tallies change in the transaction that
stores their batch, so they are always those of the stored batches. Any number of stores, in any
number of processes, may share a database: a batch is counted by the one that inserts its id.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hearsay.v1 import collector_pb2, plan_pb2
from hearsay_server import schema, shards
from hearsay_server.clock import Clock, system
from hearsay_server.database import Database, open_database
from hearsay_server.intake import NEVER, Cohort, Reason, Refused, closed, ends
from hearsay_server.shards import Counted
from ldp import InvalidInput, Tally

_surveys = schema.surveys
_PRESENT = sa.not_(_surveys.c.deleted)

_DAY = 24 * 3600

_COUNTED = {"preserve_rowcount": True}  # which is not always known of an insertion

_RACES = 20
"""Times that a group is judged anew because another process was faster with some of it."""

_KNOWN = sa.select(schema.batches.c.id, schema.batches.c.rows, schema.batches.c.batch).where(
    schema.batches.c.id.in_(sa.bindparam("ids", expanding=True))
)
_STATES = sa.select(
    *(_surveys.c[name] for name in ("survey", "revision", "unit", "closed_before"))
).where(_surveys.c.survey.in_(sa.bindparam("surveys", expanding=True)), _PRESENT)

_COLUMNS = tuple(column.name for column in schema.batches.c)

Admit = Callable[[sa.Connection, int], None]
"""Counts a batch toward what its sender may store, or raises `Refused`."""

Decode = Callable[[collector_pb2.Batch], Mapping[Cohort, Tally]]
"""Returns what a batch counts, or raises `Refused`."""


@dataclass(frozen=True)
class StoredSurvey:
    """A registered survey: its frozen plan, and how many batches and records count."""

    survey: str
    revision: bytes
    plan: bytes
    batches: int
    records: int
    closed: bool


class Store:
    """What one process sees and writes of a database that it may share."""

    def __init__(self, where: Path | str, clock: Clock = system) -> None:
        """Open a folder with SQLite, or a "postgresql://" URL; make what is missing.

        Raises `InvalidInput` as `open_database` does.
        """
        self.database: Database = open_database(where)
        self._clock = clock

    @property
    def engine(self) -> sa.Engine:
        """The database, for what keeps tables of its own in it."""
        return self.database.engine

    def close(self) -> None:
        """Close the database and leave it to others."""
        self.database.close()

    def create_survey(self, survey: str, revision: bytes, plan: bytes) -> StoredSurvey:
        """Freeze a survey's plan; raise `InvalidInput` where the name has another one."""

        def create() -> StoredSurvey:
            with self.database.appending() as connection:
                insert = self.database.insert(_surveys).on_conflict_do_nothing()
                row = {"survey": survey, "revision": revision, "plan": plan, "unit": _unit(plan)}
                connection.execute(insert, {**row, "closed_before": 0, "deleted": False})
                stored = connection.execute(
                    sa.select(_surveys).where(_surveys.c.survey == survey)
                ).one()
                if stored.deleted:
                    raise InvalidInput(f"{survey!r} is being deleted: come again in a while")
                if stored.revision != revision:
                    raise InvalidInput(
                        f"a survey {survey!r} exists, with another plan (revision "
                        f"{stored.revision.hex()[:12]}): choose another name"
                    )
                return _survey(connection, stored)

        return self.database.retrying(create)

    def surveys(self) -> list[StoredSurvey]:
        """Return all surveys by name."""
        with self.database.reading() as connection:
            query = sa.select(_surveys).where(_PRESENT).order_by(_surveys.c.survey)
            return [_survey(connection, row) for row in connection.execute(query).all()]

    def survey(self, survey: str) -> StoredSurvey | None:
        """Return one survey, or None."""
        with self.database.reading() as connection:
            query = sa.select(_surveys).where(_surveys.c.survey == survey, _PRESENT)
            row = connection.execute(query).one_or_none()
            return None if row is None else _survey(connection, row)

    def revision(self, survey: str) -> bytes | None:
        """Return the revision of a survey, or None."""
        with self.database.reading() as connection:
            query = sa.select(_surveys.c.revision).where(_surveys.c.survey == survey, _PRESENT)
            return connection.execute(query).scalar_one_or_none()

    def add(
        self,
        batches: Sequence[collector_pb2.Batch],
        decode: Decode,
        admit: Admit = lambda connection, position: None,
    ) -> list[bool | Refused]:
        """Store batches in one durable transaction; return what became of each.

        True: it was new. False: the same batch is stored, or stands earlier in `batches`, and
        is not counted again. `Refused`: what `decode` raised, its period is closed, its device
        asked to forget it, the id is another batch's, or what `admit` raised, which is given the
        position of each batch that would be stored and the connection, so that what it counts is
        counted in the same transaction. When this raises, nothing is stored, unless the
        connection broke in the commit: then sending it again finds out.
        """
        barred: dict[int, Refused] = {}  # by `admit`, in a transaction that was given up for it
        for _ in range(_RACES):
            # Decoding takes its time, so it is done before anything is locked. What it rests on
            # is looked at again with the insertion.
            judged = self.database.retrying(partial(self._judge, batches, decode, barred))
            if not judged.fresh or self.database.retrying(
                partial(self._write, judged, admit, barred)
            ):
                return judged.outcomes
        raise RuntimeError(f"others stored some of these {len(batches)} batches {_RACES} times")

    def _judge(
        self, batches: Sequence[collector_pb2.Batch], decode: Decode, barred: Mapping[int, Refused]
    ) -> "_Judged":
        ids = {batch.id for batch in batches}
        with self.database.reading() as connection:
            rows = connection.execute(_KNOWN, {"ids": list(ids)})
            known = {row.id: (row.rows, row.batch) for row in rows}
            states = _states(connection, {batch.survey for batch in batches})
        sums: dict[Cohort, Tally] = {}
        judged = _Judged(states, [], [], sums)
        today = int(self._clock().timestamp()) // _DAY
        for position, batch in enumerate(batches):
            data = batch.SerializeToString(deterministic=True)
            try:
                if batch.id in known:
                    judged.outcomes.append(_known(batch.id, data, *known[batch.id]))
                    continue
                if position in barred:
                    raise barred[position]
                tallies = decode(batch)
                closes = _check_open(batch, states.get(batch.survey))
            except Refused as refused:
                judged.outcomes.append(refused)
                continue
            for cohort, tally in tallies.items():
                sums[cohort] = sums[cohort] + tally if cohort in sums else tally
            known[batch.id] = (batch.rows, data)
            judged.fresh.append(
                _New(
                    position, batch.id, batch.survey, batch.period, closes, today, batch.rows, data
                )
            )
            judged.outcomes.append(True)
        return judged

    def _write(self, judged: "_Judged", admit: Admit, barred: dict[int, Refused]) -> bool:
        """Store what was judged new; return False, and store nothing, where some of it is not.

        Adds to `barred` what is not admitted.
        """
        try:
            with self.database.appending() as connection:
                if _states(connection, judged.states) != judged.states:
                    raise _Changed
                # Two that insert the same ids wait for each other: in one order, not in a circle.
                fresh = sorted(judged.fresh, key=lambda new: new.id)
                rows = [{name: getattr(new, name) for name in _COLUMNS} for new in fresh]
                insert = self.database.insert(schema.batches).on_conflict_do_nothing()
                done = connection.execute(insert, rows, execution_options=_COUNTED)
                if done.rowcount != len(rows):
                    raise _Changed
                for new in judged.fresh:
                    try:
                        admit(connection, new.position)
                    except Refused as refused:
                        barred[new.position] = refused
                if any(new.position in barred for new in judged.fresh):
                    raise _Changed
                shards.count(self.database, connection, _counted(judged.fresh))
                shards.add(self.database, connection, judged.sums)
        except _Changed:
            return False
        return True

    def tallies(
        self, survey: str, attribute: str, levels: Iterable[str] = (), periods: Iterable[str] = ()
    ) -> dict[Cohort, Tally]:
        """Return the tallies of an attribute; empty `levels` or `periods` mean all."""
        table = schema.tallies
        conditions = [table.c.survey == survey, table.c.attribute == attribute]
        if levels := list(levels):
            conditions.append(table.c.level.in_(levels))
        if periods := list(periods):
            conditions.append(table.c.period.in_(periods))
        with self.database.reading() as connection:
            return shards.read(connection, *conditions)

    def batches(self, survey: str, page: int = 128) -> Iterator[list[collector_pb2.Batch]]:
        """Yield a survey's batches that are stored still, by page, in the order of their ids.

        Ids are random. Each page is a transaction of its own, so that a long reading holds
        nobody up; a batch that comes in meanwhile may or may not be among them.
        """
        table = schema.batches
        query = sa.select(table.c.id, table.c.batch).order_by(table.c.id).limit(page)
        last = b""
        while True:
            here = query.where(
                table.c.survey == survey, table.c.batch.is_not(None), table.c.id > last
            )
            with self.database.reading() as connection:
                rows = connection.execute(here).all()
            if not rows:
                return
            last = rows[-1].id
            yield [collector_pb2.Batch.FromString(row.batch) for row in rows]


class _Changed(Exception):
    """Between judging and writing another process stored, closed or deleted some of it."""


@dataclass(frozen=True)
class _State:
    """What of a survey decides whether a batch may be stored."""

    revision: bytes
    unit: str
    closed_before: int


@dataclass(frozen=True)
class _New:
    """A row to insert, and where its batch stands in the group."""

    position: int
    id: bytes
    survey: str
    period: str
    ends: int
    day: int
    rows: int
    batch: bytes


@dataclass(frozen=True)
class _Judged:
    """A group of batches: what becomes of each, and what is to be written for the new ones."""

    states: dict[str, _State]
    outcomes: list[bool | Refused]
    fresh: list[_New]
    sums: dict[Cohort, Tally]


def _states(connection: sa.Connection, names: Iterable[str]) -> dict[str, _State]:
    rows = connection.execute(_STATES, {"surveys": list(names)})
    return {row[0]: _State(*row[1:]) for row in rows}


def _known(id_: bytes, data: bytes, rows: int, stored: bytes | None) -> bool:
    """Return False for a batch that is stored; raise `Refused` where its id means another."""
    if not rows:
        raise Refused(Reason.FORGOTTEN, "its device asked to forget this batch")
    if stored is not None and stored != data:
        raise Refused(Reason.BAD_ID, f"another batch has the id {id_.hex()}: draw ids at random")
    return False


def _check_open(batch: collector_pb2.Batch, state: _State | None) -> int:
    """Return the second in which the batch's period ends; raise `Refused` where it is closed."""
    if state is None:  # deleted by another process since its plan was looked up
        detail = f"there is no survey {batch.survey!r} here"
        raise Refused(Reason.UNKNOWN_SURVEY, detail, final=False)
    if state.revision != batch.revision:
        detail = f"{batch.survey!r} has another plan now: fetch it again"
        raise Refused(Reason.UNKNOWN_REVISION, detail, final=False)
    last = ends(state.unit, batch.period)
    if last <= state.closed_before:
        raise closed(batch.period)
    return last


def _counted(fresh: Iterable[_New]) -> dict[shards.Period, Counted]:
    sums: dict[shards.Period, Counted] = {}
    for new in fresh:
        key = (new.survey, new.period)
        sums[key] = sums.get(key, Counted()) + Counted(1, new.rows)
    return sums


def _survey(connection: sa.Connection, row: Any) -> StoredSurvey:
    counted = sum(shards.counted(connection, row.survey).values(), Counted())
    closed_ = row.closed_before >= NEVER
    return StoredSurvey(
        row.survey, row.revision, row.plan, counted.batches, counted.records, closed_
    )


def _unit(plan: bytes) -> str:
    return plan_pb2.Plan.FromString(plan).survey.period
