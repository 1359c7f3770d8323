"""Tallies by panel and by group of devices; those that are there have neither."""

import sqlalchemy as sa
from alembic import op

revision = "9"
down_revision = "8"

_OLD = ["survey", "revision", "attribute", "level", "period", "map"]
_KEY = [*_OLD, "panel", "group", "writer"]


def upgrade() -> None:
    """Add both to the key; in SQLite, whose keys cannot change, by making the table anew."""
    if op.get_bind().dialect.name == "sqlite":
        _anew()
        return
    op.add_column("tallies", sa.Column("panel", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("tallies", sa.Column("group", sa.Text, nullable=False, server_default=""))
    for name in ("panel", "group"):
        op.alter_column("tallies", name, server_default=None)
    op.drop_constraint("tallies_pkey", "tallies")
    op.create_primary_key("tallies_pkey", "tallies", _KEY)


def _anew() -> None:
    op.create_table(
        "tallies_9",
        sa.Column("survey", sa.Text, primary_key=True),
        sa.Column("revision", sa.LargeBinary, primary_key=True),
        sa.Column("attribute", sa.Text, primary_key=True),
        sa.Column("level", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        sa.Column("map", sa.Text, primary_key=True),
        sa.Column("panel", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("group", sa.Text, primary_key=True),
        sa.Column("writer", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tally", sa.LargeBinary, nullable=False),
    )
    old = ", ".join([*_OLD, "writer", "tally"])
    op.execute(f"INSERT INTO tallies_9 ({old}, panel, \"group\") SELECT {old}, 0, '' FROM tallies")
    op.drop_table("tallies")
    op.rename_table("tallies_9", "tallies")
