"""The private halves of the keys that sealed records are opened with."""

import sqlalchemy as sa
from alembic import op

revision = "13"
down_revision = "12"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "sealing_keys",
        sa.Column("survey", sa.Text, primary_key=True),
        sa.Column("place", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("private", sa.LargeBinary, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
    )
