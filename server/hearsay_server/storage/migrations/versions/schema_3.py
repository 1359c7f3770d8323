"""What tokens sent is found by period, so that it can be forgotten with it."""

from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Make the index."""
    op.create_index("token_rows_by_period", "token_rows", ["survey", "period"])
