"""The catalogue of questions and the methods of `Analyst` have the same options."""

import inspect
from collections.abc import Iterator
from typing import get_args

import pytest

from hearsay import Analyst
from hearsay.asking.views.catalogue import VIEWS
from hearsay.asking.views.options import Given
from hearsay.asking.views.view import Question, View
from ldp import InvalidInput

VALUES = {
    "text": ["a"],
    "number": ["0.5"],
    "whole": ["3"],
    "pair": ["1", "2"],
    "flag": ["1"],
    "levels": ["open"],
    "periods": ["2026-07-04"],
    "period": ["2026-07-04"],
    "two periods": ["2026-07-04", "2026-07-05"],
    "maps": [""],
    "other": ["age"],
    "by": ["level"],
    "values": ["a"],
    "parts": ["level=open,strict"],
    "table": ["platform,share\nios,0.5\nandroid,0.5"],
    "words": ["a\nb"],
}
"""An option of each kind."""

WRITTEN = {"where": "platform=ios"}
TOGETHER = {
    "least": ["margins"],
    "method": ["logit"],
    "other": ["other-between"],
    "other-between": ["other"],
}
"""Options that are of others."""


def questions(view: View) -> Iterator[Question]:
    """Ask with what is needed alone, and then with each option beside it."""
    options = {option.name: option for option in view.options}
    needed = [option.name for option in view.options if option.needed]
    for name in ["", *options]:
        names = {*needed, name, *(each for each in TOGETHER.get(name, []) if each in options)}
        pairs = [("attribute", "how")]
        for each in sorted(names - {""}):
            option = options[each]
            assert option.kind in {*VALUES, "choice"}, "give the new kind a value in VALUES"
            values = option.choices[:1] or VALUES[option.kind]
            values = [WRITTEN[each]] if each in WRITTEN else values
            pairs += [(each, value) for value in values]
        given = Given(pairs, view.options)
        if not (view.name == "compare" and name in ("level", "period", "map")):  # part by part
            yield view.question("survey", given)


def known(method: str) -> set[str]:
    """Return the names of all keywords that a method of `Analyst` takes."""
    names = set()
    for name, parameter in inspect.signature(getattr(Analyst, method)).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = get_args(parameter.annotation)
            names |= {*options.__annotations__}
        else:
            names.add(name)
    return names - {"self"}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_asks_with_keywords_that_its_method_has(view: View) -> None:
    for question in questions(view):
        signature = inspect.signature(getattr(Analyst, question.method))
        signature.bind(None, *question.args, **question.options)
        assert set(question.options) <= known(question.method), question


@pytest.mark.parametrize("value", ["0", "false", "no", "11"])
def test_a_flag_that_says_no_is_refused(value: str) -> None:
    options = VIEWS["estimate"].options
    with pytest.raises(InvalidInput, match=f"simultaneous is 1, or is left out, got '{value}'"):
        Given([("simultaneous", value)], options).flag("simultaneous")
