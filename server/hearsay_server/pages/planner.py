"""The page before registration: what a survey will be able to tell.

What is given is computed with in a process of its own, within the bounds of analysts' questions,
and forgotten: nothing is stored, and nothing registered.
"""

import math
from collections.abc import Sequence
from functools import partial

from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response

from hearsay_server.limits import TooMany
from hearsay_server.pages.page import PLANNERS, Page
from hearsay_server.pages.visit import Visit
from hearsay_server.serving.status import passing
from hearsay_server.surveys import planning
from hearsay_server.surveys.fitting import Fit
from hearsay_server.surveys.planning import EPSILONS, USERS, Planned
from ldp import InvalidInput

_LARGEST = 4 << 20
"""Bytes of a posted form, with its files."""

_CURVES = 8
"""Curves that are drawn: the first, as many as colours and markers tell apart."""

_LONGEST = 16
"""Characters of a question's name beside its curve."""

_USERS = 10_000


async def _show(visit: Visit) -> Response:
    return _page(visit)


async def _plan(visit: Visit) -> Response:
    async with visit.closing_form() as form:
        given = await _given(form)
        text, users = _text(form, "text"), _text(form, "users")
    try:
        planned = await _run(visit, given, users)
    except InvalidInput as error:
        return _page(visit, 400, text=text, users=users, trouble=str(error))
    return _page(visit, text=planned.toml, users=users, planned=planned)


async def _download(visit: Visit) -> Response:
    """Hand back the survey that stands in the form, as a file."""
    async with visit.closing_form() as form:
        text = _text(form, "text")
    headers = {"content-disposition": 'attachment; filename="survey.toml"'}
    return Response(text, media_type="application/toml", headers=headers)


async def _given(form: FormData) -> list[tuple[str, bytes]]:
    """Return what was uploaded and what was pasted, after what errors call it."""
    given = [("the text", _text(form, "text").encode())]
    file = form.get("file")
    if isinstance(file, UploadFile) and file.filename:
        given.append((file.filename, await file.read()))
    return given


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value if isinstance(value, str) else ""


async def _run(visit: Visit, given: Sequence[tuple[str, bytes]], users: str) -> Planned:
    """Plan in a process; raise `InvalidInput` for what cannot be, and `Ended` where too many do."""
    try:
        people = int(users.replace(",", "") or _USERS)
    except ValueError:
        raise InvalidInput(f"people must be a whole number, got {users[:40]!r}") from None
    try:
        return await visit.inside.analyses.run(partial(planning.planned, given, people))
    except TooMany as error:
        raise passing(error) from None


def _page(
    visit: Visit,
    status: int = 200,
    *,
    text: str = "",
    users: str = "",
    trouble: str = "",
    planned: Planned | None = None,
) -> Response:
    shown = {"planned": planned, **_tables(planned)} if planned else {"planned": None}
    return visit.page(
        "planner.html", status, text=text, users=users or str(_USERS), trouble=trouble, **shown
    )


def _tables(planned: Planned) -> dict[str, object]:
    """Return the tables and curves of a plan as the template takes them."""
    here = next(level for level in planned.levels if level.name == planned.level)
    names = [asked.name for asked in here.asked]
    return {
        "here": here,
        "questions": [
            {
                "name": asked.name,
                "title": asked.title,
                "asks": asked.asks,
                "mechanism": asked.mechanism,
                "epsilon": f"{asked.epsilon:.4g}",
                "reported": f"{asked.chance:.0%}",
            }
            for asked in here.asked
        ],
        "smallest": [
            {"name": asked.name}
            | {
                f"at {level.name}": _percent(level.asked[place].smallest, "none")
                for level in planned.levels
            }
            for place, asked in enumerate(here.asked)
            if asked.has_shares
        ],
        "level_columns": [
            (f"at {level.name}", f"{level.name} ({level.epsilon:g})", "number")
            for level in planned.levels
        ],
        "cost_rows": [
            {"level": level, "periods": f"{n:,}", "total": f"{total:.4g}", "composed": f"{one:.4g}"}
            for level, n, total, one in planned.costs
        ],
        "guesses": [
            {"column": column, "why": why, "notes": notes} for column, why, notes in planned.guesses
        ],
        **_fit_tables(planned.fit),
        "by_users": _rows(names, USERS, planned.by_users),
        "by_epsilon": _rows(names, EPSILONS, planned.by_epsilon),
        "users_columns": [("name", "question", "text")]
        + [(str(n), f"{n:,}", "number") for n in USERS],
        "epsilon_columns": [("name", "question", "text")]
        + [(str(e), f"epsilon {e:g}", "number") for e in EPSILONS],
        "users_curves": _curves("people", names, USERS, planned.by_users, planned.users),
        "epsilon_curves": _curves(
            "epsilon of a record", names, EPSILONS, planned.by_epsilon, here.epsilon
        ),
        "budgets": [
            {
                "budget": way.budget + (" (this survey's)" if place == 0 else ""),
                "label": way.label,
                "half": _percent(way.half),
                "users": f"{way.users:.2f} times",
            }
            for place, way in enumerate(planned.budgets)
        ],
    }


def _rows(
    names: Sequence[str], columns: Sequence[float], table: Sequence[Sequence[float]]
) -> list[dict[str, str]]:
    return [
        {"name": name}
        | {str(column): _percent(half) for column, half in zip(columns, halves, strict=True)}
        for name, halves in zip(names, table, strict=bool(table))
    ]


def _curves(
    label: str,
    names: Sequence[str],
    columns: Sequence[float],
    table: Sequence[Sequence[float]],
    at: float,
) -> dict[str, object]:
    """Return the questions' curves as curves.js draws them; those that look alike are one."""
    alike: list[list[int]] = []
    for place, halves in enumerate(table):
        for group in alike:
            if _alike(halves, table[group[0]]):
                group.append(place)
                break
        else:
            alike.append([place])
    return {
        "kind": "curves",
        "x": label,
        "y": "half a 95% interval",
        "lines": [
            {
                "name": _cut(names[first]) + (f" +{len(more)}" if more else ""),
                "points": [
                    [x, y] for x, y in zip(columns, table[first], strict=True) if math.isfinite(y)
                ],
            }
            for first, *more in alike[:_CURVES]
        ],
        "at": at,
    }


def _fit_tables(fit: Fit | None) -> dict[str, object]:
    if fit is None:
        return {}
    return {
        "fit_columns": [
            {
                "attribute": column.attribute,
                "answers": f"{column.answers:,}",
                "moved": f"{column.moved:,}",
                "blanks": f"{column.blanks:,}",
                "odd": f"{column.wrong:,}",
            }
            for column in fit.columns
        ],
        "fit_cells": [
            {
                "attribute": cell.attribute,
                "row": f"{cell.row:,}",
                "value": cell.value,
                "reason": cell.reason,
            }
            for column in fit.columns
            for cell in column.misfits
        ],
    }


def _alike(some: Sequence[float], others: Sequence[float]) -> bool:
    """Whether two curves look alike: each point is within a tenth of the other's."""
    return all(abs(one - other) <= 0.1 * other for one, other in zip(some, others, strict=True))


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}\u2026"


def _percent(part: float, nothing: str = "\u2013") -> str:
    """Return a part of one in percent, with two digits that count."""
    if not math.isfinite(part):
        return nothing
    if part >= 1:
        return "100% or more"
    return f"{100 * part:.2g}%" if part >= 0.001 else f"{100 * part:.3f}%"


PAGES = (
    Page("/planner", PLANNERS, _show),
    Page("/planner", PLANNERS, _plan, posts=True, largest=_LARGEST),
    Page("/planner/survey.toml", PLANNERS, _download, posts=True, largest=_LARGEST),
)
