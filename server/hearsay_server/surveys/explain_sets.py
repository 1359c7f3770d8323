"""What the sets and ratings of a survey will tell, before it is registered."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from hearsay.plans.kinds import ByKind, Ratings, SetOf
from hearsay.plans.plan import Plan
from hearsay_server.surveys.question import half_as_many, planned
from ldp import Mechanism, SetBits, SetSelection
from ldp.estimating.ratings import SURE, RatedShares
from ldp.estimating.sets import can_pair

_MEAN = 0.3
"""The mean rating on [-1, 1] for which the error of a mean is predicted."""

_GOOD = 5.0
"""Standard errors of the share who rate a key from which its mean is of use."""

_Told = Callable[[Any, Mechanism, float], str]
"""What so many reports will tell of an attribute."""


def lines(plan: Plan, users: int) -> list[str]:
    """Return lines on each set and each table of ratings, at each level with so many users."""
    found = [
        line
        for name, attribute in plan.attributes.items()
        if (told := _TOLD[attribute.domain])
        for line in _lines(plan, name, attribute.domain, told, users)
    ]
    if found:
        found.append(
            "errors below are those of an item's share, and of the share who rate a key, if half "
            "as many apply as may"
        )
    return found


def _lines(plan: Plan, name: str, domain: Any, told: _Told, users: int) -> Iterator[str]:
    if domain.most < len(domain.labels):
        more = (
            f"of more, {domain.most} drawn at random count, and shares come out too small"
            if domain.clamp
            else "an answer of more is replaced by a random one"
        )
        yield f"{name}: at most {domain.most} {domain.item}s; {more}"
    for level in plan.levels.values():
        mechanism = level.mechanisms.get(name)
        if mechanism is None:
            continue  # it is asked in a view
        place = list(level.mechanisms).index(name)
        n = users * level.budget.chances[place] / (1 << 64)
        yield f"{name} at {level.name}: {told(domain, mechanism, n)}"


def _items(domain: SetOf, mechanism: Mechanism, n: float) -> str:
    if isinstance(mechanism, SetBits):
        return "the mean number of items, neither sizes nor pairs"
    return "sizes and pairs" if can_pair(mechanism) else "sizes; pairs with set_pairs"


def _ratings(domain: Ratings, mechanism: Mechanism, n: float) -> str:
    """Say how well a mean is told of a key that half as many people rate as may."""
    assert isinstance(mechanism, SetSelection)  # as the plan was checked
    rated = RatedShares.of(mechanism)
    share = half_as_many(domain)
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


_TOLD: ByKind[_Told | None] = ByKind(
    category=None, number=None, bins=None, set=_items, ratings=_ratings, words=None, grid=None
)
"""What is told of the kinds that have several items; None of the others."""
