"""Upgrade a database to the schema that this version knows, one numbered step after the other.

A step, once released, never changes; it may use neither `schema` nor anything else that will.
"""

import logging
from typing import Any

import sqlalchemy as sa

NEWEST = 15
"""The schema that this version knows: the number of the last file in `versions`."""


def version(connection: sa.Connection) -> int:
    """Return the schema of a database, 0 where it has none yet."""
    found = 0
    if connection.dialect.name == "sqlite":  # the first version kept its number only there
        found = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
    if sa.inspect(connection).has_table("alembic_version"):
        query = sa.text("SELECT version_num FROM alembic_version")
        found = max([found, *(int(number) for number in connection.scalars(query))])
    return found


def upgrade(connection: sa.Connection) -> None:
    """Run the missing steps, within the connection's transaction."""
    # Our own log reports the upgrade; alembic would report each of its plug-ins.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    from alembic import command

    old = version(connection)
    if old and not sa.inspect(connection).has_table("alembic_version"):
        command.stamp(_config(connection), str(old))
    command.upgrade(_config(connection), "head")
    if connection.dialect.name == "sqlite":  # so that the first version refuses it by number
        connection.exec_driver_sql(f"PRAGMA user_version = {NEWEST}")


def _config(connection: sa.Connection) -> Any:
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "hearsay_server.storage:migrations")
    config.set_main_option("path_separator", "os")
    return config
