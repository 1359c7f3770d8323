"""The audit log, which only grows; when a token was revoked, and the day of its last use."""

import sqlalchemy as sa
from alembic import op

revision = "7"
down_revision = "6"

_SQLITE = (
    "CREATE TRIGGER audit_not_updated BEFORE UPDATE ON audit "
    "BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END",
    "CREATE TRIGGER audit_not_deleted BEFORE DELETE ON audit "
    "BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END",
)
_POSTGRESQL = (
    "CREATE OR REPLACE FUNCTION audit_only_grows() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN RAISE EXCEPTION ''the audit log only grows''; END'",
    "CREATE TRIGGER audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
    "FOR EACH STATEMENT EXECUTE FUNCTION audit_only_grows()",
)


def upgrade() -> None:
    """Add the columns, make the table, and refuse to change or delete its rows."""
    op.add_column("tokens", sa.Column("revoked", sa.Float))
    op.add_column("tokens", sa.Column("used", sa.BigInteger))
    op.create_table(
        "audit",
        sa.Column("id", sa.LargeBinary, primary_key=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("os_user", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("survey", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    for statement in _SQLITE if op.get_bind().dialect.name == "sqlite" else _POSTGRESQL:
        op.execute(statement)
