"""`hearsay helper`: run the second of two servers, and look at its key and at what it holds."""

from asyncio import Runner
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from hearsay.federated.parsing import parse as parse_training
from hearsay.plans.plan import parse
from hearsay.sealed import shares
from hearsay_server import at_rest, config, private, tabular
from hearsay_server.commands.local import ConfigFile, EncryptionKey
from hearsay_server.commands.serve import announce, warn_of_file, with_an_option_for_every_key
from hearsay_server.helper import held
from hearsay_server.printing import Console, headed, say
from hearsay_server.serving import logs
from hearsay_server.wrapping import print_wrapped

app = typer.Typer(
    help="Run the helper of surveys with two servers, and look at its key and what it holds.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command("serve")
@with_an_option_for_every_key(config.HelperConfig)
def serve_helper(config_file: ConfigFile = None, **flags: object) -> None:
    """Run a helper until SIGTERM or Ctrl-C.

    Each option is also a key of the TOML file and, in capitals after HEARSAY_, a variable.
    """
    from hearsay_server.helper import serve

    setup = config.read(config.HelperConfig, config_file, flags)
    logs.configure(setup.log_format, setup.log_level)
    warn_of_file(type(setup), config_file)
    with Runner() as runner:
        runner.run(serve.serve(setup, announce))


@app.command("key")
def key(
    data: Annotated[Path, typer.Option(help="The helper's folder.")] = Path("hearsay-helper"),
    encryption_key: EncryptionKey = None,
) -> None:
    """Print the helper's public key, and make it first if there is none: before it serves."""
    if not private.is_there(data / "shares.db"):
        made = held.Shares(data, at_rest.read(encryption_key, data))
        made.close()
    say(held.look(data)[0])


@app.command("show")
def show(
    data: Annotated[Path, typer.Option(help="The helper's folder.")] = Path("hearsay-helper"),
) -> None:
    """Show a helper's key, its surveys and trainings, and what waits or was summed."""
    public, found, plans, trainings = held.look(data)
    console = Console()
    console.print(f"key {public}", soft_wrap=True)
    for survey, frozen in plans.items():
        plan = parse(frozen)
        console.print(headed(survey, f": revision {plan.revision.hex()[:12]}"))
        print_wrapped(f"  a sum is of {shares.of(plan).least:,} records or more", console)
    for name, frozen in trainings.items():
        training = parse_training(frozen)
        console.print(headed(name, f": revision {training.revision.hex()[:12]}"))
        print_wrapped(f"  a sum is of {training.min_updates:,} updates or more", console)
    if not plans and not trainings:
        console.print("no shares have come yet")
    table = Table("survey", "period or round")
    for heading in ("wait", "summed", "sums"):
        table.add_column(heading, justify="right")
    for each in found:
        counts = (each.waiting, each.summed, each.sums)
        table.add_row(each.survey, each.period, *(f"{count:,}" for count in counts))
    if found:
        tabular.show(table)
