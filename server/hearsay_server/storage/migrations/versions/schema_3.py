"""An index of tokens' rows by period, so that they can be purged when the period is closed."""

from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Make the index."""
    op.create_index("token_rows_by_period", "token_rows", ["survey", "period"])
