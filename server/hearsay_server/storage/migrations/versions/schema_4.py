"""No order of arrival in SQLite; counts of barred ids by token; the time of the last sweep."""

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Make the table and the column; in SQLite, write tables anew without their order."""
    op.create_table("sweeps", sa.Column("at", sa.BigInteger, nullable=False))
    if op.get_bind().dialect.name == "sqlite":
        _without_order()
    else:
        column = sa.Column("barred", sa.BigInteger, nullable=False, server_default="0")
        op.add_column("token_rows", column)
        op.alter_column("token_rows", "barred", server_default=None)


def _without_order() -> None:
    """Store rows by their primary keys alone: SQLite otherwise numbers them as they come."""
    op.create_table(
        "batches_4",
        sa.Column("id", sa.LargeBinary, primary_key=True),
        sa.Column("survey", sa.Text, nullable=False),
        sa.Column("period", sa.Text, nullable=False),
        sa.Column("ends", sa.BigInteger, nullable=False),
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("batch", sa.LargeBinary),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "token_rows_4",
        sa.Column("token", sa.Text, primary_key=True),
        sa.Column("survey", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("barred", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    for name, columns in (
        ("batches", "id, survey, period, ends, day, rows, batch"),
        ("token_rows", "token, survey, period, rows, 0"),
    ):
        op.execute(f"INSERT INTO {name}_4 SELECT {columns} FROM {name} ORDER BY 1, 2, 3")
        op.drop_table(name)
        op.rename_table(f"{name}_4", name)
    op.create_index("batches_by_period", "batches", ["survey", "period"])
    without = sa.text("batch IS NULL")
    op.create_index(
        "batches_without_content", "batches", ["survey", "ends", "rows"], sqlite_where=without
    )
    with_ = sa.text("batch IS NOT NULL")
    op.create_index("batches_with_content", "batches", ["day"], sqlite_where=with_)
    op.create_index("token_rows_by_period", "token_rows", ["survey", "period"])
