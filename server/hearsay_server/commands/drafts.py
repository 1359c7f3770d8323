"""`hearsay survey init` and `check`: a survey from a table, and a table against a survey."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

import hearsay.plans.plan
from hearsay_server import tabular
from hearsay_server.commands.connect import AsJson
from hearsay_server.commands.writing import opened_new
from hearsay_server.printing import Console, say, say_json
from hearsay_server.surveys import drafting, fitting, guessing, people
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.fitting import Fit
from hearsay_server.wrapping import print_wrapped
from ldp import InvalidInput

_Data = Annotated[
    Path, typer.Argument(help="A table as CSV: a row a person, the first row names the columns.")
]


def survey_init(
    data: _Data,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the survey; DATA's name with .toml.")
    ] = None,
    name: Annotated[str, typer.Option(help="The survey's name; DATA's if not given.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write a survey guessed from a table, and say what was guessed and why.

    Values and ranges come from the rows. Read the file before you register it.
    """
    stem = data.name.split(".")[0]
    name = name or people.name_of(stem, 1)
    out = out or Path(f"{name}.toml")
    if out.exists() and not force:
        raise InvalidInput(f"{out} exists: give another name by --out, or --force to replace it")
    draft = guessing.guess(people.read(data), name)
    text = drafting.toml(draft)
    surveys.resolve(surveys.from_toml(text, str(out)))  # refused before anything is written
    with opened_new(out, "w" if force else "x") as file:
        file.write(text)
    console = Console()
    for line in drafting.lines(draft):
        print_wrapped(line, console)
    for line in drafting.warnings(draft):
        console.print()
        print_wrapped(line, console)
    console.print()
    print_wrapped(
        f"{out} asks {len(draft.asked)} questions of {draft.rows:,} rows' "
        f"{len(draft.guesses)} columns. Next, read it, and then:",
        console,
    )
    say(f"  hearsay survey explain {out} --users {draft.rows}")


def survey_check(
    file: Annotated[Path, typer.Argument(help="The survey, as TOML.")],
    data: _Data,
    first: Annotated[
        int, typer.Option(min=0, help="Cells of a column that are listed one by one.")
    ] = 5,
    as_json: AsJson = False,
) -> None:
    """Compare a table with a survey: which cells are no answers, where, and why.

    Exits with 1 where a column is missing, or a cell is neither an answer nor blank. A device would
    report a random value in its place, and `hearsay demo` withhold it.
    """
    plan = hearsay.plans.plan.parse(surveys.resolve(surveys.from_file(file)))
    fit = fitting.fit(plan, people.read(data), None if as_json else first)
    if as_json:
        say_json(asdict(fit) | {"fits": fit.fits})
    else:
        _show(fit, file, data, first, Console())
    if not fit.fits:
        raise typer.Exit(1)


def _show(fit: Fit, file: Path, data: Path, first: int, console: Console) -> None:
    table = Table("attribute")
    for heading in ("answers", "of them moved", "blank", "does not fit"):
        table.add_column(heading, justify="right", no_wrap=True)
    for column in fit.columns:
        counts = (column.answers, column.moved, column.blanks, column.wrong)
        table.add_row(column.attribute, *(f"{count:,}" for count in counts))
    tabular.show(table)
    if any(column.moved for column in fit.columns):
        print_wrapped(
            "Moved: outside the range, and counted as its nearer end; or larger than at_most, of "
            "which a random part counts.",
            console,
        )
    if any(column.blanks for column in fit.columns):
        print_wrapped("Blank cells are withheld, as where an app leaves an answer out.", console)
    for name in fit.missing:
        print_wrapped(f"missing: the table has no column {name!r}", console)
    if fit.unused:
        print_wrapped(f"not asked: {', '.join(map(repr, fit.unused))}", console)
    for column in fit.columns:
        for cell in column.misfits:
            print_wrapped(
                f"{cell.attribute}, row {cell.row}: {cell.value!r} {cell.reason}", console
            )
        if column.wrong > first:
            print_wrapped(
                f"{column.attribute}: {column.wrong - first:,} more; --first N lists more, "
                "--json all",
                console,
            )
    if fit.fits:
        print_wrapped(f"All {fit.rows:,} rows of {data} fit {file}.", console)
        return
    many = "1 column is" if len(fit.missing) == 1 else f"{len(fit.missing)} columns are"
    missing = f"{many} missing, and " if fit.missing else ""
    wrong = "1 cell is no answer" if fit.wrong == 1 else f"{fit.wrong:,} cells are no answers"
    print_wrapped(
        f"{data} does not fit {file}: {missing}{wrong}. A "
        "device reports a random value in the place of each.",
        console,
    )
