"""`hearsay query`: estimates of one attribute, of some, or of all that a survey asks."""

from collections.abc import Sequence
from dataclasses import replace
from inspect import Parameter
from typing import Annotated, Any

import typer

from hearsay import Analyst
from hearsay.asking.answer import Answer
from hearsay.asking.views import catalogue
from hearsay.asking.views.catalogue import VIEWS
from hearsay.asking.views.estimates import BY
from hearsay.asking.views.options import Given
from hearsay_server.commands import answered, questions
from hearsay_server.commands.answered import warn
from ldp.errors import InvalidInput

_OPTIONS = (replace(BY, needed=False), *VIEWS["estimate"].options)

_ATTRIBUTES = Parameter(
    "attributes",
    Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        list[str] | None,
        typer.Argument(help="Attributes; without any, all that have reports."),
    ],
)


def _query(context: typer.Context, pairs: questions.Pairs, how: Any) -> None:
    survey, named = how["survey"], how["attributes"] or []
    view = VIEWS["by" if any(name == BY.name for name, _ in pairs) else "estimate"]

    def asked(analyst: Analyst) -> questions.Asked:
        names = named or _with_reports(catalogue.survey_of(analyst.show_survey(survey)))
        return [(view, Given([("attribute", name), *pairs], view.options)) for name in names]

    def show(answers: Sequence[tuple[Answer, list[str]]]) -> None:
        if how["as_csv"]:
            answered.show_rows([answer for answer, _ in answers])
        elif how["as_json"] and len(named) != 1:
            answered.show_all([answer for answer, _ in answers])
        else:
            for answer, notes in answers:
                answered.show(answer, notes, how["as_json"], several=len(answers) > 1)

    questions.ask(context, how, asked, show)


def _with_reports(survey: catalogue.Survey) -> list[str]:
    """Return the attributes that have reports, in the survey's order; all where none has any.

    Attributes of strings are left out: their words are another question.
    """
    estimate = VIEWS["estimate"]
    names = [name for name in survey.attributes if estimate in survey.views(name)]
    left = [name for name in survey.attributes if name not in names]
    if left:
        asked = f"hearsay ask words {survey.name} {left[0]}"
        if not names:
            raise InvalidInput(f"{survey.name!r} asks for words, which have no estimates: {asked}")
        warn(f"{', '.join(left)}: words are another question: {asked}")
    return [name for name in names if survey.reports[name]] or names


query = questions.command(_query, [questions.SURVEY, _ATTRIBUTES], _OPTIONS)
query.__doc__ = """Ask for attributes' debiased frequencies, or means, with their errors.

    Without an attribute, all of them are asked for. What else can be asked, such as changes,
    tables of two attributes and distributions, `hearsay ask --list SURVEY` says.
    """
