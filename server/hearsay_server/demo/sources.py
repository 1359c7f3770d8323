"""What the demo plays: a survey, and the true answers of every respondent, from a table."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd

import hearsay.plans.plan
from hearsay.plans import period
from hearsay.plans.kinds import Domain
from hearsay.v1 import survey_pb2
from hearsay_server.clock import system
from hearsay_server.demo.devices import Answer, Answers
from hearsay_server.demo.ordering import in_order
from hearsay_server.ingest.intake import GRACE
from hearsay_server.surveys import people
from hearsay_server.surveys import survey as surveys
from ldp.errors import InvalidInput, MissingExtra

_STUDENT = 1.0
"""The code of an occupation that is no job to rate."""


@dataclass(frozen=True)
class Source:
    """A survey, and every respondent's true answers, by attribute name."""

    title: str
    survey: survey_pb2.Survey
    respondents: Sequence[Answers]
    left_out: int = 0
    """The number of answers outside the survey's domains; they are withheld."""
    moments: Sequence[datetime] = ()
    """When each respondent answers; empty: now."""
    properties: Sequence[Mapping[str, str]] = ()
    """The public properties of each respondent's device; empty: none are given."""
    order: Mapping[str, str] = field(default_factory=dict)
    """The table's name of each period, in order, by the survey's name of it."""


def redbook() -> Source:
    """Load Fair's marriage survey of 1974 from the statsmodels package."""
    # The file alone: to import the package takes longer than a thousand devices.
    found = importlib.util.find_spec("statsmodels")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra(
            "the survey is in the package statsmodels: pip install 'hearsay-ldp[demo]'"
        )
    table = _asked(
        pd.read_csv(Path(found.submodule_search_locations[0]) / "datasets/fair/fair.csv")
    )
    text = resources.files("hearsay_server.demo").joinpath("redbook.toml").read_text("utf-8")
    survey = surveys.from_toml(text, "redbook.toml")
    title = f"Fair's marriage survey of 1974: {len(table):,} respondents"
    return _source(title, survey, table)


def _asked(fair: pd.DataFrame) -> pd.DataFrame:
    """Return Fair's table as the columns of redbook.toml; sets and ratings as `_answer` reads."""
    table = fair[["rate_marriage", "yrs_married", "age", "religious"]].copy()
    for name, count in (("affair", fair["affairs"]), ("children", fair["children"])):
        table[name] = np.where(count > 0, "yes", "no")
    years = {"high school": 12, "college": 14, "graduate school": 17}  # of education, at least
    table["schools"] = [
        ";".join(school for school, least in years.items() if of >= least) for of in fair["educ"]
    ]
    jobs = {"wife": fair["occupation"], "husband": fair["occupation_husb"]}
    table["jobs"] = [
        ";".join(f"{whose}={job[row]}" for whose, job in jobs.items() if job[row] > _STUDENT)
        for row in fair.index
    ]
    return table


def from_csv(
    file: Path, survey: survey_pb2.Survey, periods: str = "", now: datetime | None = None
) -> Source:
    """Load a table of one's own: comma-separated, the first line naming the columns.

    A column called "Hours per week" is the attribute hours_per_week, or the property of that name,
    which need not be there. The column `periods` says when a respondent answers: its values, in
    order (`in_order`), stand for the last periods of the survey that are over `now`, by default by
    the system's clock. Raises `InvalidInput` where the file cannot be read, lacks a column of the
    survey, or holds no answer to it, for values without an order, and where there are more periods
    than a server still takes reports of.
    """
    # Everything as text: whether "1" is a category or a number is for the survey to say.
    found = people.read(file)
    table = pd.DataFrame(dict(found.columns))
    if missing := [a.name for a in survey.attributes if a.name not in table.columns]:
        raise InvalidInput(
            f"{file} has no column {missing[0]!r}; its columns are {', '.join(table.columns)}"
        )
    title = f"{file.name}: {len(table):,} respondents"
    if not periods:
        return _source(title, survey, table)
    column = people.name_of(periods, 0)
    if column not in table.columns:
        raise InvalidInput(
            f"{file} has no column {periods!r}; its columns are {', '.join(table.columns)}"
        )
    place = f"{file}: column {found.headings[column]!r}"
    order, places = in_order(found.columns[column], found.rows, place)
    starts = _moments(len(order), survey.period, now or system())
    return replace(
        _source(title, survey, table, [starts[place] for place in places]),
        order={
            period.label(survey.period, start): name
            for start, name in zip(starts, order, strict=True)
        },
    )


def _moments(count: int, unit: str, now: datetime) -> list[datetime]:
    """Return the middles of the last so many periods that are over, in order."""
    if not unit:
        raise InvalidInput("the survey has no period: everybody answers it once, so leave it out")
    moments: list[datetime] = []
    begin = period.start(unit, period.label(unit, now))
    for _ in range(count):
        end = begin
        begin = period.start(unit, period.label(unit, end - timedelta(seconds=1)))
        moments.append(begin + (end - begin) / 2)
        if moments[-1] < now - GRACE:
            raise InvalidInput(
                f"there are {count:,} periods, and reports are taken for {GRACE.days} days: give "
                f"the survey a shorter period than {unit}, or the table fewer"
            )
    return moments[::-1]


def _source(
    title: str,
    survey: survey_pb2.Survey,
    table: pd.DataFrame,
    moments: Sequence[datetime] = (),
) -> Source:
    plan = hearsay.plans.plan.parse(surveys.resolve(survey))
    respondents: list[dict[str, Answer]] = [{} for _ in range(len(table))]
    left_out = 0
    for name, attribute in plan.attributes.items():
        for answers, cell in zip(respondents, table[name], strict=True):
            try:
                answer = _answer(attribute.domain, cell)
                attribute.domain.encode(answer)
            except ValueError:
                left_out += 1
            else:
                answers[name] = answer
    if not any(respondents):
        raise InvalidInput("the table holds no answer that has a place in the survey")
    kept = [number for number, answers in enumerate(respondents) if answers]
    return Source(
        title,
        survey,
        [respondents[number] for number in kept],
        left_out,
        [moments[number] for number in kept] if moments else [],
        [_properties(plan, table, number) for number in kept] if plan.properties else [],
    )


def _properties(
    plan: hearsay.plans.plan.Plan, table: pd.DataFrame, number: int
) -> Mapping[str, str]:
    """Return the declared values of public properties in a row of the table."""
    found = {}
    for each in plan.properties.declared:
        if each.name in table.columns:
            value = str(table[each.name].iloc[number]).strip()
            if value in each.values:
                found[each.name] = value
    return found


def _answer(domain: Domain, cell: object) -> Answer:
    """Return a cell as an answer: a text as `people.answer`, a whole float as its digits."""
    whole = isinstance(cell, float) and cell.is_integer()
    return people.answer(domain, str(int(cell)) if whole and isinstance(cell, float) else str(cell))
