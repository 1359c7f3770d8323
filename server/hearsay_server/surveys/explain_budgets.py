"""What a survey's budget costs against the others, before it is registered."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hearsay.v1 import survey_pb2
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.question import Question
from ldp.core.exact import ONE
from ldp.planning.budget import Budget

_MOST_QUESTIONS = 256
"""Questions up to which budgets are compared: the time grows with the square of their number."""

_SHOWN = 4
"""Other ways that auto compared, of which the best are returned."""

_WORTH_SAYING = 1.05
"""Users that the survey's budget needs, against the best one's, from which that is advised."""

_SPLIT_IS_FOR = (
    'Take "split" where records are to tell of two attributes together, or a model is to learn '
    "from them."
)


@dataclass(frozen=True)
class Way:
    """One way to spend a record's epsilon on its questions.

    `budget` is the file's key for it, "" for one that no key names. It takes `users` times as many
    users as the survey's own way for the same error: the sum of squared errors over the questions,
    each times its weight, on average over the levels. `budgets` are by level, in order of epsilon.
    """

    budget: str
    label: str
    users: float
    budgets: tuple[Budget, ...]


def ways(
    budget: str, epsilons: Sequence[float], asked: Sequence[Question], *, every: bool = False
) -> list[Way]:
    """Return the survey's own way, and then auto, split and sample by users; with `every` also the
    best of the others that auto compared. A way that two keys name is there once.

    Only the survey's own where there is one question, or more than `_MOST_QUESTIONS`. Raises
    `InvalidInput` for a budget that cannot be.
    """
    budget = budget or "split"
    own, *others = surveys.decide(budget, epsilons, asked).candidates
    compared = [(budget, own)]
    candidates = [("", each) for each in others[:_SHOWN] if every]
    if 1 < len(asked) <= _MOST_QUESTIONS:
        keys = ("auto", "split", "sample")
        named = [(key, surveys.decide(key, epsilons, asked).candidates[0]) for key in keys]
        candidates = named + candidates
    for key, way in candidates:
        if all(way[2] != each[2] for _, each in compared):
            compared.append((key, way))
    found = [Way(key, label, cost / own[1], budgets) for key, (label, cost, budgets) in compared]
    return [found[0], *sorted(found[1:], key=lambda way: (way.users, way.label))]


def of(survey: survey_pb2.Survey) -> list[Way]:
    """Return the `ways` of a survey."""
    return ways(survey.budget, sorted(survey.levels.values()), surveys.questions(survey))


def lines(found: Sequence[Way]) -> list[str]:
    """Return the ways in words: the survey's own, the others, and advice where one is better."""
    own, *others = found
    told = [own.label]
    if not others:
        return told
    told.append(
        "Other ways, by the users that they need for the same error (the sum of squared errors "
        "over the attributes, each times its weight, on average over the levels):"
    )
    told += [f"  {_called(way)}: {way.users:.2f} times as many" for way in others]
    return [*told, *advice(found)]


def advice(found: Sequence[Way]) -> list[str]:
    """Return a line that names a better budget, where there is one worth the change."""
    own, *others = found
    better = next((way for way in others if way.budget == "auto"), own)
    if better.users * _WORTH_SAYING > 1:
        return []
    return [
        f'budget = "auto" would make errors {math.sqrt(1 / better.users):.1f} times smaller here, '
        f"as {1 / better.users:.1f} times as many users would. {_SPLIT_IS_FOR}"
    ]


def errors(budget: Budget, asked: Sequence[Question], users: int) -> list[float]:
    """Return the predicted standard error of each question where all users have this budget.

    Errors are in the questions' units, and nan for one that is never reported.
    """
    found = []
    for question, epsilon, chance in zip(asked, budget.epsilons, budget.chances, strict=True):
        reports = users * chance / ONE
        variance = question.variance(epsilon) / reports if reports else math.nan
        found.append(question.domain.units * math.sqrt(variance))
    return found


def _called(way: Way) -> str:
    return f'budget = "{way.budget}", {way.label}' if way.budget else way.label
