"""What a survey's page says of its plan: levels, costs, and how the page's scripts read it."""

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hearsay.agreement import Agreement
from hearsay.plans.kinds import Binned, ByKind, Categorical, Numeric, Ratings, SetOf, Strings
from hearsay.plans.plan import Level, Plan
from hearsay_server.pages.person.chances import factor, of_many
from hearsay_server.pages.person.odds import odds
from hearsay_server.pages.person.sentences import Odds
from hearsay_server.storage.public import PublicSurvey
from hearsay_server.surveys.agreements import for_typescript
from hearsay_server.surveys.over_time import A_YEAR
from hearsay_server.surveys.readings import labels, reading, regions
from ldp.core.exact import ONE
from ldp.planning.composition import DELTA, optimal

UNITS = {
    "": "once",
    "PT1H": "once an hour",
    "P1D": "once a day",
    "P1W": "once a week",
    "P1M": "once a month",
    "P1Y": "once a year",
}
"""How often a person answers, by the survey's period."""


@dataclass(frozen=True)
class Asking:
    """What is sent for one question at a level: its title and odds, and by map if it has any."""

    title: str
    chance: str
    """How often a record reports the question, in words; "" where always."""
    memo: float
    """The epsilon of an answer that the device keeps and repeats; 0 where each report is new."""
    by_map: tuple[tuple[str, Odds], ...]


@dataclass(frozen=True)
class LevelFacts:
    """One level in words: the epsilon of a record, by how much that changes odds, and the odds."""

    name: str
    epsilon: float
    factor: str
    year: float
    """The most epsilon of all records of a year (of ten, where a person answers once a year)."""
    year_composed: float | None
    """The same but for a probability of `DELTA`; None where memos are kept."""
    questions: tuple[Asking, ...]
    reveals: bool
    """Whether a report may reveal some values, for which the factor does not hold."""
    keeps: bool
    """Whether some answers are kept and repeated, for which it does not hold over time."""


@dataclass(frozen=True)
class Field:
    """One question of the form: its title, and what may be answered."""

    name: str
    title: str
    kind: str
    """"one", "several", "ratings", "number" or "word"."""
    values: tuple[str, ...]
    low: float
    high: float
    step: str
    most: int
    clamps: bool = False
    """Whether a number outside the range counts as the nearer end."""
    maps: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """By name, the answers that are protected of those who choose a map: others may be revealed."""


def levels(plan: Plan) -> tuple[LevelFacts, ...]:
    """Return the facts of all levels, in order of epsilon."""
    return tuple(_level(plan, level) for level in plan.levels.values())


def times_a_year(plan: Plan) -> int:
    """Return how many records the costs of a year are of: 1 where a person answers once."""
    return A_YEAR.get(plan.period, 1)


def _level(plan: Plan, level: Level) -> LevelFacts:
    times = times_a_year(plan)
    # Of a memoised answer that changes each time, each report may cost a memo.
    memo = max(1.0, *(each.memo for each in plan.attributes.values()))
    composed = (
        optimal(level.epsilon, times, DELTA).epsilon
        if not any(a.memo for a in plan.attributes.values())
        else None
    )
    return LevelFacts(
        level.name,
        level.epsilon,
        factor(level.epsilon),
        level.epsilon * times * memo,
        composed,
        tuple(_asking(plan, level, name, position) for position, name in enumerate(plan.questions)),
        any(_reveals(level, name) for name in plan.questions),
        any(each.memo for each in plan.attributes.values()),
    )


def _reveals(level: Level, question: str) -> bool:
    return any(each.guarantee != "pure" for each in level.by_map[question].values())


def _asking(plan: Plan, level: Level, name: str, position: int) -> Asking:
    question = plan.questions[name]
    chance = level.budget.chances[position]
    memoizer = plan.memoizer(level.name, name)
    by_map = []
    for chosen, mechanism in level.by_map[name].items():
        by_map.append((chosen, odds(question.domain.chosen(chosen), mechanism)))
    return Asking(
        question.title or name,
        "" if chance >= ONE else of_many(Fraction(chance, ONE))[0],
        memoizer.epsilon if memoizer else 0.0,
        tuple(by_map),
    )


def fields(plan: Plan) -> list[Field]:
    """Return the form's questions, in the survey's order."""
    return [
        _FIELDS[attribute.domain](name, attribute.title or name, attribute.domain)
        for name, attribute in plan.attributes.items()
    ]


def asked_here(plan: Plan) -> list[Field]:
    """Return the questions that a browser may answer on the page: those without a memo, since it
    cannot be known whether its memos were lost."""
    return [field for field in fields(plan) if not plan.attributes[field.name].memo]


def may_reveal(plan: Plan) -> list[tuple[str, tuple[str, ...], str]]:
    """Return the questions of which a report may reveal an answer at some level without a map, by
    their titles, with those answers; without any where it depends on how much answers differ. Of
    a number with the protected regions: a report may tell that it is in none of them."""
    found: list[tuple[str, tuple[str, ...], str]] = []
    for name, question in plan.questions.items():
        if any(level.mechanisms[name].guarantee != "pure" for level in plan.levels.values()):
            domain = question.domain
            outside = regions(domain) if isinstance(domain, Numeric) else ""
            found.append((question.title or name, () if outside else domain.ordinary, outside))
    return found


def _of_values(name: str, title: str, domain: Categorical) -> Field:
    return Field(name, title, "one", domain.values, 0, 0, "", 1, maps=domain.maps)


def _of_number(name: str, title: str, domain: Numeric | Binned) -> Field:
    step = f"{domain.step:g}" if domain.step else "any"
    return Field(name, title, "number", (), domain.low, domain.high, step, 1, domain.clamp)


def _of_items(name: str, title: str, domain: SetOf) -> Field:
    return Field(name, title, "several", domain.values, 0, 0, "", domain.most)


def _of_ratings(name: str, title: str, domain: Ratings) -> Field:
    return Field(name, title, "ratings", domain.keys, domain.low, domain.high, "any", domain.most)


def _of_word(name: str, title: str, domain: Strings) -> Field:
    return Field(name, title, "word", domain.candidates, 0, 0, "", domain.longest)


_FIELDS: ByKind[Callable[[str, str, Any], Field]] = ByKind(
    category=_of_values,
    number=_of_number,
    bins=_of_number,
    set=_of_items,
    ratings=_of_ratings,
    words=_of_word,
    grid=_of_values,
)


def for_scripts(survey: PublicSurvey) -> dict[str, object]:
    """Return what the page's scripts need: the plan, the fields, and how codes are read."""
    plan = survey.plan
    return {
        "survey": plan.survey,
        "plan": b64encode(survey.data).decode(),
        "fields": [
            {"name": f.name, "title": f.title, "kind": f.kind, "values": f.values}
            for f in fields(plan)
        ],
        "titles": {name: each.title or name for name, each in plan.questions.items()},
        "labels": {name: list(labels(each.domain)) for name, each in plan.questions.items()},
        "readings": {
            level.name: {
                name: {
                    chosen: reading(plan.questions[name].domain.chosen(chosen), mechanism)
                    for chosen, mechanism in by_map.items()
                }
                for name, by_map in level.by_map.items()
            }
            for level in plan.levels.values()
        },
        "withheld": [name for name, each in plan.attributes.items() if each.memo],
        "agreement": _agreement(survey) if survey.page.answers else None,
    }


def _agreement(survey: PublicSurvey) -> dict[str, object]:
    """Return the agreement that the SDK holds the server to: this very plan, and no other."""
    agreed = for_typescript(Agreement.on(survey.data), survey.plan)
    return {**agreed, "plan": b64encode(survey.data).decode()}
