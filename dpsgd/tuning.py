"""Choosing hyperparameters privately: train several times, release the best run alone."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from dpsgd.accounting import Accountant
from dpsgd.accounting.accountant import check_guarantee
from dpsgd.accounting.events import Event, Unsampled
from dpsgd.accounting.selection import BestOf
from ldp import Coins, InvalidInput

C = TypeVar("C")
M = TypeVar("M")


@dataclass(frozen=True)
class Best(Generic[C, M]):
    """The best run: its candidate, what `train` made of it, its score, and the choice's event."""

    candidate: C
    model: M
    score: float
    event: BestOf


def best_of(
    train: Callable[[C], tuple[M, Accountant]],
    candidates: Sequence[C],
    score: Callable[[M], float],
    *,
    account: Callable[[C], Accountant],
    mean: int = 20,
    coins: Coins | None = None,
) -> Best[C, M]:
    """Train with random candidates, `mean` times on average, and return the run of highest score.

    Each run draws a candidate uniformly, calls `train`, which returns a model and its accountant,
    and then `score` of the model. After each run another follows unless an exact uniform integer
    in 0..mean-1 is 0. A score of nan is the lowest; of equal scores the first is the best.

    `account` says, before any run and without the data, what a run of each candidate releases at
    most: all that `train` and `score` learn from private data. A score on private data is released
    by its own private mechanism, whose event is in both accountants.

    Formal guarantee: the returned `Best` is one release, of the event `Best.event`, which
    `accountant.record` adds to others. That is so only if nothing else is seen: not the number of
    runs, nor their time, other models or other scores.

    Raises `InvalidInput` without candidates, for a bad mean, where an accountant's figures are no
    guarantees or of another relation, and where a run released more than `account` says.
    Source: Papernot and Steinke, ICLR 2022, algorithm 1; see `BestOf`.
    """
    planned = [account(candidate) for candidate in candidates]
    if not planned:
        raise InvalidInput("best_of needs candidates, got none")
    for accountant in planned:
        check_guarantee(accountant)
    if len({accountant.relation for accountant in planned}) > 1:
        raise InvalidInput("account must return accountants of one relation for all candidates")
    most = [_releases(accountant) for accountant in planned]  # a run may change an accountant
    event = BestOf([p.history for p in planned], planned[0].relation, mean)
    coins = coins or Coins()
    best: Best[C, M] | None = None
    another = True
    while another:
        chosen = coins.below(len(candidates))
        model, spent = train(candidates[chosen])
        found = float(score(model))
        if spent.relation is not event.relation or not _releases(spent) <= most[chosen]:
            raise InvalidInput(
                f"account says that a run releases {dict(most[chosen])} under "
                f"{event.relation.name}, but it released {spent.history} under "
                f"{spent.relation.name}"
            )
        found = -math.inf if math.isnan(found) else found
        if best is None or found > best.score:
            best = Best(candidates[chosen], model, found, event)
        another = coins.below(mean) > 0
    assert best is not None
    return best


def _releases(accountant: Accountant) -> Counter[Event | Unsampled]:
    counts: Counter[Event | Unsampled] = Counter()
    for event in accountant.history:
        counts[replace(event, steps=1)] += event.steps
    return counts
