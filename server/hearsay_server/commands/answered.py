"""Print an `Answer` of any view: as tables, as JSON, or as CSV with one heading."""

import sys
from collections.abc import Sequence

from rich.table import Table

from hearsay.asking import answer as answers
from hearsay.asking.answer import Answer
from hearsay_server import cells, spreadsheets, tabular
from hearsay_server.printing import Console, headed, say_json

_ROWS = 40
"""Rows of a table, those of the largest estimates or smallest p-values, where none were chosen."""

_SAID = ("independence", "mean", "shares")
"""Tables that notes, or columns of the first one, tell of already."""


def show(
    answer: Answer,
    notes: Sequence[str] = (),
    as_json: bool = False,
    as_csv: bool = False,
    table: str = "",
    several: bool = False,
) -> None:
    """Print an answer; its warnings go to standard error, with its attribute where there are
    `several` answers. `table` is what CSV has."""
    warn_of(answer, several)
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
        if len(other) and other.name not in _SAID:
            console.print(headed("estimates" if other.name == "rows" else other.name))
            _print(answer, other)
    repeats = f"; {answer.repeated}" if answer.repeats > 1 else ""
    for line in [f"{answer.counted}{repeats}", *notes]:
        console.print(line)


def show_all(answers: Sequence[Answer]) -> None:
    """Print answers as one JSON array."""
    for answer in answers:
        warn_of(answer, several=True)
    say_json([answer.to_dict() for answer in answers])


def show_rows(answers: Sequence[Answer]) -> None:
    """Print estimates of several attributes as CSV below one heading: a row for each value, with
    its attribute, its group where there are groups, and what is estimated of it."""
    for answer in answers:
        warn_of(answer, several=len(answers) > 1)
    tables = [answer.table() for answer in answers]
    groups = [level.name for level in tables[0].index[:-1]]
    names = list(dict.fromkeys(name for table in tables for name in table.names))
    rows: list[list[object]] = [
        ["attribute", *groups, "statistic", "value", *names, "confidence", "reports"]
    ]
    for answer, table in zip(answers, tables, strict=True):
        columns = {column.name: column.plain() for column in table.columns}
        for place, labels in enumerate(zip(*(level.labels for level in table.index), strict=True)):
            numbers = [columns[name][place] if name in columns else None for name in names]
            statistic = table.statistic or answer.statistic
            *group, value = labels
            reports = answer.parts[group[0]] if group else answer.reports
            ends = [answer.confidence, reports]
            rows.append([answer.attribute, *group, statistic, value, *numbers, *ends])
    spreadsheets.write(sys.stdout, rows)


def warn_of(answer: Answer, several: bool = False) -> None:
    """Print an answer's warnings beside it, with its attribute where there are `several`."""
    for note in answer.notes:
        warn(f"{answer.attribute}: {note}" if several else str(note))


def warn(words: str) -> None:
    """Print a warning beside an answer."""
    Console(stderr=True).print(f"warning: {words}", soft_wrap=True)


def _print(answer: Answer, table: answers.Table) -> None:
    """Print a table, without its lesser columns, and then without references, where it would be
    wider than the terminal."""
    console = Console()
    most = len(table) if table.left_out else _ROWS  # what is left out was chosen by the analyst
    references = {column.name for column in table.columns if column.role == "reference"}
    for without in (set(), cells.lesser(table), cells.lesser(table) | references):
        shown = cells.shown(answer, table, most, without)
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
