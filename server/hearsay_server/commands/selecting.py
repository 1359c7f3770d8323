"""Options for which reports a question is about."""

import csv
from collections.abc import Sequence
from typing import Annotated

import typer

from hearsay.asking import Selection, fields
from hearsay.v1 import analyst_pb2
from ldp.errors import InvalidInput

Level = Annotated[list[str] | None, typer.Option(help="Only reports of this level; repeatable.")]
Period = Annotated[list[str] | None, typer.Option(help="Only reports of this period; repeatable.")]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", help='Only people who chose this map, "" for none; repeatable.'),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        help="Only devices with one of these values of a public property, PROPERTY=A,B ('' for "
        "none given), or of these panels, panel=1,2; repeatable."
    ),
]
First = Annotated[str, typer.Option("--from", help="Only this period and later ones.")]
Last = Annotated[str, typer.Option("--to", "--until", help="Only this period and earlier ones.")]


def selected(
    level: Sequence[str] | None,
    period: Sequence[str] | None,
    first: str,
    last: str,
    maps: Sequence[str] | None = None,
    where: Sequence[str] | None = None,
) -> Selection:
    """Return the selection that these options make."""
    values = values_by_property(where or ())
    return Selection(
        levels=level or (),
        periods=period or (),
        first_period=first,
        last_period=last,
        maps=maps or (),
        panels=_panels(values.pop(PANEL, [])),
        where=values,
    )


PANEL = "panel"
"""The name by which panels are selected beside properties; no property has it."""


def values_by_property(where: Sequence[str]) -> dict[str, list[str]]:
    """Return the values that `--where` names, by property; quotes keep a comma within a value.

    Raises `InvalidInput` where it does not read like platform=ios.
    """
    found: dict[str, list[str]] = {}
    for each in where:
        name, given, values = each.partition("=")
        if not name or not given:
            raise InvalidInput(f"--where must read like platform=ios or version=1,2, got {each!r}")
        found.setdefault(name, []).extend(next(csv.reader([values])) if values else [""])
    return found


def _panels(values: Sequence[str]) -> list[int]:
    if wrong := [value for value in values if not (value.isascii() and value.isdigit())]:
        raise InvalidInput(f"a panel is a number from 1 on, got {wrong[0]!r}")
    return [int(value) for value in values]


def message(chosen: Selection) -> analyst_pb2.Selection:
    """Return a selection as a message."""
    found: analyst_pb2.Selection = fields(chosen, Selection)["selection"]
    return found
