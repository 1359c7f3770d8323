"""An index of a period's batches in the order of their ids, to read them in pages."""

from alembic import op

revision = "5"
down_revision = "4"


def upgrade() -> None:
    """Make the index anew with the id, which SQLite's index has anyhow."""
    op.drop_index("batches_by_period", "batches")
    op.create_index("batches_by_period", "batches", ["survey", "period", "id"])
