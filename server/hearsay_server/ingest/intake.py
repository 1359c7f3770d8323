"""Strict decoding of a batch: all of it is good, or none of it is stored."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from hearsay.plans import period, presence
from hearsay.plans.plan import Plan
from hearsay.sealed import shares
from hearsay.v1 import collector_pb2
from ldp import InvalidInput, Tally

_log = logging.getLogger("hearsay.server")

Reason = collector_pb2.Reason

_CLOCK_SKEW = timedelta(days=1)
"""How far a device's clock may run ahead of ours."""

GRACE = timedelta(days=60)
"""How long after a period's end its reports are still taken."""

NEVER = int(datetime.max.replace(tzinfo=UTC).timestamp())
"""End (Unix time) of the one period of a survey without periods."""


@dataclass(frozen=True, order=True)
class Cohort:
    """Reports that share one channel, one period and what is public of their devices.

    `map` is "" where none was chosen. `panel` is 0 where the survey has no panels, or reports of
    all panels are together; so is `group` "" (`hearsay.plans.properties.Properties.group`).
    """

    survey: str
    revision: bytes
    attribute: str
    level: str
    period: str
    map: str = ""
    panel: int = 0
    group: str = ""


class Refused(InvalidInput):
    """A batch is refused; `final` where it will be refused however often it is sent."""

    def __init__(self, reason: collector_pb2.Reason, detail: str, *, final: bool = True) -> None:
        super().__init__(detail)
        self.reason = reason
        self.final = final


@dataclass(frozen=True)
class Limits:
    """The operator's limits: rows of a batch, and rows of a token in a period (0: any number)."""

    batch_rows: int = 100_000
    token_rows: int = 0


@dataclass(frozen=True)
class Terms:
    """The terms by which a batch is checked: the plans by survey, the time and the limits.

    A `Refused` in the place of a plan says why the plan cannot be used now.
    """

    plans: Mapping[str, Plan | Refused]
    now: datetime
    limits: Limits


def decode(batch: collector_pb2.Batch, terms: Terms) -> dict[Cohort, Tally]:
    """Return the batch's tallies by cohort; raise `Refused` for a batch that is not valid.

    A fault of ours is logged and refuses the batch for now: it must neither lose the batch nor
    hold up the batches beside it.
    """
    try:
        return _decode(batch, terms)
    except Refused:
        raise
    except Exception as error:
        raise failed() from error


def failed() -> Refused:
    """Log the exception that is being handled; return a refusal until the fault is mended."""
    _log.exception("a batch could not be decoded")
    return Refused(Reason.REASON_UNSPECIFIED, "the server failed to decode it", final=False)


def _decode(batch: collector_pb2.Batch, terms: Terms) -> dict[Cohort, Tally]:
    most = terms.limits.batch_rows
    if batch.rows > most:
        detail = f"a batch holds at most {most} rows here, got {batch.rows}"
        raise Refused(Reason.BAD_ROWS, detail)
    if len(batch.id) != 16:
        raise Refused(Reason.BAD_ID, f"a batch id is 16 bytes, got {len(batch.id)}")
    plan = terms.plans.get(batch.survey)
    if plan is None:
        detail = f"there is no survey {batch.survey!r} here"
        raise Refused(Reason.UNKNOWN_SURVEY, detail, final=False)
    if isinstance(plan, Refused):
        raise plan
    if batch.revision != plan.revision:
        raise Refused(
            Reason.UNKNOWN_REVISION,
            f"{plan.survey!r} is at revision {plan.revision.hex()[:12]}, "
            f"got {batch.revision.hex()[:12] or 'none'}: fetch the plan again",
            final=False,
        )
    check_period(plan.period, batch.period, terms.now)
    return tallies_of(batch, plan)


def tallies_of(batch: collector_pb2.Batch, plan: Plan) -> dict[Cohort, Tally]:
    """Return the tallies by cohort of a batch of the plan's survey; raise `Refused` as `decode`."""
    if batch.rows < 1:
        raise Refused(Reason.BAD_ROWS, "a batch holds at least one row, got 0")
    if not batch.columns:
        raise Refused(Reason.BAD_ROWS, f"a batch of {batch.rows} rows has no column")
    group = _group(batch, plan)
    if plan.two_servers:
        _check_shares(batch, plan)
        return {}  # what is counted of it are sums, with many others

    tallies: dict[Cohort, Tally] = {}
    answered: dict[str, NDArray[np.bool_]] = {}
    for column in batch.columns:
        if column.attribute not in plan.questions:
            raise Refused(
                Reason.BAD_COLUMN, f"{plan.survey!r} has no attribute {column.attribute!r}"
            )
        if column.level not in plan.levels:
            raise Refused(Reason.BAD_COLUMN, f"{plan.survey!r} has no level {column.level!r}")
        mechanism = plan.levels[column.level].by_map[column.attribute].get(column.map)
        if mechanism is None:
            detail = f"{column.attribute!r} of {plan.survey!r} has no map {column.map!r}"
            raise Refused(Reason.BAD_COLUMN, detail)
        cohort = Cohort(
            plan.survey,
            plan.revision,
            column.attribute,
            column.level,
            batch.period,
            column.map,
            batch.panel,
            group,
        )
        if cohort in tallies:
            by_map = f" by the map {column.map!r}" if column.map else ""
            raise Refused(
                Reason.BAD_COLUMN,
                f"{column.attribute!r} at {column.level!r}{by_map} is there twice",
            )
        present = _present(column, batch.rows)
        seen = answered.setdefault(column.attribute, np.zeros(batch.rows, dtype=bool))
        if (seen & present).any():
            row = int(np.flatnonzero(seen & present)[0])
            raise Refused(Reason.BAD_COLUMN, f"row {row} answers {column.attribute!r} twice")
        seen |= present
        try:
            codes = mechanism.decode(column.codes, int(present.sum()))
        except InvalidInput as error:
            raise Refused(Reason.BAD_CODES, f"{column.attribute!r}: {error}") from None
        tallies[cohort] = mechanism.tally(codes)
    idle = ~np.any(list(answered.values()), axis=0)
    if idle.any():
        raise Refused(Reason.BAD_ROWS, f"row {int(np.flatnonzero(idle)[0])} answers nothing")
    return tallies


def _check_shares(batch: collector_pb2.Batch, plan: Plan) -> None:
    """Raise `Refused` unless a batch is a record that is split between two servers."""
    (name,), (level,) = plan.recorded, plan.levels
    if batch.rows != 1 or len(batch.columns) != 1:
        detail = f"a batch of {plan.survey!r} is one record in one column, got {batch.rows} rows"
        raise Refused(Reason.BAD_ROWS, f"{detail} in {len(batch.columns)} columns")
    (column,) = batch.columns
    if (column.attribute, column.level, column.map) != (name, level, ""):
        given = f"{column.attribute!r} at {column.level!r}"
        raise Refused(Reason.BAD_COLUMN, f"the column of {plan.survey!r} is {name!r}, got {given}")
    width = shares.size(shares.splitting(plan))
    if column.present or len(column.codes) != width:
        detail = f"both shares have {width} bytes together, got {len(column.codes)}"
        raise Refused(Reason.BAD_CODES, detail)


def _group(batch: collector_pb2.Batch, plan: Plan) -> str:
    """Return the group that the batch's properties make; raise `Refused` for another panel too."""
    if bool(plan.panels) != bool(batch.panel) or batch.panel > plan.panels:
        expected = f"1 to {plan.panels}" if plan.panels else "none"
        detail = f"{plan.survey!r} has {plan.panels} panels: expected {expected}, got {batch.panel}"
        raise Refused(Reason.BAD_GROUP, detail)
    try:
        return plan.properties.group(batch.properties)
    except InvalidInput as error:
        raise Refused(Reason.BAD_GROUP, f"{plan.survey!r}: {error}") from None


def ends(unit: str, name: str) -> int:
    """Return a period's end in Unix time; raise `InvalidInput` where `name` is no period."""
    return int(period.end(unit, name).timestamp())


def check_period(unit: str, name: str, now: datetime) -> None:
    """Raise `Refused` for a period that takes no reports, by the clock."""
    try:
        begin, end = period.start(unit, name), period.end(unit, name)
    except InvalidInput as error:
        raise Refused(Reason.BAD_PERIOD, str(error)) from None
    if begin > now + _CLOCK_SKEW:
        detail = f"the period {name!r} has not begun yet"
        raise Refused(Reason.BAD_PERIOD, detail, final=False)
    if end <= now - GRACE:  # for good once that is written down: a clock may be wrong
        raise closed(name, final=False)


def closed(name: str, *, final: bool = True) -> Refused:
    """Return the refusal of a batch whose period takes no reports any more."""
    return Refused(Reason.PERIOD_CLOSED, f"the period {name!r} is closed", final=final)


def _present(column: collector_pb2.Column, rows: int) -> NDArray[np.bool_]:
    # Check the sizes before anything of `rows` entries is made: `rows` is the sender's word.
    if not column.present and len(column.codes) < rows:
        raise Refused(
            Reason.BAD_CODES,
            f"{column.attribute!r}: {rows} rows take at least {rows} bytes of codes, "
            f"got {len(column.codes)}",
        )
    try:
        return presence.unpack(column.present, rows)
    except InvalidInput as error:
        raise Refused(Reason.BAD_COLUMN, f"{column.attribute!r}: {error}") from None
