"""Which words of a survey will be found, before it is registered."""

from collections.abc import Iterator

from hearsay.plans.kinds import Strings
from hearsay.plans.plan import Plan
from ldp import PrefixHashing
from ldp.core.exact import ONE
from ldp.estimating.discovery import smallest_shares


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
            shares = smallest_shares([(mechanism, periods * n)])
            told = ", ".join(
                f"{shares[letters - 1]:.2%} of {_up_to(domain, letters)}"
                for letters in _steps(mechanism)
            )
            several = f"{periods} period{'s' * (periods > 1)}: " if plan.period else ""
            parts.append(several + told)
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
