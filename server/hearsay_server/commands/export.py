"""`hearsay export`: rows in files of Parquet."""

from typing import Annotated

import typer

from hearsay import Analyst
from hearsay.asking.texts import selected
from hearsay_server.commands import connect
from hearsay_server.commands.answered import warn
from hearsay_server.commands.connect import DEFAULT_ADDRESS, Insecure, Target, Token
from hearsay_server.commands.selecting import First, Level, Period
from hearsay_server.printing import Console
from ldp.errors import needs


def export(
    context: typer.Context,
    survey: Annotated[str, typer.Argument(help="The survey's name.")],
    to: Annotated[str, typer.Option("--to", help="A new folder: a path, or a URI of a store.")],
    since: Annotated[
        str | None,
        typer.Option(help="Write only periods that changed since this earlier export, a folder."),
    ] = None,
    level: Level = None,
    period: Period = None,
    first: First = "",
    last: Annotated[str, typer.Option("--until", help="Only this period and earlier ones.")] = "",
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
) -> None:
    """Write the randomised rows as Parquet, each period in files of its own."""
    with needs("exporting", "export"):
        from hearsay_server.answers.export import export as write
        from hearsay_server.answers.folders import without_credentials

    chosen = selected(level, period, first, last)
    with Analyst(target, tls=connect.tls(context), token=token, insecure=insecure) as analyst:
        done = write(analyst, survey, to, since=since, **chosen)
    if done.kept:
        warn(
            f"the server has dropped rows of {len(done.kept)} periods since, "
            f"{done.kept[0]} to {done.kept[-1]}: they stay as exported before"
        )
    Console().print(f"{done.rows:,} rows of {survey} are in {without_credentials(to)}")
