"""Options for reaching a server: of the commands, and of `hearsay` itself before the command."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hearsay_server.build import revision, version

if TYPE_CHECKING:
    from hearsay.checking.calls import CheckedCalls
    from hearsay.sending.transport import Tls

DEFAULT_ADDRESS = "127.0.0.1:50051"

Target = Annotated[str, typer.Option(help="The server, as HOST:PORT, or https://HOST over HTTP.")]
Delta = Annotated[float, typer.Option(help="The delta of epsilon.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Forgo TLS for a host that is not loopback.")
]
Token = Annotated[
    str | None,
    typer.Option(
        help="The token that the server asks for; better in the environment.",
        envvar="HEARSAY_TOKEN",
        show_envvar=True,
    ),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        from hearsay_server.printing import say  # the help alone needs nothing of it

        say(f"hearsay {version()}, revision {revision()}")
        raise typer.Exit


def options(
    ca: Annotated[
        Path | None,
        typer.Option(
            help="Speak TLS, on loopback too, and trust this CA, PEM.", envvar="HEARSAY_CA"
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            help="For a server that asks for one (mutual TLS), PEM.", envvar="HEARSAY_CERTIFICATE"
        ),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="Its private key, PEM.", envvar="HEARSAY_KEY")
    ] = None,
    server_name: Annotated[
        str | None,
        typer.Option(
            help="The name in the server's certificate, if not the host's.",
            envvar="HEARSAY_SERVER_NAME",
        ),
    ] = None,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Collect statistics under local differential privacy."""


def tls(context: typer.Context) -> "Tls | None":
    """Return the TLS files given by the options before the command; None without any."""
    from hearsay.sending.transport import Tls  # commands that reach no server do without it

    given = context.find_root().params
    if not any(given[name] for name in ("ca", "certificate", "key", "server_name")):
        return None
    return Tls(given["ca"], given["certificate"], given["key"], given["server_name"])


@contextlib.contextmanager
def connected(
    context: typer.Context, target: str, insecure: bool, token: str | None
) -> "Iterator[CheckedCalls]":
    """Make calls to a server, over TLS as the options before the command say.

    Its answers are checked: they raise `AnswerRefused` where no honest server gives them.
    """
    from hearsay.checking.calls import open_checked

    calls = open_checked(target, tls=tls(context), token=token, insecure=insecure)
    with contextlib.closing(calls):
        yield calls
