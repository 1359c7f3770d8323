"""What the sets and ratings of a survey will tell, before it is registered."""

import math
from collections.abc import Iterator

from hearsay.plans.kinds import Ratings, SetOf
from hearsay.plans.plan import Plan
from hearsay_server.surveys.question import planned
from ldp import Mechanism, SetBits, SetSelection
from ldp.estimating.ratings import SURE, RatedShares
from ldp.estimating.sets import can_pair

_MEAN = 0.3
"""The mean rating on [-1, 1] for which the error of a mean is predicted."""

_GOOD = 5.0
"""Standard errors of the share who rate a key from which its mean is of use."""


def lines(plan: Plan, users: int) -> list[str]:
    """Return lines on each set and each table of ratings, at each level with so many users."""
    found = [
        line
        for name, attribute in plan.attributes.items()
        if isinstance(attribute.domain, SetOf | Ratings)
        for line in _lines(plan, name, attribute.domain, users)
    ]
    if found:
        found.append(
            "errors below are those of an item's share, and of the share who rate a key, if half "
            "as many apply as may"
        )
    return found


def _lines(plan: Plan, name: str, domain: SetOf | Ratings, users: int) -> Iterator[str]:
    noun = "items" if isinstance(domain, SetOf) else "ratings"
    if domain.most < len(domain.labels):
        more = (
            f"of more, {domain.most} drawn at random count, and shares come out too small"
            if domain.clamp
            else "an answer of more is replaced by a random one"
        )
        yield f"{name}: at most {domain.most} {noun}; {more}"
    for level in plan.levels.values():
        mechanism = level.mechanisms.get(name)
        if mechanism is None:
            continue  # it is asked in a view
        place = list(level.mechanisms).index(name)
        n = users * level.budget.chances[place] / (1 << 64)
        if isinstance(domain, Ratings):
            yield f"{name} at {level.name}: {_ratings(domain, mechanism, n)}"
        elif isinstance(mechanism, SetBits):
            yield f"{name} at {level.name}: the mean number of items, neither sizes nor pairs"
        else:
            told = "sizes and pairs" if can_pair(mechanism) else "sizes; pairs with set_pairs"
            yield f"{name} at {level.name}: {told}"


def _ratings(domain: Ratings, mechanism: Mechanism, n: float) -> str:
    """Say how well a mean is told of a key that half as many people rate as may."""
    assert isinstance(mechanism, SetSelection)  # as the plan was checked
    rated = RatedShares.of(mechanism)
    share = domain.most / (2 * len(domain.keys))
    noise = planned(domain, mechanism)
    needed = _GOOD**2 * noise / share**2
    about = f"a key that {share:.0%} rate"
    if n * share**2 < SURE**2 * noise:
        return f"no mean of {about}: that takes {needed:,.0f} reports"
    squares, covariance = rated.balance_moments(share, _MEAN * share, 1)  # type: ignore[arg-type]
    variance = (squares - 2 * _MEAN * covariance + _MEAN**2 * noise) / share**2
    error = (domain.high - domain.low) / 2 * math.sqrt(float(variance) / n)
    text = f"the mean of {about} with a standard error of {error:.3g}"
    if n < needed:
        text += f"; means need {needed - n:,.0f} more reports to be of use"
    return text
