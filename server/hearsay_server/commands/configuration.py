"""`hearsay config`: print the configuration, and what each key means."""

from typing import Annotated

import typer

from hearsay_server import config
from hearsay_server.commands.local import ConfigFile
from hearsay_server.printing import say
from hearsay_server.storage.database import parsed, shown


def show(
    config_file: ConfigFile = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print each key's variable, type, default, meaning.")
    ] = False,
) -> None:
    """Print the values that a server would take from the file and the environment, as TOML.

    Exits with 1 where one of them is wrong. No token and no password is printed.
    """
    if explain:
        for key in config.explained():
            say(f"{key.name}\n    {key.meaning}")
            say(f"    {key.variable}, {key.kind}; default {key.default}\n")
        return
    taken = config.load(config_file)
    values = config.shown(taken)
    if taken.database:
        values["database"] = shown(parsed(taken.database))
    for name, value in values.items():
        say(f"{name} = {config.as_toml(value)}")
