"""The audit log: who did what, newest first."""

import asyncio
import json

from starlette.responses import Response

from hearsay_server.pages import words
from hearsay_server.pages.page import OPERATORS, Page
from hearsay_server.pages.visit import Visit
from hearsay_server.storage import audit
from hearsay_server.storage.audit import Entry
from hearsay_server.storage.tokens import Tokens

_MOST = 100
"""Acts on one page."""


async def _acts(visit: Visit) -> Response:
    asked = visit.request.query_params.get("skip", "0")
    skip = int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 10 else 0
    database = visit.inside.database
    acts = await asyncio.to_thread(audit.newest, database, _MOST + 1, skip)
    tokens = await asyncio.to_thread(Tokens(database).list)
    labels = {token.id: token.label for token in tokens}
    return visit.page(
        "operator/audit.html",
        acts=[_row(act, labels) for act in acts[:_MOST]],
        newer=None if not skip else max(0, skip - _MOST),
        older=skip + _MOST if len(acts) > _MOST else None,
    )


def _row(act: Entry, labels: dict[str, str]) -> dict[str, str]:
    label = labels.get(act.token)
    by = f"{label} ({act.token})" if label else act.token or act.os_user or "no token"
    detail = {name: value for name, value in act.detail.items() if value}
    return {
        "at": words.moment(act.at),
        "by": by,
        "action": act.action,
        "survey": act.survey,
        "detail": ", ".join(f"{name}: {_plain(value)}" for name, value in detail.items()),
    }


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


PAGES = (Page("/operator/audit", OPERATORS, _acts),)
