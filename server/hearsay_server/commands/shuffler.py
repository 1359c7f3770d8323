"""`hearsay shuffler`: run a shuffler, and look at what it holds."""

from asyncio import Runner
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from hearsay.plans.plan import parse
from hearsay.sealed.keys import fingerprint
from hearsay_server import at_rest, config, private, tabular
from hearsay_server.commands.local import ConfigFile, EncryptionKey
from hearsay_server.commands.serve import announce, warn_of_file, with_an_option_for_every_key
from hearsay_server.printing import Console, headed, say
from hearsay_server.serving import logs
from hearsay_server.shuffler import pools

app = typer.Typer(
    help="Run a shuffler of sealed records, and look at what it holds.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("serve")
@with_an_option_for_every_key(config.ShufflerConfig)
def serve_shuffler(config_file: ConfigFile = None, **flags: object) -> None:
    """Run a shuffler until SIGTERM or Ctrl-C.

    Each option is also a key of the TOML file and, in capitals after HEARSAY_, a variable.
    """
    from hearsay_server.shuffler import serve

    setup = config.read(config.ShufflerConfig, config_file, flags)
    logs.configure(setup.log_format, setup.log_level)
    warn_of_file(type(setup), config_file)
    with Runner() as runner:
        runner.run(serve.serve(setup, announce))


@app.command("key")
def key(
    data: Annotated[Path, typer.Option(help="The shuffler's folder.")] = Path("hearsay-shuffler"),
    new: Annotated[
        bool, typer.Option("--new", help="Make a key first; the last one before works on.")
    ] = False,
    encryption_key: EncryptionKey = None,
) -> None:
    """Print the key for requests by way of a relay, and make it first if there is none.

    An app gives it as shuffler_key. The shuffler takes the newest two.
    """
    if new or not private.is_there(data / "pools.db") or not pools.look_for_keys(data):
        made = pools.Pools(data, at_rest.read(encryption_key, data))
        try:
            made.new_key()
        finally:
            made.close()
    say(pools.look_for_keys(data)[0].hex())


@app.command("show")
def show(
    data: Annotated[Path, typer.Option(help="The shuffler's folder.")] = Path("hearsay-shuffler"),
) -> None:
    """Show the surveys that a shuffler knows, and how many records of each period it holds."""
    found, plans = pools.look(data)
    console = Console()
    for survey, frozen in plans.items():
        plan = parse(frozen)
        assert plan.sealing is not None
        console.print(headed(survey, f": revision {plan.revision.hex()[:12]}"))
        console.print(f"  keys {fingerprint(plan.sealing)}")
        console.print(f"  a period leaves with {plan.sealing.least:,} records or more")
    if not plans:
        console.print("no records have come yet")
    table = Table("survey", "period")
    for heading in ("gather", "on their way", "forwarded", "dropped"):
        table.add_column(heading, justify="right")
    for pool in found:
        counts = (pool.gathering, pool.leaving, pool.forwarded, pool.dropped)
        table.add_row(pool.survey, pool.period, *(f"{count:,}" for count in counts))
    if found:
        tabular.show(table)
