"""What one more respondent at each level of a survey is worth."""

from dataclasses import dataclass

import numpy as np

from hearsay.plans.plan import Plan
from ldp.planning.value import Levels

MEANING = (
    "A respondent's worth is the information in their report, 1 / variance, if levels are pooled "
    "(the usual estimate is stratified) and users spread evenly over them. Prices in proportion "
    "to it spend a budget well; read docs/incentives.md before you offer any."
)


@dataclass(frozen=True)
class Worth:
    """What a respondent at one level tells of one question, or of the whole record ("").

    `respondents` at level `reference` tell as much. `share` is the level's share of the
    information, and `lowers` by which part one more respondent lowers the variance.
    """

    level: str
    epsilon: float
    attribute: str
    reference: str
    respondents: float
    share: float
    lowers: float


def of(plan: Plan, levels: Levels, users: int) -> list[Worth]:
    """Return what a respondent is worth at each level, where `users` spread evenly over them.

    In respondents at the default level, or else at the strictest.
    """
    names = list(plan.levels)
    questions, table = list(plan.questions), levels.information
    parts = [(name, Levels(levels.epsilons, 1 / table[:, j])) for j, name in enumerate(questions)]
    if len(questions) > 1:
        parts.append(("", levels))
    reference = names.index(plan.default_level or names[0])
    counts = np.full(len(names), users / len(names))
    columns = [
        (
            part.in_respondents(counts, reference),
            part.shares(counts),
            part.one_more(counts) / part.variance(counts),
        )
        for _, part in parts
    ]
    return [
        Worth(
            name, level.epsilon, question, names[reference], *(float(column[j]) for column in found)
        )
        for j, (name, level) in enumerate(plan.levels.items())
        for (question, _), found in zip(parts, columns, strict=True)
    ]


def lowered(part: float) -> str:
    """Return by how much a variance changes that one more respondent lowers by this part."""
    return f"-{100 * part:.2g}%"
