"""Options of commands that work on the server's folder or database without a server."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import sqlalchemy as sa
import typer
from rich.table import Table

from hearsay_server import at_rest, config, private, spreadsheets, tabular
from hearsay_server.at_rest import AtRest
from hearsay_server.storage.database import Database, open_database, said
from ldp.errors import InvalidInput, StorageFailed

Data = Annotated[Path | None, typer.Option(help="The server's folder.")]
Url = Annotated[str | None, typer.Option(help="The server's database, postgresql://...")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="The server's TOML file.", envvar="HEARSAY_CONFIG")
]
EncryptionKey = Annotated[
    Path | None,
    typer.Option(help="The file of the process's encryption_key.", envvar="HEARSAY_ENCRYPTION_KEY"),
]
_WHOLE = 16
"""Characters of a cell that always stays in one line: an id has 16."""

AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]


def where(
    data: Path | None, database: str | None, config_file: Path | None
) -> tuple[Path | str, AtRest]:
    """Return the folder or URL that a command was given, or else the configured one, and the keys
    that key material there is encrypted under.

    Beside a folder no other key of the configuration counts, which may be a shuffler's or a
    helper's.
    """
    if data is not None and database is None:
        return data, at_rest.read(config.encryption_key(config_file), data)
    setup = config.load(config_file, {"data": data, "database": database})
    return setup.where, at_rest.read(setup.encryption_key, setup.where)


@contextlib.contextmanager
def opened(
    data: Path | None, database: str | None, config_file: Path | None, *, make: bool = False
) -> Iterator[Database]:
    """Open the server's data; raise `InvalidInput` where there is none, as after a typing error,
    and `StorageFailed` where the database or its disk fails.

    If `make`, the folder may still be empty.
    """
    place, keys = where(data, database, config_file)
    if isinstance(place, Path) and not private.is_there(place if make else place / "hearsay.db"):
        raise InvalidInput(f"there is no {'folder' if make else 'hearsay data in'} {place}")
    with contextlib.closing(open_database(place, keys)) as found:
        try:
            yield found
        except sa.exc.DatabaseError as error:
            raise StorageFailed(f"the database cannot be used: {said(error)}") from None


def when(seconds: float) -> str:
    """Return a moment, in seconds since 1970, as a date and time in UTC: 2027-01-31 18:00Z."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%MZ}"


def print_rows(heading: Sequence[str], rows: Sequence[Sequence[str]], as_csv: bool) -> None:
    """Print rows as a table without the columns that are empty, or as CSV."""
    if as_csv:
        spreadsheets.write(sys.stdout, [heading, *rows])
        return
    table = Table()
    filled = [place for place in range(len(heading)) if not rows or any(row[place] for row in rows)]
    for place in filled:
        short = all(len(row[place]) <= _WHOLE for row in rows)  # ids are copied from here
        table.add_column(heading[place], no_wrap=short, overflow="fold")
    for row in rows:
        table.add_row(*(row[place] for place in filled))
    tabular.show(table)
