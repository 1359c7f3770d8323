"""What the server keeps: surveys, batches and tallies, in SQLite.

One process owns the folder (a lock says so), and within it one transaction writes. A commit is
durable: write-ahead log, synchronous FULL, so an fsync precedes its return. The tallies change
in the transaction that stores their batch, so they are always those of the stored batches.
"""

import fcntl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa

from hearsay.v1 import collector_pb2
from hearsay_server.intake import Cohort, Reason, Refused
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

_WRITE = {"hearsay_write": True}

_COHORT = [_tallies.c[field.name] for field in fields(Cohort)]
_SELECT_TALLIES = sa.select(*_COHORT, _tallies.c.tally).order_by(*_COHORT)
_UPDATE_TALLY = (
    sa.update(_tallies)
    .where(*(column == sa.bindparam(f"_{column.name}") for column in _COHORT))
    .values(tally=sa.bindparam("_tally"))
)


@dataclass(frozen=True)
class StoredSurvey:
    """A registered survey: its frozen plan, and how many batches and records came in."""

    survey: str
    revision: bytes
    plan: bytes
    batches: int
    records: int


class Store:
    """The database of one server, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        """Open the folder, and make what is missing.

        Raises `InvalidInput` where the folder cannot be used, another server has it open, or
        what it holds is damaged or was written by a newer version.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock: IO[bytes] = (folder / "lock").open("ab")
        except OSError as error:
            raise InvalidInput(f"cannot keep data in {folder}: {error}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._engine = _open(folder / "hearsay.db")
        except BlockingIOError:
            self._lock.close()
            raise InvalidInput(f"{folder} is in use by another hearsay server") from None
        except sa.exc.DatabaseError as error:
            self._lock.close()
            raise InvalidInput(f"cannot open {folder / 'hearsay.db'}: {error.orig}") from None
        except InvalidInput:
            self._lock.close()
            raise

    @property
    def engine(self) -> sa.Engine:
        """The database, for what keeps tables of its own in it."""
        return self._engine

    def close(self) -> None:
        """Close the database and leave the folder to others."""
        self._engine.dispose()
        self._lock.close()

    def _writing(self) -> AbstractContextManager[sa.Connection]:
        return self._engine.execution_options(**_WRITE).begin()

    def create_survey(self, survey: str, revision: bytes, plan: bytes) -> StoredSurvey:
        """Freeze a survey's plan; raise `InvalidInput` where the name has another one."""
        with self._writing() as connection:
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

    def add(
        self,
        batches: Sequence[collector_pb2.Batch],
        decode: Callable[[collector_pb2.Batch], Mapping[Cohort, Tally]],
        admit: Callable[[sa.Connection, int], None] = lambda connection, position: None,
    ) -> list[bool | Refused]:
        """Store batches in one durable transaction; return what became of each.

        True: it was new. False: the same batch is stored, or stands earlier in `batches`, and
        is not counted again. `Refused`: what `decode` raised, or the id is another batch's, or
        what `admit` raised, which is given the position of each batch that would be stored and
        the connection, so that what it counts is counted in the same transaction.
        When this raises, nothing is stored.
        """
        with self._writing() as connection:
            ids = [batch.id for batch in batches]
            query = sa.select(_batches.c.id, _batches.c.batch).where(_batches.c.id.in_(ids))
            stored = {row.id: row.batch for row in connection.execute(query)}
            fresh: list[collector_pb2.Batch] = []
            sums: dict[Cohort, Tally] = {}
            outcomes: list[bool | Refused] = []
            for position, batch in enumerate(batches):
                data = batch.SerializeToString(deterministic=True)
                if batch.id in stored:
                    outcomes.append(False if stored[batch.id] == data else _taken(batch.id))
                    continue
                try:
                    tallies = decode(batch)
                    admit(connection, position)
                except Refused as refused:
                    outcomes.append(refused)
                    continue
                for cohort, tally in tallies.items():
                    sums[cohort] = sums[cohort] + tally if cohort in sums else tally
                stored[batch.id] = data
                fresh.append(batch)
                outcomes.append(True)
            if fresh:
                connection.execute(
                    sa.insert(_batches),
                    [{"id": b.id, "survey": b.survey, "batch": stored[b.id]} for b in fresh],
                )
                _count(connection, fresh)
                _add_tallies(connection, sums)
        return outcomes

    def tallies(
        self, survey: str, attribute: str, levels: Iterable[str] = (), periods: Iterable[str] = ()
    ) -> dict[Cohort, Tally]:
        """Return the tallies of an attribute; empty `levels` or `periods` mean all."""
        query = _SELECT_TALLIES.where(
            _tallies.c.survey == survey, _tallies.c.attribute == attribute
        )
        if levels := list(levels):
            query = query.where(_tallies.c.level.in_(levels))
        if periods := list(periods):
            query = query.where(_tallies.c.period.in_(periods))
        with self._engine.begin() as connection:
            return _read_tallies(connection.execute(query))

    def batches(self, survey: str, page: int = 128) -> Iterator[list[collector_pb2.Batch]]:
        """Yield a survey's stored batches, `page` at a time, in the order of their random ids.

        Each page is a transaction of its own, so that a long reading holds nobody up; a batch
        that comes in meanwhile may or may not be among them.
        """
        last = b""
        query = sa.select(_batches.c.id, _batches.c.batch).order_by(_batches.c.id).limit(page)
        while True:
            here = query.where(_batches.c.survey == survey, _batches.c.id > last)
            with self._engine.begin() as connection:
                rows = connection.execute(here).all()
            if not rows:
                return
            last = rows[-1].id
            yield [collector_pb2.Batch.FromString(row.batch) for row in rows]


def _find_surveys(
    connection: sa.Connection, condition: sa.ColumnElement[bool]
) -> list[StoredSurvey]:
    query = sa.select(_surveys).where(condition).order_by(_surveys.c.survey)
    return [StoredSurvey(**row._mapping) for row in connection.execute(query)]


def _taken(id_: bytes) -> Refused:
    return Refused(Reason.BAD_ID, f"another batch has the id {id_.hex()}: draw ids at random")


def _count(connection: sa.Connection, fresh: Sequence[collector_pb2.Batch]) -> None:
    for survey in {batch.survey for batch in fresh}:
        mine = [batch for batch in fresh if batch.survey == survey]
        connection.execute(
            sa.update(_surveys)
            .where(_surveys.c.survey == survey)
            .values(
                batches=_surveys.c.batches + len(mine),
                records=_surveys.c.records + sum(batch.rows for batch in mine),
            )
        )


def _add_tallies(connection: sa.Connection, sums: dict[Cohort, Tally]) -> None:
    here = sa.tuple_(*_COHORT).in_([astuple(cohort) for cohort in sums])
    stored = _read_tallies(connection.execute(_SELECT_TALLIES.where(here)))
    for cohort, tally in stored.items():
        sums[cohort] += tally
    rows = {c: {**asdict(c), "tally": tally.to_bytes()} for c, tally in sums.items()}
    if old := [rows[cohort] for cohort in stored]:
        connection.execute(_UPDATE_TALLY, [{f"_{k}": v for k, v in row.items()} for row in old])
    if new := [row for cohort, row in rows.items() if cohort not in stored]:
        connection.execute(sa.insert(_tallies), new)


def _read_tallies(rows: Iterable[Any]) -> dict[Cohort, Tally]:
    return {Cohort(*row[:-1]): Tally.from_bytes(row[-1]) for row in rows}


def _open(file: Path) -> sa.Engine:
    url = sa.URL.create("sqlite", database=str(file))
    engine = sa.create_engine(url, hide_parameters=True)  # no reports in the log of an error
    sa.event.listen(engine, "connect", _configure)
    sa.event.listen(engine, "begin", _begin)
    with engine.execution_options(**_WRITE).begin() as connection:
        version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        if version not in (0, _SCHEMA):
            raise InvalidInput(
                f"{file.parent} holds data of schema {version}; this version knows up to {_SCHEMA}"
            )
        _metadata.create_all(connection)
        connection.exec_driver_sql(f"PRAGMA user_version = {_SCHEMA}")
    return engine


def _configure(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # sqlite3 must not begin transactions of its own
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: sa.Connection) -> None:
    # A transaction that reads first and then writes fails at once where another one wrote in
    # between; one that says at its start that it will write waits for its turn.
    write = connection.get_execution_options().get("hearsay_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
