"""`hearsay ask`: one command for each view of the catalogue, made from what the view declares."""

import time
from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from hearsay import Analyst, files
from hearsay.asking.selection import quietly
from hearsay.asking.views import catalogue
from hearsay.asking.views.catalogue import VIEWS
from hearsay.asking.views.options import SELECTION, Given, Option
from hearsay.asking.views.view import View
from hearsay_server import tabular
from hearsay_server.commands import answered, connect, plotting
from hearsay_server.commands.connect import DEFAULT_ADDRESS, AsJson, Insecure, Target, Token
from hearsay_server.printing import Console, say
from ldp.errors import InvalidInput

_MANY = {"levels", "periods", "maps", "values", "table"}
"""Kinds of options that are given once for each value."""

_REPEATED = {"where", "sum", "quantile"}
"""Options besides that are."""

_LEAST = 0.1
"""Seconds between two questions of --watch, at least."""

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
    return " ".join([view.name, survey, attribute, *map(_metavar, _needed(view))])


def _needed(view: View) -> list[Option]:
    return [option for option in view.options if option.needed]


_METAVARS = {
    "two periods": "FIRST SECOND",
    "pair": "LOW HIGH",
    "levels": "LEVEL",
    "periods": "PERIOD",
    "period": "PERIOD",
    "maps": "MAP",
    "other": "OTHER",
    "by": "BY",
    "parts": "PARTS",
    "values": "VALUE",
    "choice": "NAME",
    "number": "NUMBER",
    "whole": "NUMBER",
    "table": "FILE",
}


def _metavar(option: Option) -> str:
    return _METAVARS.get(option.kind, option.name.upper())


def _parameter(option: Option) -> Parameter:
    """Return an option as the parameter of a command: texts, which the view reads."""
    words = option.label + (f", such as {option.hint}" if option.hint else "")
    if option.kind == "table":  # which a page takes from a field, and a command from a file
        words = option.label.partition(",")[0]
    words += f": {', '.join(option.choices)}" if option.choices else ""
    two = option.kind in ("pair", "two periods")
    many = option.kind in _MANY or option.name in _REPEATED
    end = "" if words.endswith("?") and not many else "."
    details: dict[str, Any] = {"help": f"{words}{'; repeatable' if many else ''}{end}"}
    if option.kind != "flag":
        details["metavar"] = _metavar(option)
    kind: Any = str
    if two:
        kind = tuple[str, str]
    elif option.kind == "table":
        kind = list[Path]
    elif many:
        kind = list[str]
    elif option.kind == "flag":
        kind = bool
    panel = "Which reports" if option in SELECTION else "Options"
    annotation: Any
    default: Any = False if option.kind == "flag" else None
    if option.needed:
        annotation, default = Annotated[kind, typer.Argument(**details)], Parameter.empty
    else:
        given = typer.Option(f"--{option.name}", rich_help_panel=panel, **details)
        annotation = Annotated[kind if kind is bool else kind | None, given]
    name = option.name.replace("-", "_")
    name = f"{name}_" if name in ("from",) else name
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _command(view: View) -> Callable[..., None]:
    """Return the function of a view's command, whose parameters are the view's options."""
    parameters = {option.name: _parameter(option) for option in view.options}

    def run(context: typer.Context, **given: Any) -> None:
        pairs = [("attribute", given["subject"])]
        for name, parameter in parameters.items():
            pairs += [(name, text) for text in _texts(given[parameter.name])]
        _ask(context, view, given["survey"], Given(pairs, view.options), given)

    def common(
        context: typer.Context,
        *,
        survey: Annotated[str, typer.Argument(help="The survey's name.")],
        subject: Annotated[
            str,
            typer.Argument(metavar=view.subject.upper(), help=f"The {view.subject}."),
        ],
        as_json: AsJson = False,
        as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
        table: Annotated[
            str, typer.Option(help="With --csv: this table of the answer, not its first.")
        ] = "",
        plot: plotting.Plot = None,
        watch: Annotated[
            float | None,
            typer.Option(help="Ask again every so many seconds, and print what changed."),
        ] = None,
        target: Target = DEFAULT_ADDRESS,
        insecure: Insecure = False,
        token: Token = None,
    ) -> None: ...

    beside = Signature.from_callable(common).parameters
    names = ("context", "survey", "subject")
    ordered = [beside[name] for name in names]
    needed = {option.name for option in _needed(view)}
    ordered += [each for name, each in parameters.items() if name in needed]
    ordered += [each for name, each in parameters.items() if name not in needed]
    ordered += [each for name, each in beside.items() if name not in names]
    ordered = [each.replace(kind=Parameter.POSITIONAL_OR_KEYWORD) for each in ordered]
    ordered.sort(key=lambda each: each.default is not Parameter.empty)
    run.__signature__ = Signature(ordered)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in ordered}
    return run


def _texts(value: Any) -> list[str]:
    """Return what was given of an option, as a page's address has it."""
    if value is None or value is False:
        return []
    if value is True:
        return ["1"]
    several = value if isinstance(value, list | tuple) else [value]
    return [files.read(each) if isinstance(each, Path) else each for each in several]


def _ask(context: typer.Context, view: View, survey: str, given: Given, how: Any) -> None:
    as_json, as_csv, plot, watch = (how[name] for name in ("as_json", "as_csv", "plot", "watch"))
    if as_json and as_csv:
        raise InvalidInput("choose one of --json and --csv")
    if how["table"] and not as_csv:
        raise InvalidInput("--table is of --csv: without it all tables are printed")
    if watch is not None and (plot is not None or not view.poll):
        raise InvalidInput(
            "--watch does not draw: leave out --plot"
            if plot is not None
            else f"{view.name} makes the server read all the reports: ask it without --watch"
        )
    if plot is not None:
        plotting.check(plot)
    question = view.question(survey, given)
    target, insecure, token = how["target"], how["insecure"], how["token"]
    with (
        quietly(),
        Analyst(target, tls=connect.tls(context), token=token, insecure=insecure) as analyst,
    ):
        asked = (question.ask(analyst) for _ in _times(watch))
        before = ""
        for answer in asked:
            if watch is None or before != (before := answer.to_json()):
                answered.show(answer, view.notes(answer), as_json, as_csv, how["table"])
        if plot is not None:
            plotting.draw(view.pictured(analyst, survey, given, answer), plot)


def _times(watch: float | None) -> Iterator[None]:
    """Yield once, or again and again, so many seconds after each other."""
    yield
    while watch is not None:
        time.sleep(max(watch, _LEAST))
        yield


for _view in VIEWS.values():
    app.command(_view.name, help=_view.says, short_help=_view.says)(_command(_view))
