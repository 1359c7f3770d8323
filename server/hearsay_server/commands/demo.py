"""`hearsay demo`: play a survey through."""

from pathlib import Path
from typing import Annotated

import typer

from hearsay_server.printing import Console
from hearsay_server.surveys import survey as surveys
from ldp.errors import InvalidInput, needs

with needs("demo", "demo"):
    from hearsay_server.demo import play as playing
    from hearsay_server.demo import sources


def demo(
    csv_file: Annotated[
        Path | None, typer.Option("--csv", help="A table of your own, one respondent a row.")
    ] = None,
    survey: Annotated[
        Path | None, typer.Option(help="Its survey; attributes are named as the columns.")
    ] = None,
    plot: Annotated[Path, typer.Option(help="Where to save the plot.")] = Path("hearsay-demo.png"),
    data: Annotated[
        Path | None, typer.Option(help="Keep the server's data here instead of discarding it.")
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            help="Instead of the survey's: split, so that a record answers all and a model can "
            "be trained on it; or sample."
        ),
    ] = "",
    periods: Annotated[
        str,
        typer.Option(
            help="Of --csv: the column that says when somebody answers. Its values, numbers by "
            "number or dates by date, stand for the survey's last periods.",
        ),
    ] = "",
    seed: Annotated[
        int | None, typer.Option(help="Replay the same levels and coins: a simulation.")
    ] = None,
    stay: Annotated[
        bool, typer.Option("--stay", help="Keep serving at the end, until Ctrl-C.")
    ] = False,
) -> None:
    """Play a survey through: devices, server, analyst, and how close it came to the truth."""
    if (csv_file is None) != (survey is None):
        raise InvalidInput("--csv and --survey go together: give both or neither")
    if csv_file is not None and survey is not None:
        source = sources.from_csv(csv_file, surveys.from_file(survey), periods)
    elif periods:
        raise InvalidInput("--periods names a column of --csv")
    else:
        source = sources.redbook()
    if budget:
        source.survey.budget = budget
    playing.play(source, plot=plot, data=data, seed=seed, console=Console(), stay=stay)
