"""Commands made from what views declare: their options, and how questions are asked."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

from hearsay import Analyst, files
from hearsay.asking.answer import Answer
from hearsay.asking.selection import quietly
from hearsay.asking.views.options import SELECTION, Given, Option
from hearsay.asking.views.view import View
from hearsay_server.commands import connect, plotting
from hearsay_server.commands.connect import DEFAULT_ADDRESS, AsJson, Insecure, Target, Token
from ldp.errors import InvalidInput

Pairs = Sequence[tuple[str, str]]
"""Options by name, as `Given` takes them."""

SURVEY = Parameter(
    "survey",
    Parameter.KEYWORD_ONLY,
    annotation=Annotated[str, typer.Argument(help="The survey's name.")],
)

Asked = Sequence[tuple[View, Given]]
"""Questions by their views, with what is given of the options of each."""

_MANY = {"levels", "periods", "maps", "values", "table"}
"""Kinds of options that are given once for each value."""

_REPEATED = {"where", "sum", "quantile"}
"""Options besides that are."""

_LEAST = 0.1
"""Seconds between two questions of --watch, at least."""

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
    "words": "FILE",
}


def metavar(option: Option) -> str:
    """Return what the value of an option is called in a command's help."""
    return _METAVARS.get(option.kind, option.name.upper())


def parameter(option: Option) -> Parameter:
    """Return an option as the parameter of a command: texts, which the view reads."""
    words = option.says or option.label + (f", such as {option.hint}" if option.hint else "")
    words += f": {', '.join(option.choices)}" if option.choices else ""
    two = option.kind in ("pair", "two periods")
    many = option.kind in _MANY or option.name in _REPEATED
    end = "" if words.endswith("?") and not many else "."
    details: dict[str, Any] = {"help": f"{words}{'; repeatable' if many else ''}{end}"}
    if option.kind != "flag":
        details["metavar"] = metavar(option)
    kind: Any = str
    if two:
        kind = tuple[str, str]
    elif option.kind == "table":
        kind = list[Path]
    elif option.kind == "words":
        kind = Path
    elif many:
        kind = list[str]
    elif option.kind == "flag":
        kind = bool
    panel = "Which reports" if option in SELECTION else "Options"
    annotation: Any
    default: Any = False if option.kind == "flag" else None
    if option.needed:
        annotation = Annotated[kind | None, typer.Argument(**details)]
    else:
        given = typer.Option(f"--{option.name}", rich_help_panel=panel, **details)
        annotation = Annotated[kind if kind is bool else kind | None, given]
    name = option.name.replace("-", "_")
    name = f"{name}_" if name in ("from",) else name
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _output(
    context: typer.Context,
    *,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    plot: plotting.Plot = None,
    watch: Annotated[
        float | None,
        typer.Option(help="Ask again every so many seconds, and print what changed."),
    ] = None,
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
) -> None:
    """Have the parameters of all commands that ask questions."""


def command(
    run: Callable[[typer.Context, Pairs, Mapping[str, Any]], None],
    parameters: Sequence[Parameter],
    options: Iterable[Option],
    polls: bool = True,
) -> Callable[..., None]:
    """Return the function of a command: its own parameters, these options, and `_output`'s, without
    --watch unless it `polls`.

    It calls `run` with the options that are given, and with the values of the other parameters.
    """
    made = {option.name: parameter(option) for option in options}
    output = Signature.from_callable(_output).parameters.values()
    ordered = [*parameters, *made.values(), *(p for p in output if polls or p.name != "watch")]
    ordered = [each.replace(kind=Parameter.POSITIONAL_OR_KEYWORD) for each in ordered]
    ordered.sort(key=lambda each: each.default is not Parameter.empty)  # keeps their order else

    def called(context: typer.Context, **how: Any) -> None:
        pairs = [(name, text) for name, each in made.items() for text in _texts(how.pop(each.name))]
        run(context, pairs, how)

    called.__signature__ = Signature(ordered)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in ordered}
    return called


def _texts(value: Any) -> list[str]:
    """Return what was given of an option, as a page's address has it."""
    if value is None or value is False:
        return []
    if value is True:
        return ["1"]
    several = value if isinstance(value, list | tuple) else [value]
    return [files.read(each) if isinstance(each, Path) else each for each in several]


def ask(
    context: typer.Context,
    how: Mapping[str, Any],
    asked: Callable[[Analyst], Asked],
    show: Callable[[Sequence[tuple[Answer, list[str]]]], None],
) -> None:
    """Ask questions, and show their answers with what there is to say beside them.

    `how` has the survey, and the values of the parameters of `_output`; `asked` returns the
    questions, which may depend on the survey. With --watch they are asked again and again, and
    shown where an answer changed.
    """
    survey, plot, watch = how["survey"], how["plot"], how.get("watch")
    if how["as_json"] and how["as_csv"]:
        raise InvalidInput("choose one of --json and --csv")
    if watch is not None and plot is not None:
        raise InvalidInput("--watch does not draw: leave out --plot")
    if plot is not None:
        plotting.check(plot)
    target, insecure, token = how["target"], how["insecure"], how["token"]
    with (
        quietly(),
        Analyst(target, tls=connect.tls(context), token=token, insecure=insecure) as analyst,
    ):
        questions = asked(analyst)
        before: list[str] = []
        for _ in _times(watch):
            answers = [view.question(survey, given).ask(analyst) for view, given in questions]
            now = [] if watch is None else [answer.to_json() for answer in answers]
            if watch is None or now != before:
                each = zip(questions, answers, strict=True)
                show([(answer, view.notes(answer)) for (view, _), answer in each])
            before = now
        if plot is not None:
            drawn = [
                view.pictured(analyst, survey, given, answer)
                for (view, given), answer in zip(questions, answers, strict=True)
            ]
            plotting.draw([answer for each in drawn for answer in each], plot)


def _times(watch: float | None) -> Iterator[None]:
    """Yield once, or again and again, so many seconds after each other."""
    yield
    while watch is not None:
        time.sleep(max(watch, _LEAST))
        yield
