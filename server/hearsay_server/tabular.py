"""Tables for a terminal: numbers are whole, headings wrap, and labels are shortened."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from hearsay_server.printing import Console, headed

_LINES = 2
"""Lines of a label."""

_WORD = 10
"""Characters of a heading's word that are not broken."""

_LEAST = 4
"""Characters of a column of labels, at least."""


@dataclass(frozen=True)
class Label:
    """A text on so many `lines` at most.

    What is left out becomes "…", in the middle: labels often begin alike, and end differently.
    """

    text: str | Text
    lines: int

    def __rich_measure__(
        self, console: rich.console.Console, options: ConsoleOptions
    ) -> Measurement:
        return Measurement.get(console, options, self.text)

    def __rich_console__(
        self, console: rich.console.Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        whole = console.render_str(self.text) if isinstance(self.text, str) else self.text
        width = options.max_width
        lines = whole.wrap(console, width, overflow="fold")
        kept = min(len(whole), self.lines * width)
        while len(lines) > self.lines and kept > 1:
            kept -= 1
            short = whole[: kept - kept // 2] + Text("…") + whole[len(whole) - kept // 2 :]
            lines = short.wrap(console, width, overflow="fold")
        yield Text("\n").join(lines)


def show(table: Table, *, lines: int = _LINES) -> None:
    """Print a table: columns to the right, and those without wrapping, keep their values whole.

    Other columns are labels. Where the terminal is too narrow, headings of numbers are wrapped
    first, then labels, which are cut after so many `lines`; columns that fold keep all of theirs.
    Where the numbers alone are wider than the terminal, so is the table.
    """
    console = Console()
    widths = _widths(table, console)
    console.width = max(console.width, sum(widths) + _borders(table))
    if table.title is not None:
        console.print(headed(str(table.title), style="table.title"), soft_wrap=True)
    fitted = Table(box=table.box)
    for column, width in zip(table.columns, widths, strict=True):
        heading = _short(column.header, 2 * lines)
        fitted.add_column(heading, justify=column.justify, width=width, overflow="fold")
    cells = zip(*(column.cells for column in table.columns), strict=True)
    for row, values in zip(table.rows, cells, strict=True):
        short = (
            value if _is_whole(column) or column.overflow == "fold" else _short(value, lines)
            for column, value in zip(table.columns, values, strict=True)
        )
        fitted.add_row(*short, end_section=row.end_section)
    console.print(fitted)


def width(table: Table) -> int:
    """Return the characters that a table needs in a line, if its headings may wrap."""
    console = Console()
    return _borders(table) + sum(
        max([_word(column.header), *(_width(cell, console) for cell in column.cells)])
        for column in table.columns
    )


def shortened(text: str, width: int) -> str:
    """Return a text of so many characters at most, with "…" in the place of its middle."""
    if len(text) <= width:
        return text
    return f"{text[: width - 1 - width // 2]}…{text[len(text) - width // 2 :]}"


def _short(cell: RenderableType, lines: int) -> RenderableType:
    return Label(cell, lines) if isinstance(cell, str | Text) else cell


def _borders(table: Table) -> int:
    """Return the characters of a table that are no cell's: lines, and a blank on either side."""
    edges = 1 if table.box else -1
    return 3 * len(table.columns) + edges


def _widths(table: Table, console: Console) -> list[int]:
    """Return the width of each column's text."""
    whole = [max(_width(cell, console) for cell in _all(column)) for column in table.columns]
    room = console.width - _borders(table)
    if sum(whole) <= room:
        return whole
    least = [
        max([_word(column.header), *(_width(cell, console) for cell in column.cells)])
        if _is_whole(column)
        else 0
        for column in table.columns
    ]
    places = range(len(whole))
    labels = [place for place in places if not _is_whole(table.columns[place])]
    left = max(room - sum(least), _LEAST * len(labels))
    for some in (labels, [place for place in places if place not in labels]):
        # The ones that need least first: what they do not take is left for the others.
        needs = sorted(some, key=lambda place: whole[place] - least[place])
        for number, place in enumerate(needs):
            more = min(whole[place] - least[place], left // (len(needs) - number))
            least[place] += more
            left -= more
    return least


def _is_whole(column: Column) -> bool:
    return column.justify == "right" or column.no_wrap


def _all(column: Column) -> Sequence[RenderableType]:
    return [column.header, *column.cells]


def _width(cell: RenderableType, console: Console) -> int:
    return Measurement.get(console, console.options.update(max_width=1000), cell).maximum


def _word(heading: RenderableType) -> int:
    """Return the width that a heading needs."""
    words = str(heading).split() if isinstance(heading, str | Text) else []
    return min(_WORD, max(map(len, words), default=0))
