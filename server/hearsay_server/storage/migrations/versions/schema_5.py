"""The batches of a period are found in the order of their ids, for pages of them to be read."""

from alembic import op

revision = "5"
down_revision = "4"


def upgrade() -> None:
    """Make the index anew with the id, which SQLite's has anyhow."""
    op.drop_index("batches_by_period", "batches")
    op.create_index("batches_by_period", "batches", ["survey", "period", "id"])
