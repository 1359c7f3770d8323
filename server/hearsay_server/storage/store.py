"""The server's store of surveys, batches and tallies, in SQLite or PostgreSQL.

A commit is durable: an fsync precedes its return. The tallies change in the transaction that
stores their batch, so they are always those of the stored batches. Any number of stores, in any
number of processes, may share a database: a batch is counted by the one that inserts its key.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hearsay.plans.plan import Plan, parse
from hearsay.v1 import collector_pb2, plan_pb2, survey_pb2
from hearsay_server.at_rest import NOT_ENCRYPTED, AtRest
from hearsay_server.ingest.intake import GRACE, NEVER, Cohort, Limits, Reason, Refused, Terms
from hearsay_server.ingest.judge import (
    Judged,
    Kept,
    Key,
    New,
    Outcome,
    State,
    Stored,
    end,
    judge,
    key,
    when,
    without,
)
from hearsay_server.storage import audit, schema, sealing_keys, shards, tokens
from hearsay_server.storage.database import Database, open_database
from hearsay_server.storage.packed import PackedTallies
from hearsay_server.storage.plans import PRESENT, Plans
from hearsay_server.storage.selection import EVERYTHING, Selected
from hearsay_server.storage.shards import Counted
from hearsay_server.surveys import sealing
from ldp import InvalidInput
from ldp.errors import NotReady

_surveys, _trainings = schema.surveys, schema.trainings

_DAY = 24 * 3600

_RACES = 20
"""Times that a group is judged anew because another process was faster with some of it."""

_MOST_COUNTS = 1 << 23
"""Counts, of 8 bytes each, that the tallies of one transaction may have, or those of a period,
panel and group."""

_PAGE_BYTES = 8 << 20
"""Bytes of batches at which a page ends; three pages may be in memory."""

_ROW_BYTES = 16
"""Bytes that a row counts for in a page, besides its codes: rows are put in order one by one."""

_KNOWN = sa.select(schema.batches.c.id, schema.batches.c.rows, schema.batches.c.batch).where(
    schema.batches.c.survey == sa.bindparam("survey"),
    schema.batches.c.period == sa.bindparam("period"),
    schema.batches.c.id.in_(sa.bindparam("ids", expanding=True)),
)
_DELETE = sa.delete(schema.batches).where(*schema.THIS)
_STATE = sa.select(*(_surveys.c[name] for name in ("revision", "unit", "closed_before"))).where(
    _surveys.c.survey == sa.bindparam("survey"), PRESENT
)

MIXED = "*"
"""The caller of batches that came sealed: nobody here knows which token their device has."""

Sent = Sequence[tuple[str, collector_pb2.Batch]]
"""Batches, each with its caller: a token's id, "" without one, or `MIXED`."""


@dataclass(frozen=True)
class StoredSurvey:
    """A registered survey: its frozen plan, and how many batches and records count."""

    survey: str
    revision: bytes
    plan: bytes
    batches: int
    records: int
    closed: bool
    page: survey_pb2.Page
    """What everybody may see and do on the survey's page."""


_NO_PAGE = survey_pb2.Page()


class BeingDeleted(NotReady):
    """A survey's name is taken until all that it held is deleted."""


class Store:
    """One process's access to the surveys, batches and tallies of a database."""

    def __init__(self, where: Path | str, keys: AtRest = NOT_ENCRYPTED) -> None:
        """Open a folder with SQLite, or a "postgresql://" URL; make missing files and tables.

        Key material is encrypted under `keys`. Raises as `open_database` does.
        """
        self.database: Database = open_database(where, keys)
        self._insert: sa.ClauseElement = self.database.insert(
            schema.batches
        ).on_conflict_do_nothing()
        self.plans = Plans(self.database)

    @property
    def engine(self) -> sa.Engine:
        """The database's engine, for code that keeps tables of its own in the database."""
        return self.database.engine

    def close(self) -> None:
        """Close the database and leave it to others."""
        self.database.close()

    def create_survey(
        self,
        survey: str,
        revision: bytes,
        plan: bytes,
        caller: str = "",
        page: survey_pb2.Page = _NO_PAGE,
        privates: Sequence[bytes] = (),
    ) -> StoredSurvey:
        """Freeze a survey's plan; raise `InvalidInput` where the name has another one.

        `privates` are the private halves of the plan's sealing keys. A plan that differs from the
        one that is stored in these keys alone is the same: the stored one is kept, with its keys.
        `page` is not frozen: it takes the place of the one that the survey had. `caller` is the id
        of a token, or "" for none. Raises `BeingDeleted` where a survey of that name is being
        deleted.
        """

        def create() -> StoredSurvey:
            with self.database.appending() as connection:
                insert = self.database.insert(_surveys).on_conflict_do_nothing()
                unit = _unit(plan)
                new: dict[str, object] = {"survey": survey, "revision": revision, "plan": plan}
                # Periods that are closed in other surveys are closed in this one too.
                swept = connection.execute(sa.select(schema.sweeps.c.at)).scalar_one_or_none()
                before = int(swept - GRACE.total_seconds()) if unit and swept else 0
                new |= {"unit": unit, "closed_before": before, "deleted": False}
                trained = sa.select(_trainings.c.training)
                if connection.execute(trained.where(_trainings.c.training == survey)).first():
                    raise InvalidInput(f"a training has the name {survey!r}: choose another one")
                if connection.execute(insert, new).rowcount:
                    made = {"revision": revision.hex()}
                    audit.record(
                        connection, "create survey", token=caller, survey=survey, detail=made
                    )
                    if privates:
                        sealing_keys.insert(connection, parse(plan), privates)
                stored = connection.execute(
                    sa.select(_surveys).where(_surveys.c.survey == survey)
                ).one()
                if stored.deleted:
                    raise BeingDeleted(f"{survey!r} is being deleted: come again in a while")
                if stored.revision != revision and not (privates and _alike(stored.plan, plan)):
                    raise InvalidInput(
                        f"a survey {survey!r} exists, with another plan (revision "
                        f"{stored.revision.hex()[:12]}): choose another name"
                    )
                found = _survey(connection, stored)
                return _with_page(connection, found, page, caller)

        created = self.database.retrying(create)
        self.plans.keep(created.plan)
        return created

    def surveys(self) -> list[StoredSurvey]:
        """Return all surveys by name."""
        with self.database.reading() as connection:
            query = sa.select(_surveys).where(PRESENT).order_by(_surveys.c.survey)
            return [_survey(connection, row) for row in connection.execute(query).all()]

    def survey(self, survey: str) -> StoredSurvey | None:
        """Return one survey, or None."""
        with self.database.reading() as connection:
            query = sa.select(_surveys).where(_surveys.c.survey == survey, PRESENT)
            row = connection.execute(query).one_or_none()
            return None if row is None else _survey(connection, row)

    def add(self, sent: Sent, now: datetime, limits: Limits) -> list[Outcome]:
        """Store batches durably; return the outcome of each.

        True: it was new. False: the same batch is stored, or stands earlier in `sent`, and is
        not counted again. `Refused`: `judge` refuses it, or its caller's token has no rows left;
        rows are charged to tokens in the transaction that stores them. That is one for all, unless
        their tallies have more than `_MOST_COUNTS` counts. When this raises, the batches of that
        transaction and of later ones are not stored, unless the connection broke in the commit:
        sending all again finds out.
        """
        plans = self._needed(sent)
        parts = self._parts(sent, plans)
        return [outcome for part in parts for outcome in self._add(part, plans, now, limits)]

    def _needed(self, sent: Sent) -> Mapping[str, Plan | Refused]:
        return self.database.retrying(lambda: self.plans.needed(batch for _, batch in sent))

    def _parts(self, sent: Sent, plans: Mapping[str, Plan | Refused]) -> Iterator[Sent]:
        """Split batches so that the tallies of a part fit in memory, whatever their periods."""
        if len({(b.survey, b.period, b.panel, *b.properties) for _, b in sent}) == 1:
            yield sent
            return
        sizes = {name: plan.counts for name, plan in plans.items() if isinstance(plan, Plan)}
        begin, size = 0, 0
        seen: set[tuple[object, ...]] = set()
        for number, (_, batch) in enumerate(sent):
            key = (batch.survey, batch.period, batch.panel, *batch.properties)
            if key in seen:
                continue
            more = sizes.get(batch.survey, 0)
            if size + more > _MOST_COUNTS and number > begin:
                yield sent[begin:number]
                begin, size, seen = number, 0, set()
            size += more
            seen.add(key)
        yield sent[begin:]

    def _add(
        self, sent: Sent, plans: Mapping[str, Plan | Refused], now: datetime, limits: Limits
    ) -> list[Outcome]:
        """Do as `add`, in one transaction; `plans` may be old, and are then looked up anew."""
        batches = [batch for _, batch in sent]
        barred: dict[int, Refused] = {}  # over their limit, where that changes others' outcomes
        for attempt in range(_RACES):
            # The first judgement does not read the stored batches: mostly every batch is good and
            # new, and the insertion finds out otherwise. A refused batch may be stored already,
            # which counts more, so then the store is read. Decoding is slow: it precedes all locks.
            stored = None
            if attempt:
                plans = self._needed(sent)
                stored = self.database.retrying(partial(self._look, batches))
            terms = Terms(plans, now, limits)
            judged = judge(batches, terms, stored, {**_not_sealed(sent, plans), **barred})
            if judged.refused and not attempt:
                continue
            if not judged.fresh:
                return judged.outcomes
            try:
                over = self.database.retrying(partial(self._write, sent, judged, terms))
            except _Changed as changed:
                barred |= changed.barred
                continue
            return [over.get(n, outcome) for n, outcome in enumerate(judged.outcomes)]
        raise RuntimeError(f"others stored some of these {len(sent)} batches {_RACES} times")

    def _look(self, batches: Iterable[collector_pb2.Batch]) -> Stored:
        """Return the stored batches with these batches' keys, and their surveys' states."""
        asked: defaultdict[tuple[str, str], set[bytes]] = defaultdict(set)
        for batch in batches:
            asked[batch.survey, batch.period].add(batch.id)
        known: dict[Key, Kept] = {}
        with self.database.reading() as connection:
            for (survey, period), ids in asked.items():
                chosen = {"survey": survey, "period": period, "ids": list(ids)}
                for row in connection.execute(_KNOWN, chosen):
                    known[survey, period, row.id] = Kept(row.rows, row.batch)
            return Stored(known, self._states(connection, {batch.survey for batch in batches}))

    def _states(self, connection: sa.Connection, names: Iterable[str]) -> dict[str, State]:
        states = {}
        for name in names:
            if "\0" in name:  # no survey's, and PostgreSQL takes none, not even in a query
                continue
            for row in self.database.fetch(connection, _STATE, (name,)):
                states[name] = State(*row)
        return states

    def _write(self, sent: Sent, judged: Judged, terms: Terms) -> Mapping[int, Refused]:
        """Store new batches; return, by position, refusals of batches over their token's limit.

        A batch over the limit is not stored. Raises `_Changed`, with nothing stored, where some
        of the batches are not new any more, or where other batches of the group have the key of a
        batch over the limit and are to be judged again.
        """
        today = int(terms.now.timestamp()) // _DAY
        # Two that insert the same keys wait for each other: in one order, not in a circle.
        fresh = sorted(judged.fresh, key=lambda new: key(new.batch))
        try:
            with self.database.appending() as connection:
                states = self._states(connection, {new.batch.survey for new in fresh})
                last = {each: end(each, states) for each in {when(new.batch) for new in fresh}}
                rows = [_row(new, last[when(new.batch)], today) for new in fresh]
                if self.database.change(connection, self._insert, rows) != len(rows):
                    raise _Changed
                sums = judged.sums
                over = self._charge(connection, sent, judged.fresh, terms.limits.token_rows)
                if over:
                    keys = [key(new.batch) for new in fresh if new.position in over]
                    if judged.twins.intersection(keys):
                        raise _Changed(over)
                    # They were inserted in this transaction.
                    self.database.change(connection, _DELETE, keys)
                    sums = without(judged, over, terms)
                kept = [new for new in fresh if new.position not in over]
                shards.count(self.database, connection, _counted(kept))
                shards.add(self.database, connection, sums)
        except Refused:  # closed or deleted since it was judged, or a fault in decoding again
            raise _Changed from None
        return over

    def _charge(
        self, connection: sa.Connection, sent: Sent, fresh: Sequence[New], cap: int
    ) -> dict[int, Refused]:
        """Charge new batches to their callers' tokens; return refusals over `cap` by position."""
        if not cap:
            return {}
        charged = [new for new in fresh if sent[new.position][0] != MIXED]
        mine = [sent[new.position] for new in charged]
        over = tokens.charge(self.database, connection, mine, cap)
        return {charged[number].position: why for number, why in over.items()}

    def tallies(
        self, survey: str, asked: str | Collection[str], selected: Selected = EVERYTHING
    ) -> PackedTallies:
        """Return the selected tallies of a question, or of several.

        Those of several panels and groups are summed unless `selected.apart` says otherwise.
        With levels named, no row of another period than those selected is read in SQLite, and
        none of another question in PostgreSQL.
        """
        conditions = self._conditions(survey, asked, selected)
        with self.database.reading() as connection:
            found = shards.read(connection, *conditions)
        apart = selected.apart
        return found.summed(panels="panel" not in apart, groups="group" not in apart)

    def counts(
        self, survey: str, asked: str | Collection[str], selected: Selected = EVERYTHING
    ) -> dict[Cohort, int]:
        """Return how many reports `tallies` are of, by panel and group."""
        conditions = self._conditions(survey, asked, selected)
        with self.database.reading() as connection:
            return shards.reports(connection, *conditions)

    def _conditions(
        self, survey: str, asked: str | Collection[str], selected: Selected
    ) -> list[sa.ColumnElement[bool]]:
        """Return the conditions that a tally is a selected one of one of some questions."""
        table = schema.tallies
        names = [asked] if isinstance(asked, str) else list(asked)
        conditions = [table.c.survey == survey, table.c.attribute.in_(names)]
        if levels := selected.levels:
            # All before the period in the key, so that a range of periods is one of the key.
            plan = sa.select(_surveys.c.revision).where(_surveys.c.survey == survey)
            conditions += [table.c.revision == plan.scalar_subquery(), table.c.level.in_(levels)]
        conditions += self._within(table.c.period, selected)
        if selected.maps:
            conditions.append(table.c.map.in_(selected.maps))
        if selected.panels:
            conditions.append(table.c.panel.in_(selected.panels))
        if selected.groups:
            conditions.append(table.c.group.in_(selected.groups))
        return conditions

    def reports(self, stored: StoredSurvey) -> dict[Cohort, int]:
        """Return how many reports count in each cohort of a survey."""
        table = schema.tallies
        whose = table.c.survey == stored.survey, table.c.revision == stored.revision
        with self.database.reading() as connection:
            return shards.reports(connection, *whose)

    def _within(
        self, period: sa.ColumnElement[str], selected: Selected
    ) -> list[sa.ColumnElement[bool]]:
        """Return the conditions that a period is among `names`, and within the range."""
        conditions: list[sa.ColumnElement[bool]] = []
        if selected.periods:
            conditions.append(period.in_(selected.periods))
        # Names of periods sort in the order of time by their bytes, not in every language.
        if self.engine.dialect.name == "postgresql":
            period = sa.collate(period, "C")
        if selected.first:
            conditions.append(period >= selected.first)
        if selected.last:
            conditions.append(period <= selected.last)
        return conditions

    def counted(self, survey: str, selected: Selected = EVERYTHING) -> dict[str, Counted]:
        """Return the counts of the selected periods, in the order of time."""
        with self.database.reading() as connection:
            found = shards.counted(connection, survey)
        return {name: found[name] for name in sorted(found) if selected.has(name)}

    def ids(self, survey: str, period: str, *, page: int = 10_000) -> Iterator[list[bytes]]:
        """Yield the ids of a period's batches that are stored still, in order, in pages."""
        table, mine = schema.batches, _held(survey, period)
        last = b""
        while True:
            query = sa.select(table.c.id).where(mine, table.c.id > last).order_by(table.c.id)
            with self.database.reading() as connection:
                ids = list(connection.scalars(query.limit(page)))
            if not ids:
                return
            yield ids
            last = ids[-1]

    def batches(
        self, survey: str, selected: Selected = EVERYTHING, *, page: int = 128
    ) -> Iterator[list[collector_pb2.Batch]]:
        """Yield the batches of the selected periods, panels and groups that are stored still, by
        period, in pages.

        Levels restrict nothing here: a batch is whole, and may have answers at several levels.

        A page has `page` batches of one period, in the order of their ids, which are random; or
        fewer where they are large. The last one of a period joins the one before it, so that
        it is no page of a few. Each is read in a transaction of its own, so that a long reading
        holds nobody up; a batch that comes in meanwhile may or may not be among them.
        """
        for name, counts in self.counted(survey, selected).items():
            if not counts.stored:
                continue
            for found in self.batches_of(survey, name, page=page):
                if taken := [batch for batch in found if selected.takes(batch)]:
                    yield taken

    def batches_of(
        self, survey: str, period: str, *, page: int = 128
    ) -> Iterator[list[collector_pb2.Batch]]:
        """Yield the batches of a period that are stored still, in pages as `batches`."""
        held: list[list[collector_pb2.Batch]] = []
        for more in self._pages(survey, period, page):
            if len(held) == 2:
                yield held.pop(0)
            held.append(more)
        if held:
            yield [batch for part in held for batch in part]

    def _pages(self, survey: str, period: str, page: int) -> Iterator[list[collector_pb2.Batch]]:
        table, mine = schema.batches, _held(survey, period)
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
    """The group must be judged again: some batches are not new, or share a `barred` key."""

    def __init__(self, barred: Mapping[int, Refused] | None = None) -> None:
        super().__init__()
        self.barred = dict(barred or {})


def _not_sealed(sent: Sent, plans: Mapping[str, Plan | Refused]) -> dict[int, Refused]:
    """Refuse batches, by position, that came from a device where records are to be sealed."""
    refused = {}
    for position, (caller, batch) in enumerate(sent):
        plan = plans.get(batch.survey)
        if caller != MIXED and isinstance(plan, Plan) and plan.sealing is not None:
            detail = f"{batch.survey!r} takes sealed records alone, from a shuffler"
            refused[position] = Refused(Reason.NOT_SEALED, detail)
    return refused


def _held(survey: str, period: str) -> sa.ColumnElement[bool]:
    """Return the condition that a batch is of the period, and stored still."""
    table = schema.batches
    return (table.c.survey == survey) & (table.c.period == period) & table.c.batch.is_not(None)


def _row(new: New, ends: int, day: int) -> tuple[object, ...]:
    batch = new.batch
    return batch.survey, batch.period, batch.id, ends, day, batch.rows, new.data


def _counted(fresh: Iterable[New]) -> dict[shards.Period, Counted]:
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
    page = survey_pb2.Page.FromString(row.page or b"")
    return StoredSurvey(
        row.survey, row.revision, row.plan, counted.batches, counted.records, closed_, page
    )


def _with_page(
    connection: sa.Connection, stored: StoredSurvey, page: survey_pb2.Page, caller: str
) -> StoredSurvey:
    """Have a survey show `page` to everybody; return the survey."""
    if stored.page == page:
        return stored
    query = sa.update(_surveys).where(_surveys.c.survey == stored.survey)
    connection.execute(query.values(page=page.SerializeToString(deterministic=True)))
    shown = {field.name: value for field, value in page.ListFields()}
    audit.record(connection, "change page", token=caller, survey=stored.survey, detail=shown)
    return replace(stored, page=page)


def _alike(plan: bytes, other: bytes) -> bool:
    """Tell whether two plans differ in the keys alone that their surveys were given."""
    return sealing.without_keys(plan) == sealing.without_keys(other)


def _unit(plan: bytes) -> str:
    return plan_pb2.Plan.FromString(plan).survey.period
