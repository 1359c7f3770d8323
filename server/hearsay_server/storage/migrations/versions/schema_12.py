"""Sessions of the pages."""

import sqlalchemy as sa
from alembic import op

revision = "12"
down_revision = "11"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "sessions",
        sa.Column("hash", sa.LargeBinary, primary_key=True),
        sa.Column("token", sa.LargeBinary, nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
    )
    op.create_index("ix_sessions_token", "sessions", ["token"])
