"""What an operator runs: the server, its tokens, and a look at its health."""

import asyncio
import csv
import inspect
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from grpc_health.v1 import health_pb2, health_pb2_grpc
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hearsay.transport import call, open_channel
from hearsay_server import config, connect, logs, tokens, workers
from hearsay_server import serve as serving
from hearsay_server.health import LIVE
from hearsay_server.local import ConfigFile, Data, Url, opened

token_app = typer.Typer(
    help="Make, list, rotate and revoke tokens, whether or not the server runs.",
    no_args_is_help=True,
)


def _with_an_option_for_every_key(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes `config_file` and flags an option for each key of `Config`."""
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[key.kind | None, typer.Option(help=_help(key))],
        )
        for name, key in config.KEYS.items()
    ]
    own = list(inspect.signature(command).parameters.values())[:1]
    signature = inspect.Signature([*own, *options])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    return command


def _help(key: config.Key) -> str:
    default = "" if key.default in (None, "", False) else f" (default {key.default})"
    return f"{key.help}{default}"


@_with_an_option_for_every_key
def serve(config_file: ConfigFile = None, **flags: object) -> None:
    """Run the aggregation server until SIGTERM or Ctrl-C.

    Each option is also a key of the TOML file and, in capitals after HEARSAY_, a variable.
    """
    setup = config.load(config_file, os.environ, flags)
    logs.configure(setup.log_format, setup.log_level)

    def announce(address: str) -> None:
        typer.echo(f"listening on {address}")
        sys.stdout.flush()

    if setup.workers > 1:
        asyncio.run(workers.serve(setup, sys.argv[1:], announce))
    else:
        asyncio.run(serving.serve(setup, announce))


@token_app.command("create")
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


@token_app.command("list")
def list_tokens(
    data: Data = None,
    database: Url = None,
    config_file: ConfigFile = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """List what is known of the tokens: not the tokens, which are kept as hashes."""
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


@token_app.command("rotate")
def rotate_token(
    token_id: Annotated[str, typer.Argument(help="As `token list` shows it.")],
    grace: Annotated[float, typer.Option(help="Hours that the old one still works.")] = 24.0,
    data: Data = None,
    database: Url = None,
    config_file: ConfigFile = None,
) -> None:
    """Make a new token in the place of one, and print it."""
    with opened(data, database, config_file) as found:
        token, text = tokens.Tokens(found).rotate(token_id, 3600 * grace)
    _hand_over(token, text)


@token_app.command("revoke")
def revoke_token(
    token_id: Annotated[str, typer.Argument(help="As `token list` shows it.")],
    data: Data = None,
    database: Url = None,
    config_file: ConfigFile = None,
) -> None:
    """End a token, and those that it was rotated from, within a second."""
    with opened(data, database, config_file) as found:
        token = tokens.Tokens(found).revoke(token_id)
    typer.echo(f"{token.id} ({token.role}) is revoked")


def health(
    context: typer.Context,
    target: Annotated[str, typer.Option(help="The server, as HOST:PORT.")] = "127.0.0.1:50051",
    live: Annotated[
        bool, typer.Option("--live", help="Ask only whether the process answers.")
    ] = False,
    insecure: Annotated[
        bool, typer.Option(help="Forgo TLS for a host that is not loopback.")
    ] = False,
) -> None:
    """Ask a server whether it can take reports; exit with 1 where it cannot."""
    with open_channel(target, tls=connect.tls(context), insecure=insecure) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # its types are those of an aio server
        request = health_pb2.HealthCheckRequest(service=LIVE if live else "")
        status = call(stub.Check, request, 5.0).status
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(status)
    typer.echo(name)
    if status != health_pb2.HealthCheckResponse.SERVING:
        raise typer.Exit(1)


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
