"""How many sealed records left the shuffler in one mix."""

import sqlalchemy as sa
from alembic import op

revision = "15"
down_revision = "14"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "mixes",
        sa.Column("survey", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        sa.Column("mix", sa.LargeBinary, primary_key=True),
        sa.Column("answers_hash", sa.LargeBinary, primary_key=True),
        sa.Column("answers", sa.LargeBinary, nullable=False),
        sa.Column("records", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
