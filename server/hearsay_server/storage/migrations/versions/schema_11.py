"""What the page of a survey shows to everybody."""

import sqlalchemy as sa
from alembic import op

revision = "11"
down_revision = "10"


def upgrade() -> None:
    """Add the column: no survey has a public page so far."""
    op.add_column("surveys", sa.Column("page", sa.LargeBinary))
