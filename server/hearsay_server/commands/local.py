"""Options of commands that work on the server's folder or database without a server."""

import contextlib
import csv
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from hearsay_server import config, tabular
from hearsay_server.storage.database import Database, open_database
from ldp import InvalidInput

Data = Annotated[Path | None, typer.Option(help="The server's folder.")]
Url = Annotated[str | None, typer.Option(help="The server's database, postgresql://...")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="The server's TOML file.", envvar="HEARSAY_CONFIG")
]
_WHOLE = 16
"""Characters of a cell that always stays in one line: an id has 16."""

AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]


def where(data: Path | None, database: str | None, config_file: Path | None) -> Path | str:
    """Return the folder or URL that a command was given, or else the configured one."""
    if data is not None and database is None:
        return data  # whatever is configured, and for whichever process
    return config.load(config_file, {"data": data, "database": database}).where


@contextlib.contextmanager
def opened(
    data: Path | None, database: str | None, config_file: Path | None, *, make: bool = False
) -> Iterator[Database]:
    """Open the server's data; raise `InvalidInput` where there is none, as after a typing error.

    If `make`, the folder may still be empty.
    """
    place = where(data, database, config_file)
    if isinstance(place, Path) and not (place if make else place / "hearsay.db").exists():
        raise InvalidInput(f"there is no {'folder' if make else 'hearsay data in'} {place}")
    with contextlib.closing(open_database(place)) as found:
        yield found


def when(seconds: float) -> str:
    """Return a moment, in seconds since 1970, as a date and time in UTC: 2027-01-31 18:00Z."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%MZ}"


def print_rows(heading: Sequence[str], rows: Sequence[Sequence[str]], as_csv: bool) -> None:
    """Print rows as a table without the columns that are empty, or as CSV."""
    if as_csv:
        csv.writer(sys.stdout).writerows([heading, *rows])
        return
    table = Table()
    filled = [place for place in range(len(heading)) if not rows or any(row[place] for row in rows)]
    for place in filled:
        short = all(len(row[place]) <= _WHOLE for row in rows)  # ids are copied from here
        table.add_column(heading[place], no_wrap=short, overflow="fold")
    for row in rows:
        table.add_row(*(escape(row[place]) for place in filled))
    tabular.show(table)
