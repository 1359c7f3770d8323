"""Periods that close, contents that can be dropped, shards by writer, tokens; PostgreSQL."""

import time
from collections import Counter

import sqlalchemy as sa
from alembic import op

from hearsay.plans import period
from hearsay.v1 import collector_pb2, plan_pb2

revision = "2"
down_revision = "1"

_DAY = 24 * 3600
_CHUNK = 500


def upgrade() -> None:
    """Make the new tables, and fill them from the old ones where there are any."""
    old = sa.inspect(op.get_bind()).has_table("batches")
    if old:
        for name in ("surveys", "batches", "tallies"):
            op.rename_table(name, f"{name}_1")
    _create()
    if old:
        _fill(op.get_bind())
        for name in ("batches_1", "tallies_1", "surveys_1"):
            op.drop_table(name)


def _create() -> None:
    op.create_table(
        "surveys",
        sa.Column("survey", sa.Text, primary_key=True),
        sa.Column("revision", sa.LargeBinary, nullable=False),
        sa.Column("plan", sa.LargeBinary, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("closed_before", sa.BigInteger, nullable=False),
        sa.Column("deleted", sa.Boolean, nullable=False),
    )
    batches = op.create_table(
        "batches",
        sa.Column("id", sa.LargeBinary, primary_key=True),
        sa.Column("survey", sa.Text, nullable=False),
        sa.Column("period", sa.Text, nullable=False),
        sa.Column("ends", sa.BigInteger, nullable=False),
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("batch", sa.LargeBinary),
    )
    without, with_ = batches.c.batch.is_(None), batches.c.batch.is_not(None)
    op.create_index("batches_by_period", "batches", ["survey", "period"])
    op.create_index(
        "batches_without_content",
        "batches",
        ["survey", "ends", "rows"],
        sqlite_where=without,
        postgresql_where=without,
    )
    op.create_index(
        "batches_with_content", "batches", ["day"], sqlite_where=with_, postgresql_where=with_
    )
    op.create_table(
        "counts",
        sa.Column("survey", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        sa.Column("writer", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("batches", sa.BigInteger, nullable=False),
        sa.Column("records", sa.BigInteger, nullable=False),
        sa.Column("dropped", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tallies",
        sa.Column("survey", sa.Text, primary_key=True),
        sa.Column("revision", sa.LargeBinary, primary_key=True),
        sa.Column("attribute", sa.Text, primary_key=True),
        sa.Column("level", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        sa.Column("writer", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tally", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("hash", sa.LargeBinary, primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("expires", sa.Float),
    )
    op.create_index("ix_tokens_id", "tokens", ["id"])
    op.create_table(
        "token_rows",
        sa.Column("token", sa.Text, primary_key=True),
        sa.Column("survey", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        sa.Column("rows", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "probes",
        sa.Column("server", sa.Text, primary_key=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("filler", sa.LargeBinary, nullable=False),
    )


def _fill(connection: sa.Connection) -> None:
    units: dict[str, str] = {}
    rows = connection.execute(sa.text("SELECT survey, revision, plan FROM surveys_1"))
    for survey, revision_, plan in rows.all():
        units[survey] = plan_pb2.Plan.FromString(plan).survey.period
        connection.execute(
            sa.text("INSERT INTO surveys VALUES (:s, :r, :p, :u, 0, FALSE)"),
            {"s": survey, "r": revision_, "p": plan, "u": units[survey]},
        )
    connection.execute(
        sa.text(
            "INSERT INTO tallies (survey, revision, attribute, level, period, writer, tally) "
            "SELECT survey, revision, attribute, level, period, 0, tally FROM tallies_1"
        )
    )
    batches: Counter[tuple[str, str]] = Counter()
    records: Counter[tuple[str, str]] = Counter()
    today = int(time.time()) // _DAY  # when they really came was not written down
    last = b""
    page = sa.text("SELECT id, batch FROM batches_1 WHERE id > :last ORDER BY id LIMIT :chunk")
    insert = sa.text("INSERT INTO batches VALUES (:id, :survey, :period, :ends, :day, :rows, :b)")
    while found := connection.execute(page, {"last": last, "chunk": _CHUNK}).all():
        new = []
        for id_, data in found:
            batch = collector_pb2.Batch.FromString(data)
            new.append(
                {
                    "id": id_,
                    "survey": batch.survey,
                    "period": batch.period,
                    "ends": int(period.end(units[batch.survey], batch.period).timestamp()),
                    "day": today,
                    "rows": batch.rows,
                    "b": data,
                }
            )
            batches[batch.survey, batch.period] += 1
            records[batch.survey, batch.period] += batch.rows
        connection.execute(insert, new)
        last = found[-1][0]
    for (survey, name), count in batches.items():
        connection.execute(
            sa.text("INSERT INTO counts VALUES (:s, :p, 0, :b, :r, 0)"),
            {"s": survey, "p": name, "b": count, "r": records[survey, name]},
        )
