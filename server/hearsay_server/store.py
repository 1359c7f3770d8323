"""What the server keeps: surveys, batches and tallies, in SQLite.

One process owns the folder (a lock says so), and within it one thread writes. A commit is
durable: write-ahead log, synchronous FULL, so an fsync precedes its return. The tallies change
in the transaction that stores their batch, so they are always those of the stored batches.
"""

import fcntl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa

from hearsay_server.intake import Cohort
from ldp import InvalidInput, Tally

_SCHEMA = 1

_metadata = sa.MetaData()

_surveys = sa.Table(
    "surveys",
    _metadata,
    sa.Column("survey", sa.Text, primary_key=True),
    sa.Column("revision", sa.LargeBinary, nullable=False),
    sa.Column("plan", sa.LargeBinary, nullable=False),
    sa.Column("batches", sa.BigInteger, nullable=False, default=0),
    sa.Column("records", sa.BigInteger, nullable=False, default=0),
)

_batches = sa.Table(
    "batches",
    _metadata,
    sa.Column("id", sa.LargeBinary, primary_key=True),
    sa.Column("survey", sa.Text, sa.ForeignKey("surveys.survey"), nullable=False),
    sa.Column("batch", sa.LargeBinary, nullable=False),
)

_tallies = sa.Table(
    "tallies",
    _metadata,
    sa.Column("survey", sa.Text, sa.ForeignKey("surveys.survey"), primary_key=True),
    sa.Column("revision", sa.LargeBinary, primary_key=True),
    sa.Column("attribute", sa.Text, primary_key=True),
    sa.Column("level", sa.Text, primary_key=True),
    sa.Column("period", sa.Text, primary_key=True),
    sa.Column("tally", sa.LargeBinary, nullable=False),
)

_COHORT = [_tallies.c[name] for name in ("survey", "revision", "attribute", "level", "period")]


@dataclass(frozen=True)
class StoredSurvey:
    """A registered survey: its frozen plan, and how many batches and records came in."""

    survey: str
    revision: bytes
    plan: bytes
    batches: int
    records: int


@dataclass(frozen=True)
class Incoming:
    """A decoded batch on its way into the store."""

    id: bytes
    survey: str
    records: int
    batch: bytes
    tallies: Mapping[Cohort, Tally]


class Store:
    """The database of one server, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        """Open the folder, and make what is missing.

        Raises `InvalidInput` where another server has it open, or where it was written by a
        newer version.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._lock: IO[bytes] = (folder / "lock").open("ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise InvalidInput(f"{folder} is in use by another hearsay server") from None
        self._engine = sa.create_engine(f"sqlite:///{folder / 'hearsay.db'}")
        sa.event.listen(self._engine, "connect", _configure)
        sa.event.listen(self._engine, "begin", _begin)
        with self._engine.begin() as connection:
            version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
            if version not in (0, _SCHEMA):
                self._lock.close()
                raise InvalidInput(
                    f"{folder} holds data of schema {version}; this version knows up to {_SCHEMA}"
                )
            _metadata.create_all(connection)
            connection.exec_driver_sql(f"PRAGMA user_version = {_SCHEMA}")

    def close(self) -> None:
        """Close the database and leave the folder to others."""
        self._engine.dispose()
        self._lock.close()

    def create_survey(self, survey: str, revision: bytes, plan: bytes) -> StoredSurvey:
        """Freeze a survey's plan; raise `InvalidInput` where the name has another one."""
        with self._engine.begin() as connection:
            found = _find_surveys(connection, _surveys.c.survey == survey)
            if not found:
                connection.execute(
                    sa.insert(_surveys).values(survey=survey, revision=revision, plan=plan)
                )
                found = _find_surveys(connection, _surveys.c.survey == survey)
            if found[0].revision != revision:
                raise InvalidInput(
                    f"a survey {survey!r} exists, with another plan (revision "
                    f"{found[0].revision.hex()[:12]}): choose another name"
                )
            return found[0]

    def surveys(self) -> list[StoredSurvey]:
        """Return all surveys by name."""
        with self._engine.begin() as connection:
            return _find_surveys(connection, sa.true())

    def add(self, incoming: Sequence[Incoming]) -> list[bool]:
        """Store batches in one durable transaction; return for each whether it was new.

        A batch whose id is stored, or stands earlier in `incoming`, is not counted again. When
        this raises, nothing of it is stored.
        """
        with self._engine.begin() as connection:
            ids = sa.select(_batches.c.id).where(_batches.c.id.in_([b.id for b in incoming]))
            known = set(connection.scalars(ids))
            new: dict[bytes, Incoming] = {}
            is_new = []
            for batch in incoming:
                is_new.append(batch.id not in known and batch.id not in new)
                new.setdefault(batch.id, batch)
            fresh = [batch for id_, batch in new.items() if id_ not in known]
            if fresh:
                connection.execute(
                    sa.insert(_batches),
                    [{"id": b.id, "survey": b.survey, "batch": b.batch} for b in fresh],
                )
                _count(connection, fresh)
                _add_tallies(connection, fresh)
        return is_new

    def tallies(
        self, survey: str, attribute: str, levels: Iterable[str] = (), periods: Iterable[str] = ()
    ) -> dict[Cohort, Tally]:
        """Return the tallies of an attribute; empty `levels` or `periods` mean all."""
        query = (
            sa.select(*_COHORT, _tallies.c.tally)
            .where(_tallies.c.survey == survey, _tallies.c.attribute == attribute)
            .order_by(*_COHORT)
        )
        if levels := list(levels):
            query = query.where(_tallies.c.level.in_(levels))
        if periods := list(periods):
            query = query.where(_tallies.c.period.in_(periods))
        with self._engine.begin() as connection:
            rows = connection.execute(query).all()
        return {Cohort(*row[:-1]): Tally.from_bytes(row[-1]) for row in rows}


def _find_surveys(
    connection: sa.Connection, condition: sa.ColumnElement[bool]
) -> list[StoredSurvey]:
    query = sa.select(_surveys).where(condition).order_by(_surveys.c.survey)
    return [StoredSurvey(**row._mapping) for row in connection.execute(query)]


def _count(connection: sa.Connection, fresh: Sequence[Incoming]) -> None:
    for survey in {batch.survey for batch in fresh}:
        mine = [batch for batch in fresh if batch.survey == survey]
        connection.execute(
            sa.update(_surveys)
            .where(_surveys.c.survey == survey)
            .values(
                batches=_surveys.c.batches + len(mine),
                records=_surveys.c.records + sum(batch.records for batch in mine),
            )
        )


def _add_tallies(connection: sa.Connection, fresh: Sequence[Incoming]) -> None:
    sums: dict[Cohort, Tally] = {}
    for batch in fresh:
        for cohort, tally in batch.tallies.items():
            sums[cohort] = sums[cohort] + tally if cohort in sums else tally
    for cohort, tally in sums.items():
        here = sa.and_(*(c == v for c, v in zip(_COHORT, astuple(cohort), strict=True)))
        stored = connection.scalar(sa.select(_tallies.c.tally).where(here))
        if stored is None:
            row = dict(zip([c.name for c in _COHORT], astuple(cohort), strict=True))
            connection.execute(sa.insert(_tallies).values(**row, tally=tally.to_bytes()))
        else:
            total = Tally.from_bytes(stored) + tally
            connection.execute(sa.update(_tallies).where(here).values(tally=total.to_bytes()))


def _configure(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # sqlite3 must not begin transactions of its own
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN")
