"""`hearsay token`: make, list, rotate and revoke tokens."""

import re
from datetime import UTC, date, datetime
from typing import Annotated

import typer

from hearsay_server.commands.local import AsCsv, ConfigFile, Data, Url, opened, print_rows, when
from hearsay_server.printing import say
from hearsay_server.storage import tokens
from ldp import InvalidInput

_SECONDS = {"h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
_EPOCH = date(1970, 1, 1).toordinal()

Expires = Annotated[
    str | None,
    typer.Option(
        metavar="DATE|DURATION",
        help="It works so long (12h, 90d, 52w), or until this date begins, in UTC (2027-01-31).",
    ),
]

app = typer.Typer(
    help="Make, list, rotate and revoke tokens, whether or not the server runs.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("create")
def create_token(
    role: Annotated[
        str, typer.Option(help=f"{', '.join(tokens.ROLES[:-1])} or {tokens.ROLES[-1]}.")
    ],
    label: Annotated[str, typer.Option(help="Whose it is, for the list.")] = "",
    expires: Expires = None,
    data: Data = None,
    database: Url = None,
    config_file: ConfigFile = None,
) -> None:
    """Make a token and print it: it cannot be shown again."""
    with opened(data, database, config_file, make=True) as found:
        token, text = tokens.Tokens(found).create(role, label, _moment(expires))
    _hand_over(token, text)


@app.command("list")
def list_tokens(
    data: Data = None,
    database: Url = None,
    config_file: ConfigFile = None,
    as_csv: AsCsv = False,
) -> None:
    """List every token's id, role, label, state and day of last use; itself it is kept nowhere.

    The use of a device's token is not recorded: it may be one person's.
    """
    now = datetime.now(UTC).timestamp()
    heading = ("id", "role", "label", "created", "last use", "state", "until")
    with opened(data, database, config_file) as found:
        every = tokens.Tokens(found).list()
    rows = [(*(token.id, token.role, token.label), *_times(token, now)) for token in every]
    print_rows(heading, rows, as_csv)


@app.command("rotate")
def rotate_token(
    token_id: Annotated[str, typer.Argument(help="As `token list` shows it.")],
    grace: Annotated[float, typer.Option(help="Hours that the old one still works.")] = 24.0,
    expires: Expires = None,
    data: Data = None,
    database: Url = None,
    config_file: ConfigFile = None,
) -> None:
    """Make a new token in place of an old one, and print it.

    Without --expires it works for as long as the old one was made for.
    """
    with opened(data, database, config_file) as found:
        token, text = tokens.Tokens(found).rotate(token_id, 3600 * grace, _moment(expires))
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
    say(f"{token.id} ({token.role}) is revoked")


def _hand_over(token: tokens.Token, text: str) -> None:
    """Print the token alone on stdout, so that it can be piped into a secret store."""
    say(f"{token.id} ({token.role}); keep it, it cannot be shown again:", err=True)
    say(text)


def _moment(expires: str | None) -> float | None:
    """Return the end of a token, in seconds since 1970, for `--expires`."""
    if expires is None:
        return None
    if found := re.fullmatch(r"([0-9]{1,9})([hdw])", expires):
        return datetime.now(UTC).timestamp() + int(found[1]) * _SECONDS[found[2]]
    try:
        moment = datetime.fromisoformat(expires)
    except ValueError:
        raise InvalidInput(
            "--expires takes a duration (12h, 90d, 52w) or a date (2027-01-31, or "
            f"2027-01-31T18:00+01:00), got {expires!r}"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _times(token: tokens.Token, now: float) -> tuple[str, str, str, str]:
    """Return when a token was made and last used, its state, and when it ends or ended."""
    used = "-" if token.used is None else date.fromordinal(_EPOCH + token.used).isoformat()
    return (
        when(token.created),
        "not recorded" if token.role == "device" else used,
        token.state(now),
        _until(token),
    )


def _until(token: tokens.Token) -> str:
    end = token.expires if token.revoked is None else token.revoked
    return "" if end is None else when(end)
