"""`hearsay config`: print the configuration, and what each key means."""

from typing import Annotated

import sqlalchemy as sa
import typer

from hearsay_server import config
from hearsay_server.commands.local import ConfigFile


def show(
    config_file: ConfigFile = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print each key's variable, type, default, meaning.")
    ] = False,
) -> None:
    """Print the values that a server would take from the file and the environment, as TOML.

    Exits with 1 where one of them is wrong. The password of a database is not printed.
    """
    if explain:
        for key in config.explained():
            typer.echo(f"{key.name}\n    {key.meaning}")
            typer.echo(f"    {key.variable}, {key.kind}; default {key.default}\n")
        return
    taken = config.load(config_file)
    for name, value in taken:
        if name == "database" and value:
            value = _without_password(value)
        typer.echo(f"{name} = {config.as_toml(value)}")


def _without_password(url: str) -> str:
    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except sa.exc.ArgumentError:
        return "***"  # it may hold a password all the same
