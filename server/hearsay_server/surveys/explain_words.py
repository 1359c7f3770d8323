"""Which words of a survey will be found, before it is registered."""

import math
from collections.abc import Iterator

from hearsay.plans.domains import Strings
from hearsay.plans.plan import Plan
from hearsay_server.surveys.survey import word_variance
from ldp import Mechanism, PrefixHashing
from ldp.core.exact import ONE

FINDABLE = 5.5
"""Standard errors of a word's share from which it is found about every second time: its beginnings
are among millions that are tested, and it has to stand out of the noise of all."""


def findable(mechanism: Mechanism, letters: int, n: float) -> float:
    """Return the smallest share that a word of so many letters is found with, from n reports."""
    return min(1.0, FINDABLE * math.sqrt(word_variance(mechanism, letters) / n))


def lines(plan: Plan, users: int) -> list[str]:
    """Return lines on the words of each attribute, at each level with so many users."""
    found = [
        line
        for name, attribute in plan.attributes.items()
        if isinstance(attribute.domain, Strings)
        for line in _lines(plan, name, attribute.domain, users)
    ]
    if found:
        found.append("errors below are those of the share of a rare word of the longest length")
    return found


def _lines(plan: Plan, name: str, domain: Strings, users: int) -> Iterator[str]:
    for level in plan.levels.values():
        mechanism = level.mechanisms[name]
        n = users * level.budget.chances[list(level.mechanisms).index(name)] / ONE
        if domain.candidates:
            yield (
                f"{name} at {level.name}: the shares of {len(domain.candidates):,} listed words, "
                "and of words that a question lists; no others are found"
            )
            continue
        assert isinstance(mechanism, PrefixHashing)  # as the plan was checked
        groups = len(mechanism.lengths)
        parts = []
        for periods in (1, groups) if plan.period else (1,):
            shares = ", ".join(
                f"{findable(mechanism, letters, periods * n):.2%} of {_up_to(domain, letters)}"
                for letters in _steps(mechanism)
            )
            parts.append(
                f"{periods} period{'s' * (periods > 1)}: {shares}" if plan.period else shares
            )
        yield (
            f"{name} at {level.name}: the smallest share that is found every second time, from "
            f"{'; from '.join(parts)}"
        )


def _steps(mechanism: PrefixHashing) -> list[int]:
    """Return the most letters of words that are found alike, from the shortest words on."""
    last = mechanism.lengths[-1]
    return [*(length - 1 for length in sorted(set(mechanism.lengths[:-1])) if length < last), last]


def _up_to(domain: Strings, letters: int) -> str:
    return f"words of up to {letters} letters" if letters < domain.longest else "all words"
