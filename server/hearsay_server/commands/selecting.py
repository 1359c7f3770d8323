"""Options for which reports a question is about."""

from collections.abc import Sequence
from typing import Annotated

import typer

from hearsay.asking import Selection

Level = Annotated[list[str] | None, typer.Option(help="Only reports of this level; repeatable.")]
Period = Annotated[list[str] | None, typer.Option(help="Only reports of this period; repeatable.")]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", help='Only people who chose this map, "" for none; repeatable.'),
]
First = Annotated[str, typer.Option("--from", help="Only this period and later ones.")]
Last = Annotated[str, typer.Option("--to", "--until", help="Only this period and earlier ones.")]


def selected(
    level: Sequence[str] | None,
    period: Sequence[str] | None,
    first: str,
    last: str,
    maps: Sequence[str] | None = None,
) -> Selection:
    """Return the selection that these options make."""
    return Selection(
        levels=level or (),
        periods=period or (),
        first_period=first,
        last_period=last,
        maps=maps or (),
    )
