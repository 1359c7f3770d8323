"""Tallies by the map of sensitive values that people chose; those that are there chose none."""

import sqlalchemy as sa
from alembic import op

revision = "8"
down_revision = "7"

_KEY = ["survey", "revision", "attribute", "level", "period", "map", "writer"]


def upgrade() -> None:
    """Add the map to the key; in SQLite, whose keys cannot change, by making the table anew."""
    if op.get_bind().dialect.name == "sqlite":
        _anew()
        return
    op.add_column("tallies", sa.Column("map", sa.Text, nullable=False, server_default=""))
    op.alter_column("tallies", "map", server_default=None)
    op.drop_constraint("tallies_pkey", "tallies")
    op.create_primary_key("tallies_pkey", "tallies", _KEY)


def _anew() -> None:
    op.create_table(
        "tallies_8",
        sa.Column("survey", sa.Text, primary_key=True),
        sa.Column("revision", sa.LargeBinary, primary_key=True),
        sa.Column("attribute", sa.Text, primary_key=True),
        sa.Column("level", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        sa.Column("map", sa.Text, primary_key=True),
        sa.Column("writer", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tally", sa.LargeBinary, nullable=False),
    )
    old = "survey, revision, attribute, level, period, writer, tally"
    op.execute(f"INSERT INTO tallies_8 ({old}, map) SELECT {old}, '' FROM tallies")
    op.drop_table("tallies")
    op.rename_table("tallies_8", "tallies")
