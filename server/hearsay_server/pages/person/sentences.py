"""Sentences of safe HTML, in which names and numbers of a survey stand."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hearsay_server.pages.words import shown

LISTED = 8
"""The most values that have odds of their own: the rest are told in one sentence."""


@dataclass(frozen=True)
class Odds:
    """What leaves for one question at one level: `sent` says what it is, `lines` how true it is.

    The texts are safe HTML: values that an operator wrote are escaped and isolated in them.
    """

    sent: Markup
    lines: tuple[Markup, ...]


def say(words: str, **values: object) -> Markup:
    """Return words with values for the names in braces, escaped where they are text."""
    return Markup(words).format(**values)


def name(value: str) -> Markup:
    """Return a name that an operator chose, set apart from the direction of the text around it."""
    return Markup("<bdi>{}</bdi>").format(shown(value))


def listed(values: Sequence[str], last: str = "or") -> Markup:
    """Return some values in words; of many the first ones and how many more there are."""
    names = [name(value) for value in values[:LISTED]]
    if more := len(values) - len(names):
        return Markup(", ").join(names) + f" {last} {more:,} more"
    head = Markup(", ").join(names[:-1])
    return Markup("{} {} {}").format(head, last, names[-1]) if head else names[-1]


def plain(number: float) -> str:
    """Return a number with at most six digits."""
    return f"{number:,.6g}"


def figure(number: float, error: float) -> str:
    """Return a number with two digits of what is said to be wrong about it."""
    digits = max(0, 1 - math.floor(math.log10(error))) if error > 0 else 0
    return f"{number:,.{min(digits, 6)}f}"
