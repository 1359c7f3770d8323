"""Words at the command line: `hearsay query --discover`, and surveys of words that were found."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import hearsay.plans.plan
from hearsay import Analyst, files
from hearsay.asking.texts import message, selected
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.commands import connect
from hearsay_server.commands.connect import DEFAULT_ADDRESS, Insecure, Target, Token
from hearsay_server.commands.selecting import First, Last, Level, Period, Where
from hearsay_server.commands.shown import warn
from hearsay_server.commands.writing import write_new
from hearsay_server.printing import Console, say
from hearsay_server.surveys import survey as surveys
from ldp.errors import InvalidInput, NotReady

_OTHERS = ("other", "any other", "none of these")
"""What the last value of a survey from words is called: the first that is none of the words."""


def ask(
    analyst: Analyst,
    survey: str,
    attribute: str,
    file: Path | None,
    top: int | None,
    confidence: float,
    selection: analyst_pb2.Selection,
) -> analyst_pb2.EstimateResponse:
    """Ask for the words in a file, or without one for frequent ones."""
    if top is not None and top < 1:
        raise InvalidInput(f"--top must be >= 1, got {top}")
    return analyst.query_words(
        analyst_pb2.WordsRequest(
            survey=survey,
            attribute=attribute,
            selection=selection,
            confidence=confidence,
            discover=file is None,
            top=top or 0,
            candidates=[] if file is None else listed(file),
        )
    )


def listed(file: Path) -> list[str]:
    """Return the words in a file, one a line; raise `InvalidInput` where it cannot be read."""
    words = [line.strip() for line in files.read(file).splitlines() if line.strip()]
    if not words:
        raise InvalidInput(f"{file} has no words: expected one a line")
    return words


def words_survey(
    context: typer.Context,
    survey: Annotated[str, typer.Argument(help="The survey whose words were collected.")],
    attribute: Annotated[str, typer.Argument(help="Its attribute of strings.")],
    name: Annotated[str, typer.Argument(help="The name of the new survey.")],
    top: Annotated[int, typer.Option(help="So many words at most.")] = 20,
    out: Annotated[
        Path | None, typer.Option(help="The survey file to write; by default it is printed.")
    ] = None,
    level: Level = None,
    period: Period = None,
    first: First = "",
    last: Last = "",
    where: Where = None,
    confidence: Annotated[float, typer.Option(help="That all words are real.")] = 0.95,
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
) -> None:
    """Write a survey whose values are the words that are found in another one, and "other".

    \b
      hearsay survey words terms word top_terms --out top_terms.toml
      hearsay survey create top_terms.toml
    """
    selection = message(selected(level, period, first, last, where=where))
    with Analyst(target, tls=connect.tls(context), token=token, insecure=insecure) as analyst:
        plan = hearsay.plans.plan.parse(analyst.show_survey(survey).plan)
        found = ask(analyst, survey, attribute, None, top, confidence, selection)
    warn(found.warning)
    if not found.rows:
        raise NotReady(f"no word of {attribute!r} is found yet: there is nothing to ask for")
    text = toml(plan, attribute, name, [row.label for row in found.rows])
    surveys.resolve(surveys.from_toml(text, f"the survey {name!r}"))
    if out is None:
        say(text, nl=False)
        return
    write_new(out, text)
    Console().print(f"{len(found.rows)} words of {survey} are the values of {name}, in {out}")


def toml(plan: Plan, attribute: str, name: str, words: Sequence[str]) -> str:
    """Return the file of a survey that asks for some words of another survey's attribute.

    It has the period and levels of that survey. What its app does is said in comments.
    """
    other = next(each for each in _OTHERS if each not in words)
    asked = plan.asked(attribute)
    levels = "".join(f"{level.name} = {level.epsilon!r}\n" for level in plan.levels.values())
    values = "".join(f"    {_text(word)},\n" for word in (*words, other))
    default = f"default_level = {_text(plan.default_level)}\n" if plan.default_level else ""
    return (
        f"# Words of {attribute!r} in the survey {plan.survey!r}, as `hearsay survey words` "
        "found them.\n"
        f"# The app reports {other!r} for a word that is not among the values: a device would "
        "report a random\n"
        "# value in its place. In Python:\n"
        f"#   values = AGREEMENT.domains[{_text(attribute)}]\n"
        f"#   client.record({attribute}=word if word in values else {_text(other)})\n"
        f"name = {_text(name)}\n"
        f"title = {_text(asked.title or plan.title)}\n"
        f"period = {_text(plan.period)}\n"
        f"{default}\n"
        f"[levels]\n{levels}\n"
        "[[attributes]]\n"
        f"name = {_text(attribute)}\n"
        f"title = {_text(asked.title)}\n"
        "[attributes.categorical]\n"
        f"values = [\n{values}]\n"
    )


def _text(text: str) -> str:
    """Return a text as TOML has it."""
    return json.dumps(text, ensure_ascii=False)
