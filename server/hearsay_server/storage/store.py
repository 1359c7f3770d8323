"""What the server keeps: surveys, batches and tallies, in SQLite or PostgreSQL.

A commit is durable: an fsync precedes its return. The tallies change in the transaction that
stores their batch, so they are always those of the stored batches. Any number of stores, in any
number of processes, may share a database: a batch is counted by the one that inserts its id.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hearsay.v1 import collector_pb2, plan_pb2
from hearsay_server.clock import Clock, system
from hearsay_server.ingest.intake import GRACE, NEVER, Cohort, Reason, Refused, closed, ends
from hearsay_server.ingest.merging import Decode, decode_all
from hearsay_server.storage import schema, shards
from hearsay_server.storage.database import Database, open_database
from hearsay_server.storage.shards import Counted
from ldp import InvalidInput, Tally
from ldp.core.tally import add_up
from ldp.errors import NotReady

_surveys = schema.surveys
_PRESENT = sa.not_(_surveys.c.deleted)

_DAY = 24 * 3600

_RACES = 20
"""Times that a group is judged anew because another process was faster with some of it."""

_PAGE_BYTES = 8 << 20
"""Bytes of a page of batches, with which it ends; three of them may be in memory."""

_ROW_BYTES = 16
"""Bytes that a row counts for in a page, besides its codes: rows are put in order one by one."""

_KNOWN = sa.select(schema.batches.c.id, schema.batches.c.rows, schema.batches.c.batch).where(
    schema.batches.c.id.in_(sa.bindparam("ids", expanding=True))
)
_STATES = sa.select(
    *(_surveys.c[name] for name in ("survey", "revision", "unit", "closed_before"))
).where(_surveys.c.survey.in_(sa.bindparam("surveys", expanding=True)), _PRESENT)

Admit = Callable[[sa.Connection, Sequence[int]], Mapping[int, Refused]]
"""Counts batches toward what their senders may store; returns which of them may not be."""


@dataclass(frozen=True)
class StoredSurvey:
    """A registered survey: its frozen plan, and how many batches and records count."""

    survey: str
    revision: bytes
    plan: bytes
    batches: int
    records: int
    closed: bool


class BeingDeleted(NotReady):
    """A survey's name is taken until all that it held is deleted."""


class Store:
    """What one process sees and writes of a database that it may share."""

    def __init__(self, where: Path | str, clock: Clock = system) -> None:
        """Open a folder with SQLite, or a "postgresql://" URL; make what is missing.

        Raises as `open_database` does.
        """
        self.database: Database = open_database(where)
        # One statement for all rows: of those that it inserts it returns something.
        insert = self.database.insert(schema.batches).on_conflict_do_nothing()
        self._insert: sa.Executable = insert.returning(schema.batches.c.rows)
        self._clock = clock

    @property
    def engine(self) -> sa.Engine:
        """The database, for what keeps tables of its own in it."""
        return self.database.engine

    def close(self) -> None:
        """Close the database and leave it to others."""
        self.database.close()

    def create_survey(self, survey: str, revision: bytes, plan: bytes) -> StoredSurvey:
        """Freeze a survey's plan; raise `InvalidInput` where the name has another one.

        Raises `BeingDeleted` where a survey of that name is.
        """

        def create() -> StoredSurvey:
            with self.database.appending() as connection:
                insert = self.database.insert(_surveys).on_conflict_do_nothing()
                unit = _unit(plan)
                row = {"survey": survey, "revision": revision, "plan": plan, "unit": unit}
                # What is closed of others is closed of this one too.
                swept = connection.execute(sa.select(schema.sweeps.c.at)).scalar_one_or_none()
                before = int(swept - GRACE.total_seconds()) if unit and swept else 0
                connection.execute(insert, {**row, "closed_before": before, "deleted": False})
                stored = connection.execute(
                    sa.select(_surveys).where(_surveys.c.survey == survey)
                ).one()
                if stored.deleted:
                    raise BeingDeleted(f"{survey!r} is being deleted: come again in a while")
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
        admit: Admit = lambda connection, positions: {},
    ) -> list[bool | Refused]:
        """Store batches in one durable transaction; return what became of each.

        True: it was new. False: the same batch is stored, or stands earlier in `batches`, and
        is not counted again. `Refused`: what `decode` raised, its period is closed, its device
        asked to forget it, the id is another batch's, or what `admit` returned, which is given
        the positions of the batches that would be stored and the connection, so that what it
        counts is counted in the same transaction. When this raises, nothing is stored, unless
        the connection broke in the commit: then sending it again finds out.
        """
        barred: dict[int, Refused] = {}  # by `admit`, where that changes what others are
        for attempt in range(_RACES):
            # Decoding takes its time, so it is done before anything is locked. What it rests on
            # is looked at with the insertion: mostly every batch is good and new, and all is
            # said there. What is refused may be known, and then that is what counts.
            look = attempt > 0
            judged = self.database.retrying(partial(self._judge, batches, decode, barred, look))
            if not look and any(isinstance(outcome, Refused) for outcome in judged.outcomes):
                continue
            write = partial(self._write, judged, decode, admit, barred)
            if not judged.fresh or self.database.retrying(write):
                return judged.outcomes
        raise RuntimeError(f"others stored some of these {len(batches)} batches {_RACES} times")

    def _judge(
        self,
        batches: Sequence[collector_pb2.Batch],
        decode: Decode,
        barred: Mapping[int, Refused],
        look: bool,
    ) -> "_Judged":
        """Say what becomes of the batches; unless told to look, as if none was stored or late."""
        known: dict[bytes, tuple[int, bytes | None]] = {}
        states: dict[str, _State] | None = None
        if look:
            with self.database.reading() as connection:
                rows = connection.execute(_KNOWN, {"ids": list({batch.id for batch in batches})})
                known = {row.id: (row.rows, row.batch) for row in rows}
                states = _states(connection, {batch.survey for batch in batches})
        judged = _Judged([True] * len(batches), [], {}, set())
        data = [batch.SerializeToString(deterministic=True) for batch in batches]
        waiting: Sequence[int] = range(len(batches))
        while waiting:
            first: dict[bytes, int] = {}
            later: list[int] = []  # of an id that stands earlier, and may be refused there
            for position in waiting:
                id_ = batches[position].id
                if id_ in known:
                    judged.outcomes[position] = _known(id_, data[position], *known[id_])
                elif position in barred:
                    judged.outcomes[position] = barred[position]
                elif first.setdefault(id_, position) != position:
                    later.append(position)
                    judged.twins.add(id_)
            new = [(position, batches[position]) for position in first.values()]
            for position, batch in _decode(judged, new, states, decode):
                known[batch.id] = (batch.rows, data[position])
                judged.fresh.append(_New(position, batch, data[position]))
            waiting = later
        return judged

    def _write(
        self, judged: "_Judged", decode: Decode, admit: Admit, barred: dict[int, Refused]
    ) -> bool:
        """Store what was judged new; return False, and store nothing, where some of it is not.

        What is not admitted is not stored; where others of its id stand in the group, it is added
        to `barred` instead, and nothing is stored.
        """
        today = int(self._clock().timestamp()) // _DAY
        # Two that insert the same ids wait for each other: in one order, not in a circle.
        fresh = sorted(judged.fresh, key=lambda new: new.batch.id)
        try:
            with self.database.appending() as connection:
                states = _states(connection, {new.batch.survey for new in fresh})
                one_of_each = {_when(new.batch): new.batch for new in fresh}
                last = {when: _end(batch, states) for when, batch in one_of_each.items()}
                rows = [new.row(last[_when(new.batch)], today) for new in fresh]
                if len(connection.execute(self._insert, rows).all()) != len(rows):
                    raise _Changed
                sums = judged.sums
                refused = admit(connection, [new.position for new in judged.fresh])
                if refused:
                    out = [new.batch for new in fresh if new.position in refused]
                    if judged.twins.intersection(batch.id for batch in out):
                        barred.update(refused)
                        raise _Changed
                    _take_back(connection, out)
                    back = decode_all(out, decode)
                    if back.refused:  # since they were judged: what they count is not known now
                        raise _Changed
                    sums = _without(sums, back.sums)
                kept = [new for new in fresh if new.position not in refused]
                shards.count(self.database, connection, _counted(kept))
                shards.add(self.database, connection, sums)
        except (_Changed, Refused):
            return False
        for position, why in refused.items():
            judged.outcomes[position] = why
        return True

    def tallies(
        self,
        survey: str,
        attribute: str,
        levels: Iterable[str] = (),
        periods: Iterable[str] = (),
        first: str = "",
        last: str = "",
    ) -> dict[Cohort, Tally]:
        """Return the tallies of an attribute, whatever of these is empty not restricting them.

        With levels named, no row of another period than those asked for is read in SQLite, and
        none of another attribute in PostgreSQL.
        """
        table = schema.tallies
        conditions = [table.c.survey == survey, table.c.attribute == attribute]
        if levels := list(levels):
            # All before the period in the key, so that a range of periods is one of the key.
            plan = sa.select(_surveys.c.revision).where(_surveys.c.survey == survey)
            conditions += [table.c.revision == plan.scalar_subquery(), table.c.level.in_(levels)]
        conditions += self._within(table.c.period, periods, first, last)
        with self.database.reading() as connection:
            return shards.read(connection, *conditions)

    def _within(
        self, period: sa.ColumnElement[str], names: Iterable[str], first: str, last: str
    ) -> list[sa.ColumnElement[bool]]:
        """Return the conditions that a period is one of those named, and within the range."""
        conditions: list[sa.ColumnElement[bool]] = []
        if names := list(names):
            conditions.append(period.in_(names))
        # Names of periods sort in the order of time by their bytes, not in every language.
        if self.engine.dialect.name == "postgresql":
            period = sa.collate(period, "C")
        if first:
            conditions.append(period >= first)
        if last:
            conditions.append(period <= last)
        return conditions

    def batches(
        self,
        survey: str,
        periods: Iterable[str] = (),
        first: str = "",
        last: str = "",
        *,
        page: int = 128,
    ) -> Iterator[list[collector_pb2.Batch]]:
        """Yield a survey's batches that are stored still, period by period, in pages.

        A page has `page` batches of one period, in the order of their ids, which are random; or
        fewer where they are large. The last one of a period joins the one before it, so that
        it is no page of a few. Each is read in a transaction of its own, so that a long reading
        holds nobody up; a batch that comes in meanwhile may or may not be among them.
        """
        table = schema.counts
        stored = sa.func.sum(table.c.batches) > sa.func.sum(table.c.dropped)
        query = (
            sa.select(table.c.period)
            .where(table.c.survey == survey, *self._within(table.c.period, periods, first, last))
            .group_by(table.c.period)
            .having(stored)
            .order_by(table.c.period)
        )
        with self.database.reading() as connection:
            names = connection.scalars(query).all()
        for name in names:
            held: list[list[collector_pb2.Batch]] = []
            for more in self._pages(survey, name, page):
                if len(held) == 2:
                    yield held.pop(0)
                held.append(more)
            if held:
                yield [batch for part in held for batch in part]

    def _pages(self, survey: str, period: str, page: int) -> Iterator[list[collector_pb2.Batch]]:
        table = schema.batches
        mine = (table.c.survey == survey) & (table.c.period == period) & table.c.batch.is_not(None)
        size = sa.func.length(table.c.batch) + _ROW_BYTES * table.c.rows
        sizes = sa.select(table.c.id, size.label("size"))
        contents = sa.select(table.c.batch).where(mine).order_by(table.c.id)
        last = b""
        while True:
            here = sizes.where(mine, table.c.id > last).order_by(table.c.id).limit(page)
            with self.database.reading() as connection:
                ids, total = [], 0
                for row in connection.execute(here):
                    ids.append(row.id)
                    total += row.size
                    if total >= _PAGE_BYTES:
                        break
                if not ids:
                    return
                these = contents.where(table.c.id.between(ids[0], ids[-1]))
                data = connection.scalars(these).all()
            last = ids[-1]
            yield [collector_pb2.Batch.FromString(each) for each in data]


class _Changed(Exception):
    """Some of what was judged new is not, or others of its id are to be judged again."""


@dataclass(frozen=True)
class _State:
    """What of a survey decides whether a batch may be stored."""

    revision: bytes
    unit: str
    closed_before: int


@dataclass(frozen=True)
class _New:
    """A batch to be stored, where it stands in the group, and its bytes."""

    position: int
    batch: collector_pb2.Batch
    data: bytes

    def row(self, ends: int, day: int) -> dict[str, object]:
        batch = self.batch
        return {
            "id": batch.id,
            "survey": batch.survey,
            "period": batch.period,
            "ends": ends,
            "day": day,
            "rows": batch.rows,
            "batch": self.data,
        }


@dataclass(frozen=True)
class _Judged:
    """A group of batches: what becomes of each, and what is to be written for the new ones."""

    outcomes: list[bool | Refused]
    fresh: list[_New]
    sums: dict[Cohort, Tally]
    twins: set[bytes]  # ids of several


def _decode(
    judged: _Judged,
    new: Sequence[tuple[int, collector_pb2.Batch]],
    states: Mapping[str, _State] | None,
    decode: Decode,
) -> list[tuple[int, collector_pb2.Batch]]:
    """Add to `judged` what becomes of batches and what they count; return those to be stored."""
    decoded = decode_all([batch for _, batch in new], decode)
    late: dict[_When, Refused | None] = {}
    good = []
    for number, (position, batch) in enumerate(new):
        refused = decoded.refused.get(number)
        by_clock = refused is not None and refused.reason == Reason.PERIOD_CLOSED
        if states is not None and (refused is None or by_clock):
            if _when(batch) not in late:
                late[_when(batch)] = _late(batch, states)
            refused = late[_when(batch)] or refused
        if refused is None:
            good.append((position, batch))
        else:
            judged.outcomes[position] = refused
    in_time = (
        (cohort, tally)
        for cohort, tally in decoded.sums.items()
        if not late.get((cohort.survey, cohort.revision, cohort.period))
    )
    add_up(judged.sums, in_time)
    return good


def _take_back(connection: sa.Connection, batches: Sequence[collector_pb2.Batch]) -> None:
    """Delete batches that were inserted in the same transaction."""
    here = schema.batches.c.id.in_([batch.id for batch in batches])
    connection.execute(sa.delete(schema.batches).where(here))


def _without(sums: Mapping[Cohort, Tally], less: Mapping[Cohort, Tally]) -> dict[Cohort, Tally]:
    rest = dict(sums)
    for cohort, tally in less.items():
        whole = rest.pop(cohort)
        if whole.n > tally.n:
            rest[cohort] = Tally(whole.n - tally.n, whole.counts - tally.counts)
    return rest


_When = tuple[str, bytes, str]


def _when(batch: collector_pb2.Batch) -> _When:
    """Return what decides whether a good batch is late."""
    return batch.survey, batch.revision, batch.period


def _states(connection: sa.Connection, names: Iterable[str]) -> dict[str, _State]:
    rows = connection.execute(_STATES, {"surveys": list(names)})
    return {row[0]: _State(*row[1:]) for row in rows}


def _known(id_: bytes, data: bytes, rows: int, stored: bytes | None) -> bool | Refused:
    """Return what becomes of a batch whose id is known: False where it is the same one."""
    if not rows:
        return Refused(Reason.FORGOTTEN, "its device asked to forget this batch")
    if stored is not None and stored != data:
        return Refused(Reason.BAD_ID, f"another batch has the id {id_.hex()}: draw ids at random")
    return False


def _late(batch: collector_pb2.Batch, states: Mapping[str, _State]) -> Refused | None:
    try:
        _end(batch, states)
    except Refused as refused:
        return refused
    return None


def _end(batch: collector_pb2.Batch, states: Mapping[str, _State]) -> int:
    """Return the second in which the batch's period ends; raise `Refused` where it is closed."""
    state = states.get(batch.survey)
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
    batches: Counter[shards.Period] = Counter()
    records: Counter[shards.Period] = Counter()
    for new in fresh:
        key = (new.batch.survey, new.batch.period)
        batches[key] += 1
        records[key] += new.batch.rows
    return {key: Counted(batches[key], records[key]) for key in batches}


def _survey(connection: sa.Connection, row: Any) -> StoredSurvey:
    counted = sum(shards.counted(connection, row.survey).values(), Counted())
    closed_ = row.closed_before >= NEVER
    return StoredSurvey(
        row.survey, row.revision, row.plan, counted.batches, counted.records, closed_
    )


def _unit(plan: bytes) -> str:
    return plan_pb2.Plan.FromString(plan).survey.period
