"""What an analyst's questions have in common: selections, options, warnings."""

import contextlib
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypedDict

from hearsay.asking.answer import Answer
from hearsay.asking.margins import Margins, messages
from hearsay.v1 import analyst_pb2

_quiet: ContextVar[bool] = ContextVar("hearsay_quiet", default=False)
"""Whether warnings are left to the answers' `attrs`."""

LONG = 3600.0
"""Seconds that a question may take for which the server reads all stored reports."""


class Selection(TypedDict, total=False):
    """Which reports a question is about: all reports that meet every key that is given.

    `levels`: reports randomised at one of these levels. `periods`: reports of one of these
    periods. `first_period`, `last_period`: reports of this period and later ones, of this period
    and earlier ones. `maps`: answers of people who chose one of these maps of the attribute, ""
    standing for none. `where`: reports of devices with one of these values of public properties,
    such as `{"platform": "ios"}` or `{"version": ["1", "2"]}`, "" standing for an app that gave
    none. `panels`: reports of these panels, from 1 on. An empty value restricts nothing. By `where`
    or `panels` each level, map and period must keep 20 reports, and leave none that could be told
    by subtraction: `NotReady` is raised otherwise.
    """

    levels: Sequence[str]
    periods: Sequence[str]
    first_period: str
    last_period: str
    maps: Sequence[str]
    where: Mapping[str, str | Sequence[str]]
    panels: Sequence[int]


class Weighting(Selection, total=False):
    """Known shares of the population, besides a `Selection`.

    `margins` weights the respondents of public groups so that these are as frequent as in the
    population: `{"platform": {"ios": 0.3, "android": 0.7}, "country": {...}}`, or for combinations
    `{("platform", "country"): {("ios", "de"): 0.1, ...}}` (`hearsay.asking.margins`). A value with
    fewer than `least` people (10 by default, 2 or more) is joined with another, as a warning says.
    """

    margins: Margins
    least: int


class Options(Weighting, total=False):
    """What an estimate can be asked with, besides a `Selection` and a `Weighting`.

    `confidence` is the intervals', for each row by itself, or with `simultaneous` for all rows
    at once. `method` pools levels: "mle", "gls", "inverse_variance" or "scalar", by default the
    best that is quick. `consistency` makes frequencies a distribution by a method such as
    "norm-sub". `forged` asks how far so many forged reports could move the estimate; `recover`
    takes so many forged reports per genuine one out by LDPRecover.

    `top` asks for so many rows, those of the largest estimates, in their order; `values` for the
    rows of these values, in this order. Intervals are those of the whole answer: simultaneous ones
    cover the rows that are left out, too. `sizes` asks for the sizes of sets instead of their items
    (`Analyst.set_sizes`).
    """

    confidence: float
    simultaneous: bool
    method: str
    consistency: str
    forged: int
    recover: float
    top: int
    values: Sequence[str]
    sizes: bool


def fields(given: Selection, known: type[Selection]) -> dict[str, Any]:
    """Return a request's fields: `selection`, and whatever else was given."""
    if unknown := set(given) - known.__annotations__.keys():
        raise TypeError(f"unknown options {sorted(unknown)}")
    found: dict[str, Any] = dict(given)
    chosen = {name: found.pop(name) for name in Selection.__annotations__ if name in found}
    where = [
        analyst_pb2.Where(property=name, values=[values] if isinstance(values, str) else values)
        for name, values in chosen.pop("where", {}).items()
    ]
    if "margins" in found:
        found["margins"] = messages(found["margins"])
    return {**found, "selection": analyst_pb2.Selection(**chosen, where=where)}


def warned(answer: Answer) -> Answer:
    """Return an answer, and warn of its notes at the line outside of `hearsay` that asked."""
    if answer.notes and not _quiet.get():
        frame, level = sys._getframe(1), 2
        while frame.f_back and frame.f_globals.get("__name__", "").startswith("hearsay."):
            frame, level = frame.f_back, level + 1
        warnings.warn(answer.warning, stacklevel=level)
    return answer


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Leave the warnings of answers to their `attrs`, in this thread and while the context lasts.

    Filters of `warnings` are of the whole process.
    """
    before = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(before)
