"""`hearsay token`: make, list, rotate and revoke tokens."""

import csv
import sys
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hearsay_server.commands.local import ConfigFile, Data, Url, opened
from hearsay_server.storage import tokens

app = typer.Typer(
    help="Make, list, rotate and revoke tokens, whether or not the server runs.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("create")
def create_token(
    role: Annotated[str, typer.Option(help="device, analyst or admin.")],
    label: Annotated[str, typer.Option(help="Whose it is, for the list.")] = "",
    data: Data = None,
    database: Url = None,
    config_file: ConfigFile = None,
) -> None:
    """Make a token and print it: it cannot be shown again."""
    with opened(data, database, config_file, make=True) as found:
        token, text = tokens.Tokens(found).create(role, label)
    _hand_over(token, text)


@app.command("list")
def list_tokens(
    data: Data = None,
    database: Url = None,
    config_file: ConfigFile = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """List the id, role, label and state of every token; tokens themselves are kept as hashes."""
    now = datetime.now(UTC).timestamp()
    heading = ("id", "role", "label", "created", "state")
    with opened(data, database, config_file) as found:
        every = tokens.Tokens(found).list()
    rows = [
        (token.id, token.role, token.label, _when(token.created), _state(token, now))
        for token in every
    ]
    if as_csv:
        csv.writer(sys.stdout).writerows([heading, *rows])
        return
    table = Table(*heading)
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


@app.command("rotate")
def rotate_token(
    token_id: Annotated[str, typer.Argument(help="As `token list` shows it.")],
    grace: Annotated[float, typer.Option(help="Hours that the old one still works.")] = 24.0,
    data: Data = None,
    database: Url = None,
    config_file: ConfigFile = None,
) -> None:
    """Make a new token in place of an old one, and print it."""
    with opened(data, database, config_file) as found:
        token, text = tokens.Tokens(found).rotate(token_id, 3600 * grace)
    _hand_over(token, text)


@app.command("revoke")
def revoke_token(
    token_id: Annotated[str, typer.Argument(help="As `token list` shows it.")],
    data: Data = None,
    database: Url = None,
    config_file: ConfigFile = None,
) -> None:
    """Revoke a token, and all tokens that it was rotated from, within a second."""
    with opened(data, database, config_file) as found:
        token = tokens.Tokens(found).revoke(token_id)
    typer.echo(f"{token.id} ({token.role}) is revoked")


def _hand_over(token: tokens.Token, text: str) -> None:
    """Print the token alone on stdout, so that it can be piped into a secret store."""
    typer.echo(f"{token.id} ({token.role}); keep it, it cannot be shown again:", err=True)
    typer.echo(text)


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")


def _state(token: tokens.Token, now: float) -> str:
    if token.expires is None:
        return "works"
    return f"{'until' if token.works(now) else 'ended'} {_when(token.expires)}"
