"""Sums of records that are split between two servers."""

import sqlalchemy as sa
from alembic import op

revision = "14"
down_revision = "13"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "sums",
        sa.Column("survey", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        sa.Column("ids_hash", sa.LargeBinary, primary_key=True),
        sa.Column("records", sa.BigInteger, nullable=False),
        sa.Column("ids", sa.LargeBinary),
        sa.Column("own", sa.LargeBinary),
        sa.Column("total", sa.LargeBinary),
        sqlite_with_rowid=False,
    )
