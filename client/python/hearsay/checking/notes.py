"""What the notes of an answer name, checked against the question and the survey's plan."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hearsay.asking.answer import Answer, Note
from hearsay.asking.columns import NO_MAP, NOT_GIVEN
from hearsay.checking import distributions
from hearsay.checking.expected import check_among, check_once
from hearsay.plans.plan import Plan
from ldp.errors import InvalidInput

_Known = Callable[[Any, Answer, Plan], Collection[Any]]
"""Returns what a note may name, by the question, its answer and the survey's plan."""

_COUNTED = re.compile(r"(.+) \([0-9,]+ reports\)")
"""A group that is left out, and how many reports it has."""


def _levels(question: Any, answer: Answer, plan: Plan) -> Collection[Any]:
    return question.selection.levels or plan.levels


def _labels(question: Any, answer: Answer, plan: Plan) -> Collection[Any]:
    return plan.asked(question.attribute).domain.labels


def _rows(question: Any, answer: Answer, plan: Plan) -> Collection[Any]:
    return answer.table().index[0].labels


def _groups(question: Any, answer: Answer, plan: Plan) -> Collection[Any]:
    return answer.table("groups").index[0].labels


def _left_out(question: Any, answer: Answer, plan: Plan) -> Collection[Any]:
    """Return the values of the property that the answer is by, and has no group of."""
    values = plan.properties.named(answer.table().index[0].name).values
    return {*values, NOT_GIVEN} - {*answer.parts}


def _parts(question: Any, answer: Answer, plan: Plan) -> Collection[Any]:
    return answer.parts


def _chosen(question: Any, answer: Answer, plan: Plan) -> Collection[Any]:
    return {*plan.levels, *plan.maps(question.attribute), NO_MAP}


def _properties(question: Any, answer: Answer, plan: Plan) -> Collection[Any]:
    return plan.properties.by_name


_ESTIMATES = ("estimate", "sums", "sizes", "by", "forecast")
_CHANGES = ("change", "trend", "breaks")

NAMES: Mapping[str, tuple[Sequence[str], Mapping[str, _Known]]] = {
    "few_for_test": (["suspicions"], {"levels": _levels}),
    "groups_unclear": (["given", "differences"], {"groups": _groups}),
    "mix_changed": (_CHANGES, {"label": _rows}),
    "no_pairs": (["pairs"], {"levels": _levels}),
    "ratings_unknown": (_ESTIMATES, {"keys": _labels}),
    "same_within": (
        [*_ESTIMATES, *distributions.VIEWS],
        {"properties": _properties, "within": _properties},
    ),
    "share_moved": (["compare"], {"name": _chosen}),
    "small_groups": (["by"], {"groups": _left_out}),
    "unfinished": (_CHANGES, {"periods": _parts}),
}
"""By the code of each caution that names anything, the views of the answers that have it, and what
its parameters may name. How the rows of margins that are `joined` are called is left open."""


def check(question: Any, answer: Answer, plan: Plan) -> None:
    """Raise `InvalidInput` for a note that names what the question or the survey does not have.

    The answer's parts and tables are checked before.
    """
    for note in answer.notes:
        views, parameters = NAMES.get(note.code, ([answer.view], {}))
        if answer.view not in views:
            raise InvalidInput(f"notes: {note.code} is no note of the answer to this question")
        for name, known in parameters.items():
            place, told = f"notes: {note.code}: {name}", _told(note, name)
            check_once(place, told)
            check_among(place, told, known(question, answer, plan))


def _told(note: Note, name: str) -> Sequence[str]:
    """Return what a parameter of a note names."""
    given: Any = note.given[name]
    told = [given] if isinstance(given, str) else given
    if note.code != "small_groups":
        return told
    counted = [_COUNTED.fullmatch(each) for each in told]
    return [match[1] if match else "" for match in counted]
