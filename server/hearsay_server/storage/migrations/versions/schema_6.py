"""Batches are found by survey, period and id, so that one tree serves ids and periods.

From here on tallies may be of the counts above zero alone, which earlier versions cannot read.
Those that are stored already are read as they are, and written anew when they change.
"""

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = "5"


def upgrade() -> None:
    """Make the key anew; in SQLite, where rows lie in the order of their key, write them anew."""
    op.drop_index("batches_by_period", "batches")
    if op.get_bind().dialect.name == "sqlite":
        _in_order_of_the_key()
    else:
        op.drop_constraint("batches_pkey", "batches")
        op.create_primary_key("batches_pkey", "batches", ["survey", "period", "id"])


def _in_order_of_the_key() -> None:
    op.create_table(
        "batches_6",
        sa.Column("survey", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        sa.Column("id", sa.LargeBinary, primary_key=True),
        sa.Column("ends", sa.BigInteger, nullable=False),
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("batch", sa.LargeBinary),
        sqlite_with_rowid=False,
    )
    columns = "survey, period, id, ends, day, rows, batch"
    op.execute(f"INSERT INTO batches_6 SELECT {columns} FROM batches ORDER BY 1, 2, 3")
    op.drop_table("batches")
    op.rename_table("batches_6", "batches")
    without = sa.text("batch IS NULL")
    op.create_index(
        "batches_without_content", "batches", ["survey", "ends", "rows"], sqlite_where=without
    )
    with_ = sa.text("batch IS NOT NULL")
    op.create_index("batches_with_content", "batches", ["day"], sqlite_where=with_)
