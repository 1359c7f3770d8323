"""Options of commands that work on the server's folder or database without a server."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from hearsay_server import config
from hearsay_server.storage.database import Database, open_database
from ldp import InvalidInput

Data = Annotated[Path | None, typer.Option(help="The server's folder.")]
Url = Annotated[str | None, typer.Option(help="The server's database, postgresql://...")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="The server's TOML file.", envvar="HEARSAY_CONFIG")
]


def where(data: Path | None, database: str | None, config_file: Path | None) -> Path | str:
    """Return the folder or URL that a command was given, or else the configured one."""
    flags: dict[str, object] = {"data": data, "database": database}
    if data is not None and database is None:
        flags["database"] = ""  # the folder that was asked for, whatever is configured
    return config.load(config_file, flags).where


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
