"""What a survey will be able to tell, from its file or from a table: the page before registration.

Pure functions of what was given: nothing is stored, and nothing registered.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from hearsay.files import decoded
from hearsay.plans.kinds import ByKind
from hearsay.tables import declares_separator
from hearsay.v1 import survey_pb2
from hearsay_server.surveys import (
    drafting,
    explain,
    explain_budgets,
    explain_protections,
    explain_shares,
    explain_words,
    fitting,
    guessing,
    people,
)
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.explain import Explanation
from hearsay_server.surveys.fitting import Fit
from hearsay_server.surveys.question import Question
from ldp import InvalidInput
from ldp.planning import budget as budgets

USERS = (300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
"""Numbers of people for which errors are told."""

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Epsilons of a record for which errors are told."""

MOST_USERS = 10**12

_MOST_CURVES = 256
"""Questions up to which errors by epsilon are told: they take a budget for each epsilon."""

_MOST_CELLS = 5
"""Cells of a column that do not fit and are listed."""

_ASKS = ByKind(
    category="one of ",
    number="a number, ",
    bins="a number, ",
    set="some of ",
    ratings="ratings of ",
    words="",
    grid="two numbers, ",
)
"""What an answer is, before the kind's own words."""

_TOML = re.compile(r"^\s*(?:\[|[A-Za-z0-9_.\"'-]+\s*=)")


@dataclass(frozen=True)
class Asked:
    """One question at one level.

    `half` is half a 95% interval, in parts of one: of a share, or of a number's range. `smallest`
    is the smallest share that is seen (`explain_shares.smallest`), nan where there is none;
    `has_shares` is false of a number whose mean is asked for.
    """

    name: str
    title: str
    asks: str
    mechanism: str
    epsilon: float
    chance: float
    half: float
    smallest: float
    has_shares: bool


@dataclass(frozen=True)
class Level:
    """The questions at one level, if all users have it."""

    name: str
    epsilon: float
    asked: tuple[Asked, ...]


@dataclass(frozen=True)
class Budget:
    """One way to spend a record's epsilon: `users` times as many users as the survey's own for the
    same error, `half` the root mean square of the questions' half intervals at the level shown."""

    budget: str
    label: str
    users: float
    half: float


@dataclass(frozen=True)
class Planned:
    """What a survey will tell with `users` people.

    `level` is the one whose curves are told: the default one, or else the strictest. `by_users` and
    `by_epsilon` have half a 95% interval of each question for each of `USERS` and `EPSILONS`, as
    `Asked.half`. `guesses` (column, what for, notes) and `warnings` are of a survey that was
    guessed from a table, `fit` of a survey and a table that were both given.
    """

    toml: str
    name: str
    title: str
    period: str
    users: int
    level: str
    levels: tuple[Level, ...]
    protections: tuple[str, ...]
    in_the_clear: tuple[str, ...]
    words: tuple[str, ...]
    costs: tuple[tuple[str, int, float, float], ...]
    by_users: tuple[tuple[float, ...], ...]
    by_epsilon: tuple[tuple[float, ...], ...]
    budgets: tuple[Budget, ...]
    advice: tuple[str, ...]
    guesses: tuple[tuple[str, str, str], ...]
    warnings: tuple[str, ...]
    fit: Fit | None


def planned(given: Sequence[tuple[str, bytes]], users: int) -> Planned:
    """Return what the given survey, or the one guessed from the given table, will tell.

    `given` are contents after the names of what they come from: at most one survey and one table,
    told apart by their first line (`is_survey`). Raises `InvalidInput` for others, for what cannot
    be read, a survey that cannot be, and users outside 1..10**12.
    """
    if not 1 <= users <= MOST_USERS:
        raise InvalidInput(f"people must lie in 1..{MOST_USERS:,}, got {users}")
    read = [(source, decoded(data, source)) for source, data in given]
    found = [(source, text) for source, text in read if text.strip()]
    files = [each for each in found if is_survey(*each)]
    tables = [each for each in found if not is_survey(*each)]
    if not found or len(files) > 1 or len(tables) > 1:
        raise InvalidInput(
            f"give a survey (TOML), a table (CSV) or one of each, got {len(files)} surveys and "
            f"{len(tables)} tables"
        )
    table = people.parse(tables[0][1], tables[0][0]) if tables else None
    if files:
        source, toml = files[0]
        toml = toml.replace("\r\n", "\n")
        survey, explanation = _explained(toml, source, users)
        fit = fitting.fit(explanation.plan, table, _MOST_CELLS) if table else None
        return _planned(toml, survey, explanation, fit=fit)
    assert table is not None
    stem = re.split(r"[/\\]", table.source)[-1].split(".")[0]
    draft = guessing.guess(table, people.name_of(stem, 1))
    toml = drafting.toml(draft)
    return _planned(
        toml,
        *_explained(toml, "the guessed survey", users),
        guesses=tuple(
            (called, why, "; ".join(notes)) for called, why, notes in drafting.told(draft)
        ),
        warnings=tuple(drafting.warnings(draft)),
    )


def is_survey(source: str, text: str) -> bool:
    """Whether a text is a survey's file: by the source's ending, or else by the first line.

    A survey's first line that is no comment assigns a key or begins a table.
    """
    ending = source.lower().rpartition(".")[2]
    if ending in ("toml", "csv"):
        return ending == "toml"
    lines = text.splitlines()
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    return _TOML.match(first) is not None and not declares_separator(first)


def _explained(toml: str, source: str, users: int) -> tuple[survey_pb2.Survey, Explanation]:
    survey = surveys.from_toml(toml, source)
    return survey, explain.explain(survey, source, users)


def _planned(
    toml: str,
    survey: survey_pb2.Survey,
    explanation: Explanation,
    *,
    guesses: tuple[tuple[str, str, str], ...] = (),
    warnings: tuple[str, ...] = (),
    fit: Fit | None = None,
) -> Planned:
    plan, users = explanation.plan, explanation.users
    asked = surveys.questions(survey)
    shown = plan.default_level or next(iter(plan.levels))
    levels = tuple(_level(explanation, name) for name in plan.levels)
    place = list(plan.levels).index(shown)
    here = levels[place].asked
    ways = [way for way in explanation.ways if way.budget]
    return Planned(
        toml=toml,
        name=plan.survey,
        title=plan.title,
        period=plan.period,
        users=users,
        level=shown,
        levels=levels,
        protections=_together(explanation.protections),
        in_the_clear=tuple(explain_protections.in_the_clear(plan, users)),
        words=tuple(explain_words.lines(plan, users)),
        costs=tuple(
            (cost.level, explanation.periods, cost.total, cost.composed)
            for cost in explanation.costs
            if not cost.attribute
        ),
        # A half interval is in inverse proportion to the root of the number of users.
        by_users=tuple(tuple(each.half * math.sqrt(users / n) for n in USERS) for each in here),
        by_epsilon=_by_epsilon(survey.budget, asked, users),
        budgets=tuple(
            Budget(
                way.budget,
                way.label,
                way.users,
                _typical(_halves(asked, way.budgets[place], users)),
            )
            for way in ways
        ),
        advice=tuple(explain_budgets.advice(ways)),
        guesses=guesses,
        warnings=warnings,
        fit=fit,
    )


def _together(lines: Sequence[str]) -> tuple[str, ...]:
    """Return lines as "question: promise", with one line for all questions of one promise."""
    names: dict[str, list[str]] = {}
    for line in lines:
        name, _, promise = line.partition(": ")
        names.setdefault(promise, []).append(name)
    return tuple(f"{', '.join(each)}: {promise}" for promise, each in names.items())


def _level(explanation: Explanation, name: str) -> Level:
    plan, users = explanation.plan, explanation.users
    level = plan.levels[name]
    rows = [row for row in explanation.rows if row.level == name and not row.map]
    return Level(
        name,
        level.epsilon,
        tuple(
            Asked(
                row.attribute,
                plan.questions[row.attribute].title,
                f"{_ASKS[domain]}{domain}",
                row.mechanism,
                row.epsilon,
                row.chance,
                explain_shares.half(domain, row.error),
                explain_shares.smallest(
                    domain,
                    plan.mechanism(name, row.attribute, ""),
                    users * row.chance,
                ),
                domain.statistic != "mean",
            )
            for row in rows
            for domain in [plan.questions[row.attribute].domain]
        ),
    )


def _by_epsilon(
    budget: str, asked: Sequence[Question], users: int
) -> tuple[tuple[float, ...], ...]:
    """Return half intervals where all users have one level, of each of `EPSILONS`."""
    if len(asked) > _MOST_CURVES:
        return ()
    columns = [
        _halves(asked, surveys.decide(budget, [epsilon], asked).budgets[0], users)
        for epsilon in EPSILONS
    ]
    return tuple(zip(*columns, strict=True))


def _halves(asked: Sequence[Question], budget: budgets.Budget, users: int) -> list[float]:
    errors = explain_budgets.errors(budget, asked, users)
    return [
        explain_shares.half(question.domain, error)
        for question, error in zip(asked, errors, strict=True)
    ]


def _typical(halves: Sequence[float]) -> float:
    return math.sqrt(sum(half * half for half in halves) / len(halves))
