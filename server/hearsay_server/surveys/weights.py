"""Weights for a survey that is to explain one attribute, from public data with its columns."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

import hearsay.plans.plan
from hearsay import tables
from hearsay.plans.kinds import ByKind, Categorical, Kind, Numeric
from hearsay.v1 import survey_pb2
from hearsay_server.surveys import people
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.people import People
from hearsay_server.surveys.question import SPREAD, Question
from ldp import InvalidInput
from ldp.planning.budget import Attribute, split_by_weight
from ldp.planning.weights import for_target, joint_error, mutual_information

WARNING = (
    "PUBLIC DATA ONLY: the weights are computed from the file without any noise, and everybody who "
    "sees the survey sees them. Never give answers of the people who are asked, nor any other "
    "private data."
)
_SHOWN = 10
"""Values of a question that an error lists."""
_PARTS = 5
"""Parts of as many people into which numbers are cut, to see what they tell."""


@dataclass(frozen=True)
class Proposed:
    """The weight that one attribute has, and the one proposed.

    `importance` is how much it tells of the target, in nats, nan of the target itself.
    """

    attribute: str
    importance: float
    weight: float
    proposed: float


@dataclass(frozen=True)
class Weights:
    """The weights for a target, at the level whose epsilon they are computed for.

    `gain` is by how much the error of the joint analysis, squared, is smaller than by the weights
    of the file.
    """

    target: str
    level: str
    rows: int
    attributes: Sequence[Proposed]
    gain: float


def propose(survey: survey_pb2.Survey, target: str, file: Path) -> Weights:
    """Return the weights with which a survey explains `target`, from a CSV file of public data.

    For the default level, or else the strictest. Raises `InvalidInput` where the survey does not
    split its budget, has views or attributes other than values and numbers, or the file lacks
    one of them or has values that the survey has not.
    """
    plan = hearsay.plans.plan.parse(surveys.resolve(survey))
    if survey.budget not in ("", "split") or survey.views:
        raise InvalidInput(
            'weights for a target are of budget = "split", without views: only records that report '
            "two attributes tell of both together"
        )
    asked = {question.name: question for question in surveys.questions(survey)}
    if target not in asked:
        raise InvalidInput(f"the survey has no attribute {target!r}: it has {', '.join(asked)}")
    columns = _columns(people.read(file), asked)
    own, rows = columns[target], len(columns[target])
    parts = {
        name: mutual_information(_counts(column, own))
        for name, column in columns.items()
        if name != target
    }
    if not any(parts.values()):
        raise InvalidInput(f"{file}: nothing in its {rows:,} rows tells of {target!r}")
    most = max(parts.values())
    level = plan.default_level or next(iter(plan.levels))
    epsilon = plan.levels[level].epsilon
    first = _attribute(asked[target], 1.0)
    others = [_attribute(asked[name], max(part, 1e-9 * most)) for name, part in parts.items()]
    order = [target, *parts]
    found = for_target(epsilon, first, others)
    unit = sum(found) / len(found)
    weights = [max(0.01, round(each / unit, 2)) for each in found]

    def error(weighted: Sequence[float]) -> float:
        caps = [asked[name].cap for name in order]
        return joint_error(first, others, split_by_weight(epsilon, weighted, caps).epsilons)

    gain = error([asked[name].weight for name in order]) / error(weights)
    proposed = [
        Proposed(name, parts.get(name, math.nan), asked[name].weight, weight)
        for name, weight in zip(order, weights, strict=True)
    ]
    return Weights(target, level, rows, proposed, gain)


def _attribute(question: Question, importance: float) -> Attribute:
    """Return an attribute whose variance is that of a report against that of a plain answer."""
    plain = _VARIANCES[question.domain](question.domain)

    @lru_cache
    def variance(epsilon: float) -> float:
        return question.variance(epsilon) / plain

    return Attribute(question.name, variance, importance, question.cap)


def _columns(table: People, asked: Mapping[str, Question]) -> dict[str, NDArray[np.intp]]:
    """Return each attribute's column as categories, numbers in parts of as many people."""
    if missing := sorted(set(asked) - set(table.columns)):
        raise InvalidInput(f"{table.source} has no column {', '.join(map(repr, missing))}")
    if len(table) < 2:
        raise InvalidInput(f"{table.source} needs two rows below its heading, got {len(table)}")
    return {
        name: _CODES[question.domain](name, question.domain, table)
        for name, question in asked.items()
    }


def _of_values(name: str, domain: Categorical, table: People) -> NDArray[np.intp]:
    column = table.columns[name]
    places = {value: place for place, value in enumerate(domain.values)}
    for row, value in zip(table.rows, column, strict=True):
        if value not in places:
            raise InvalidInput(
                f"{table.source}, row {row}: {name!r} is {value!r}, which the survey lacks: it has "
                f"{_listed(domain.values)}"
            )
    return np.array([places[value] for value in column], dtype=np.intp)


def _of_numbers(name: str, domain: Numeric, table: People) -> NDArray[np.intp]:
    column = table.columns[name]
    numbers = np.array([_number(value) for value in column])
    if not np.isfinite(numbers).all():
        place = int(np.argmin(np.isfinite(numbers)))
        raise InvalidInput(
            f"{table.source}, row {table.rows[place]}: {name!r} is {column[place]!r}, which is no "
            "finite number"
        )
    numbers = numbers.clip(domain.low, domain.high)
    cuts = np.unique(np.quantile(numbers, np.arange(1, _PARTS) / _PARTS))
    return np.searchsorted(cuts, numbers, side="right")


def _of_others(name: str, domain: Kind, table: People) -> NoReturn:
    raise InvalidInput(f"weights for a target are of values and numbers: {name!r} is another")


_CODES: ByKind[Callable[[str, Any, People], NDArray[np.intp]]] = ByKind.otherwise(
    _of_others, category=_of_values, number=_of_numbers
)
"""A column as the places of its values; of numbers as one of parts with as many people each."""

_VARIANCES: ByKind[Callable[[Any], float]] = ByKind.otherwise(
    lambda domain: SPREAD, category=lambda domain: (1 - 1 / len(domain.values)) / len(domain.values)
)
"""The variance of an answer that is not randomised: of all values on average, drawn uniformly."""


def _number(text: str) -> float:
    """Return the number that a cell says; nan for none."""
    try:
        return tables.number(text)
    except ValueError:
        return math.nan


def _listed(values: Sequence[str]) -> str:
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return f"{', '.join(values[:_SHOWN])}{more}"


def _counts(one: NDArray[np.intp], other: NDArray[np.intp]) -> NDArray[np.float64]:
    found = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(found, (one, other), 1)
    return found
