"""SQLite alone: surveys, batches, tallies. PostgreSQL came with schema 2."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Make the tables of the first version."""
    if op.get_bind().dialect.name != "sqlite":
        return
    survey = "surveys.survey"
    op.create_table(
        "surveys",
        sa.Column("survey", sa.Text, primary_key=True),
        sa.Column("revision", sa.LargeBinary, nullable=False),
        sa.Column("plan", sa.LargeBinary, nullable=False),
        sa.Column("batches", sa.BigInteger, nullable=False),
        sa.Column("records", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "batches",
        sa.Column("id", sa.LargeBinary, primary_key=True),
        sa.Column("survey", sa.Text, sa.ForeignKey(survey), nullable=False),
        sa.Column("batch", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "tallies",
        sa.Column("survey", sa.Text, sa.ForeignKey(survey), primary_key=True),
        sa.Column("revision", sa.LargeBinary, primary_key=True),
        sa.Column("attribute", sa.Text, primary_key=True),
        sa.Column("level", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        sa.Column("tally", sa.LargeBinary, nullable=False),
    )
