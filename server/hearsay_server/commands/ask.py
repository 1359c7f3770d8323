"""`hearsay ask`: one command for each view of the catalogue, made from what the view declares."""

import shlex
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Annotated, Any

import typer
from rich.table import Table

from hearsay import Analyst
from hearsay.asking.answer import Answer
from hearsay.asking.views import catalogue
from hearsay.asking.views.catalogue import VIEWS
from hearsay.asking.views.options import Given
from hearsay.asking.views.view import View
from hearsay_server import tabular
from hearsay_server.commands import answered, connect, questions
from hearsay_server.commands.connect import DEFAULT_ADDRESS, Insecure, Target, Token
from hearsay_server.printing import Console, say
from ldp.errors import InvalidInput

app = typer.Typer(no_args_is_help=False, add_completion=False)


@app.callback(invoke_without_command=True)
def ask(
    context: typer.Context,
    listed: Annotated[
        str,
        typer.Option("--list", metavar="SURVEY", help="Say what can be asked of this survey."),
    ] = "",
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
) -> None:
    """Ask one question of a survey, and print, save or draw the answer."""
    if context.invoked_subcommand is not None:
        if listed:
            raise InvalidInput("--list names what can be asked: leave out the question")
        return
    if not listed:
        say(context.get_help())
        return
    with Analyst(target, tls=connect.tls(context), token=token, insecure=insecure) as analyst:
        survey = catalogue.survey_of(analyst.show_survey(listed))
    _list(survey)


def _list(survey: catalogue.Survey) -> None:
    """Print what can be asked of each attribute of a survey, and its names in all faces."""
    table = Table("attribute", "question", "on pages")
    for name in survey.attributes:
        for place, view in enumerate(survey.views(name)):
            table.add_row("" if place else name, _usage(view, survey.name, name), view.title)
        table.add_section()
    tabular.show(table)
    Console().print(
        f"hearsay ask QUESTION --help has the options of one. hearsay ask fit {survey.name} "
        "FORMULA explains one attribute by others. In Python: hearsay.Analyst, whose methods are "
        "named in each --help.",
        soft_wrap=True,
    )


def _usage(view: View, survey: str, attribute: str) -> str:
    needed = [f"[{questions.metavar(option)}]" for option in view.options if option.needed]
    return " ".join([view.name, survey, attribute, *needed])


def _command(view: View) -> Callable[..., None]:
    """Return the function of a view's command."""
    subject = typer.Argument(metavar=view.subject.upper(), help=f"The {view.subject}.")
    about = Parameter("subject", Parameter.KEYWORD_ONLY, annotation=Annotated[str, subject])
    table = typer.Option(help="With --csv: this table of the answer, not its first.")
    arguments = [
        questions.SURVEY,
        *([about] if view.subject else []),
        Parameter("table", Parameter.KEYWORD_ONLY, default="", annotation=Annotated[str, table]),
    ]

    def run(context: typer.Context, pairs: questions.Pairs, how: Any) -> None:
        as_csv, table = how["as_csv"], how["table"]
        if table and not as_csv:
            raise InvalidInput("--table is of --csv: without it all tables are printed")
        of = [("attribute", how["subject"])] if view.subject else []
        given = Given([*of, *pairs], view.options)

        def asked(analyst: Analyst) -> questions.Asked:
            return [(view, _completed(analyst, how["survey"], view, given))]

        def show(answers: Sequence[tuple[Answer, list[str]]]) -> None:
            for answer, notes in answers:
                answered.show(answer, notes, how["as_json"], as_csv, table)

        questions.ask(context, how, asked, show)

    return questions.command(run, arguments, view.options, polls=view.poll)


def _completed(analyst: Analyst, survey: str, view: View, given: Given) -> Given:
    """Return what is given, with what the survey suggests where an argument is left out.

    The command that asks for the same in full is printed to standard error.
    """
    needed = [option.name for option in view.options if option.needed]
    if all(map(given.many, needed)):
        return given
    shown = catalogue.survey_of(analyst.show_survey(survey))
    shown.check_attribute(given.attribute)
    completed = shown.completed(view, given)
    values = [value for name in needed for value in completed.many(name)]
    if values:
        line = ["hearsay", "ask", view.name, survey, given.attribute, *values]
        Console(stderr=True).print(f"asking: {shlex.join(line)}", soft_wrap=True)
    return completed


for _view in VIEWS.values():
    app.command(_view.name, help=_view.says, short_help=_view.says)(_command(_view))
