"""Recount what is stored, and compare with the tallies and counts that were kept along."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import sqlalchemy as sa
from google.protobuf.message import DecodeError

import hearsay.plans.plan
from hearsay.plans.plan import Plan
from hearsay.v1 import collector_pb2
from hearsay_server.ingest.intake import Cohort, Refused, tallies_of
from hearsay_server.storage import schema, shards, verify_trainings
from hearsay_server.storage.database import Database
from hearsay_server.storage.shards import Counted
from ldp import Tally
from ldp.core.tally import add_up

_PAGE = 16
"""Batches in memory at once: each may be as large as a message."""


class Verdict(Enum):
    """How a tally compares with the recount of its batches."""

    EQUAL = "equal"
    DROPPED = "cannot be recounted: batches were dropped"  # but it is not less than the rest
    DIFFERS = "differs"


@dataclass(frozen=True)
class Checked:
    """A tally, or with no attribute the counts of a period, compared with a recount."""

    survey: str
    period: str
    attribute: str
    level: str
    kept: int
    recounted: int
    verdict: Verdict
    detail: str = ""
    map: str = ""
    panel: int = 0
    group: str = ""


def verify(database: Database) -> Iterator[Checked]:
    """Recount each period of each survey from its batches, in one state of the database.

    Then check each training: its name is in the place of a survey's, and what was checked in the
    place of a period. Memory: the tallies of one period. Servers may go on meanwhile.
    """
    table = schema.surveys
    query = sa.select(table.c.survey, table.c.plan).where(sa.not_(table.c.deleted))
    with database.reading() as connection:
        for survey, plan in connection.execute(query.order_by(table.c.survey)).all():
            kept = shards.counted(connection, survey)
            for period in sorted(set(kept) | _periods(connection, survey)):
                counted = kept.get(period, Counted())
                yield from _period(connection, hearsay.plans.plan.parse(plan), period, counted)
        for one in verify_trainings.verify(connection):
            verdict = Verdict.DIFFERS if one.detail else Verdict.EQUAL
            yield Checked(one.training, one.what, "", "", one.kept, one.found, verdict, one.detail)


def _periods(connection: sa.Connection, survey: str) -> set[str]:
    """Return the periods that have batches or tallies, whether or not they were counted."""
    queries = (
        sa.select(table.c.period).where(table.c.survey == survey, *more).distinct()
        for table, more in (
            (schema.tallies, ()),
            (schema.batches, (schema.batches.c.batch.is_not(None),)),
        )
    )
    return {name for query in queries for name in connection.scalars(query)}


@dataclass(frozen=True)
class _Recount:
    counted: Counted
    sums: Mapping[Cohort, Tally]
    damaged: str = ""


def _period(connection: sa.Connection, plan: Plan, period: str, kept: Counted) -> Iterator[Checked]:
    recount = _recount(connection, plan, period)
    found = recount.counted
    whole = found.batches + kept.dropped == kept.batches and (
        found.records == kept.records if not kept.dropped else found.records <= kept.records
    )
    verdict = Verdict.DROPPED if kept.dropped else Verdict.EQUAL
    checked = Checked(plan.survey, period, "", "", kept.records, found.records, verdict)
    if recount.damaged:
        yield replace(checked, verdict=Verdict.DIFFERS, detail=recount.damaged)
    elif not whole:
        detail = (
            f"{kept.batches} batches of {kept.records} records were counted and {kept.dropped} "
            f"dropped; {found.batches} of {found.records} are stored"
        )
        yield replace(checked, verdict=Verdict.DIFFERS, detail=detail)
    else:
        yield checked
    table = schema.tallies.c
    tallies = shards.read(connection, table.survey == plan.survey, table.period == period)
    for cohort in sorted(tallies.keys() | recount.sums.keys()):
        tally, again = tallies.get(cohort), recount.sums.get(cohort)
        yield Checked(
            cohort.survey,
            cohort.period,
            cohort.attribute,
            cohort.level,
            tally.n if tally else 0,
            again.n if again else 0,
            _compare(tally, again, dropped=bool(kept.dropped)),
            map=cohort.map,
            panel=cohort.panel,
            group=cohort.group,
        )


def _recount(connection: sa.Connection, plan: Plan, period: str) -> _Recount:
    table = schema.batches
    query = sa.select(table.c.id, table.c.rows, table.c.batch).where(
        table.c.survey == plan.survey, table.c.period == period, table.c.batch.is_not(None)
    )
    stream = connection.execute(
        query, execution_options={"stream_results": True, "yield_per": _PAGE}
    )
    counted, damaged = Counted(), ""
    sums: dict[Cohort, Tally] = {}
    for row in stream:
        try:
            tallies = _tallies(row, plan, period)
        except (DecodeError, Refused) as error:
            damaged = damaged or f"the batch {row.id.hex()} is damaged: {error}"
            continue
        counted += Counted(1, row.rows)
        add_up(sums, tallies.items())
    return _Recount(counted, sums, damaged)


def _tallies(row: Any, plan: Plan, period: str) -> Mapping[Cohort, Tally]:
    batch = collector_pb2.Batch.FromString(row.batch)
    says = (batch.id, batch.survey, batch.revision, batch.period, batch.rows)
    if says != (row.id, plan.survey, plan.revision, period, row.rows):
        raise Refused(collector_pb2.BAD_ID, "it is not the one that its row says")
    return tallies_of(batch, plan)


def _compare(tally: Tally | None, again: Tally | None, *, dropped: bool) -> Verdict:
    if tally == again:
        return Verdict.EQUAL
    if not dropped or tally is None:
        return Verdict.DIFFERS
    if again is None:
        return Verdict.DROPPED
    same_size = tally.counts.size == again.counts.size
    if same_size and again.n <= tally.n and bool((again.counts <= tally.counts).all()):
        return Verdict.DROPPED
    return Verdict.DIFFERS
