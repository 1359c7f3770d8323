"""`hearsay survey words`: a survey of the words that were found in another one."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import hearsay.plans.plan
from hearsay import Analyst
from hearsay.asking.selection import quietly
from hearsay.asking.texts import selected
from hearsay.plans.plan import Plan
from hearsay_server.commands import connect
from hearsay_server.commands.answered import warn_of
from hearsay_server.commands.connect import DEFAULT_ADDRESS, Insecure, Target, Token
from hearsay_server.commands.selecting import First, Last, Level, Period, Where
from hearsay_server.commands.writing import write_new
from hearsay_server.printing import Console, say
from hearsay_server.surveys import survey as surveys
from ldp.errors import NotReady

_OTHERS = ("other", "any other", "none of these")
"""What the last value of a survey from words is called: the first that is none of the words."""


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
    chosen = selected(level, period, first, last, where=where)
    with (
        quietly(),
        Analyst(target, tls=connect.tls(context), token=token, insecure=insecure) as analyst,
    ):
        plan = hearsay.plans.plan.parse(analyst.show_survey(survey).plan)
        found = analyst.heavy_hitters(survey, attribute, top=top, confidence=confidence, **chosen)
    warn_of(found)
    words = [str(word) for word in found.table().index[0].labels]
    if not words:
        raise NotReady(f"no word of {attribute!r} is found yet: there is nothing to ask for")
    text = toml(plan, attribute, name, words)
    surveys.resolve(surveys.from_toml(text, f"the survey {name!r}"))
    if out is None:
        say(text, nl=False)
        return
    write_new(out, text)
    Console().print(f"{len(words)} words of {survey} are the values of {name}, in {out}")


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
