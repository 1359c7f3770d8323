"""Print an `Answer` of any view: as tables, as JSON, or as CSV with one heading."""

from collections.abc import Sequence

from rich.table import Table

from hearsay.asking import answer as answers
from hearsay.asking.answer import Answer
from hearsay_server import cells, spreadsheets, tabular
from hearsay_server.printing import Console, headed, say_json

_ROWS = 40
"""Rows of a table, those of the largest estimates or smallest p-values."""

_IN_NOTES = ("independence",)
"""Tables that are said in words, where they are not the answer itself."""


def show(
    answer: Answer, notes: Sequence[str], as_json: bool, as_csv: bool, table: str = ""
) -> None:
    """Print an answer; its warnings go to standard error. `table` is what CSV has."""
    for note in answer.notes:
        Console(stderr=True).print(f"warning: {note}", soft_wrap=True)
    if as_json:
        say_json(answer.to_dict())
        return
    if as_csv:
        spreadsheets.say(answer.to_csv(table))
        return
    console = Console()
    console.print(headed(answer.title))
    first, *others = answer.tables
    if len(first):
        _print(answer, first)
    for other in others:
        if len(other) and other.name not in _IN_NOTES:
            console.print(headed(other.name))
            _print(answer, other)
    repeats = f"; {answer.repeated}" if answer.repeats > 1 else ""
    for line in [f"{answer.counted}{repeats}", *notes]:
        console.print(line)


def _print(answer: Answer, table: answers.Table) -> None:
    """Print a table, without its lesser columns, and then without references, where it would be
    wider than the terminal."""
    console = Console()
    references = {column.name for column in table.columns if column.role == "reference"}
    for without in (set(), cells.lesser(table), cells.lesser(table) | references):
        shown = cells.shown(answer, table, _ROWS, without)
        printed = Table()
        for heading, kind in shown.headings:
            printed.add_column(heading, justify="left" if kind == cells.LABEL else "right")
        for row in shown.rows:
            printed.add_row(*(cell.plain for cell in row))
        if tabular.width(printed) <= console.width:
            break
    tabular.show(printed)
    if hidden := shown.more + table.left_out:
        console.print(f"{hidden:,} more rows are not shown: --csv has all that were asked for")
