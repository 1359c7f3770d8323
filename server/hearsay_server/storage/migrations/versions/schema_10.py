"""Trainings: their rounds, updates, models and seeds of noise."""

import sqlalchemy as sa
from alembic import op

revision = "10"
down_revision = "9"


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "trainings",
        sa.Column("training", sa.Text, primary_key=True),
        sa.Column("revision", sa.LargeBinary, nullable=False),
        sa.Column("declared", sa.LargeBinary, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("round", sa.BigInteger, nullable=False),
        sa.Column("trouble", sa.Text, nullable=False),
    )
    op.create_table(
        "seeds",
        sa.Column("training", sa.Text, primary_key=True),
        sa.Column("seed", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "rounds",
        sa.Column("training", sa.Text, primary_key=True),
        sa.Column("round", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("model", sa.LargeBinary, nullable=False),
        sa.Column("result", sa.LargeBinary),
        sa.Column("opened", sa.BigInteger, nullable=False),
        sa.Column("deadline", sa.BigInteger, nullable=False),
        sa.Column("closed", sa.BigInteger, nullable=False),
        sa.Column("updates", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("optimizer", sa.LargeBinary),
    )
    op.create_table(
        "updates",
        sa.Column("training", sa.Text, primary_key=True),
        sa.Column("id", sa.LargeBinary, primary_key=True),
        sa.Column("round", sa.BigInteger, nullable=False),
        sa.Column("counted", sa.Boolean, nullable=False),
        sa.Column("received", sa.BigInteger, nullable=False),
        sa.Column("caller", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("updates_by_round", "updates", ["training", "round", "counted"])
    op.create_table(
        "round_keys",
        sa.Column("training", sa.Text, primary_key=True),
        sa.Column("key", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "update_parts",
        sa.Column("training", sa.Text, primary_key=True),
        sa.Column("round", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", sa.LargeBinary, primary_key=True),
        sa.Column("offset", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "models",
        sa.Column("training", sa.Text, primary_key=True),
        sa.Column("model", sa.LargeBinary, primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("received", sa.BigInteger, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "model_parts",
        sa.Column("training", sa.Text, primary_key=True),
        sa.Column("model", sa.LargeBinary, primary_key=True),
        sa.Column("offset", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
