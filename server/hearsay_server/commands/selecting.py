"""Options for which reports a question is about."""

from typing import Annotated

import typer

_REPORTS = "Which reports"

Level = Annotated[
    list[str] | None,
    typer.Option(help="Only reports of this level; repeatable.", rich_help_panel=_REPORTS),
]
Period = Annotated[
    list[str] | None,
    typer.Option(help="Only reports of this period; repeatable.", rich_help_panel=_REPORTS),
]
Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        help='Only people who chose this map, "" for none; repeatable.',
        rich_help_panel=_REPORTS,
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        help="Only devices with one of these values of a public property, PROPERTY=A,B ('' for "
        "none given), or of these panels, panel=1,2; repeatable.",
        rich_help_panel=_REPORTS,
    ),
]
First = Annotated[
    str, typer.Option("--from", help="Only this period and later ones.", rich_help_panel=_REPORTS)
]
Last = Annotated[
    str,
    typer.Option(
        "--to", "--until", help="Only this period and earlier ones.", rich_help_panel=_REPORTS
    ),
]
