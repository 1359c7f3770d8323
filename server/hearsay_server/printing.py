"""The one place where commands print: whatever words they print, a terminal runs none of them.

Words come from servers, devices, files and other people. Characters that a terminal takes for
commands, or that turn a line's direction, are printed as their escapes (`hearsay.plain`). Square
brackets stand as they are: rich's markup is off, and what is bold is a `Text`.
"""

import json
from collections.abc import Iterable
from typing import Any

import rich.console
import typer
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from hearsay.plain import plain

_COLOURED = 1000
"""Characters of the longest text that rich looks through for numbers and names: it takes a time
that grows with the square of them, half a minute for the longest text of a server."""


def say(words: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print words as they are, without wrapping them; with `err` to standard error."""
    typer.echo(plain(words), err=err, nl=nl)


def say_json(document: object) -> None:
    """Print a document as JSON, in ASCII."""
    say(json.dumps(document, indent=2))


def headed(heading: str, rest: str = "", style: str = "bold") -> Text:
    """Return a heading in a style, and what follows it on its line."""
    return Text.assemble((plain(heading), style), plain(rest))


class Console(rich.console.Console):
    """A console without markup and emoji codes, which prints no control character.

    Printing goes through `render_str` where a string becomes a text, so that what is printed is
    what was measured, and through `render` in any case.
    """

    def __init__(self, **options: Any) -> None:
        """Take rich's options."""
        super().__init__(**{"markup": False, "emoji": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a string as a text, cleaned; numbers and names have colours in short ones."""
        if len(text) > _COLOURED:
            options["highlight"] = False
        return super().render_str(plain(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of what is printed, cleaned."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text))
