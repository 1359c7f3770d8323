"""The audit log: who registered, closed, deleted, exported, backed up, or changed tokens, and when.

A row is written in the transaction of its act, or before an act that is no transaction, and the
database refuses to change or delete it. It names tokens and users of the server's machine, and
never a device.
"""

import json
import os
import pwd
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from hearsay_server.storage import schema
from hearsay_server.storage.database import Database

_audit = schema.audit

_ID_BYTES = 16


@dataclass(frozen=True)
class Entry:
    """One act, at `at` seconds since 1970.

    `token` is the id of the token it was done with, through a server; `os_user` is the user of
    the operating system who did it by a command. Both are "" for a call without a token.
    """

    at: float
    token: str
    os_user: str
    action: str
    survey: str
    detail: Mapping[str, Any]


def record(
    connection: sa.Connection,
    action: str,
    *,
    token: str = "",
    os_user: str = "",
    survey: str = "",
    detail: Mapping[str, object] | None = None,
) -> None:
    """Append an act of this moment, in the transaction of `connection`."""
    row = {
        # Ids are random: a number that counts up would collide in a restored database.
        "id": os.urandom(_ID_BYTES),
        "at": time.time(),
        "token": token,
        "os_user": os_user,
        "action": action,
        "survey": survey,
        "detail": json.dumps(detail or {}),
    }
    connection.execute(sa.insert(_audit), row)


def entries(database: Database) -> list[Entry]:
    """Return all acts, oldest first."""
    query = sa.select(_audit).order_by(_audit.c.at, _audit.c.id)
    with database.reading() as connection:
        return [_entry(row) for row in connection.execute(query)]


def newest(database: Database, most: int, skip: int = 0) -> list[Entry]:
    """Return at most so many acts, newest first, without the first `skip` of them."""
    query = sa.select(_audit).order_by(_audit.c.at.desc(), _audit.c.id.desc())
    with database.reading() as connection:
        return [_entry(row) for row in connection.execute(query.limit(most).offset(skip))]


def _entry(row: Any) -> Entry:
    return Entry(row.at, row.token, row.os_user, row.action, row.survey, json.loads(row.detail))


def this_user() -> str:
    """Return the user of the operating system as whom this process runs.

    By the process's own id: variables such as USER and SUDO_USER say what a caller likes.
    """
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # a container may run as a user without a name
        return f"uid {number}"
