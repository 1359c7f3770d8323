"""Coins that come up in every way, so that code that randomises can be enumerated exactly."""

from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ldp import Coins
from ldp.core.exact import ONE

Distribution = dict[bytes, Fraction]
Outcome = TypeVar("Outcome", bound=Hashable)


class BranchingCoins(Coins):
    """Coins of one path through a tree of choices; past its end, the first choice each time.

    Of the bits of `toss` and `bernoulli_bytes` only the first `bits` of a byte are drawn, the rest
    are 0.
    """

    def __init__(self, path: list[int], bits: int) -> None:
        super().__init__()
        self.chance = Fraction(1)
        self.taken: list[int] = []
        self.widths: list[int] = []
        self._path, self._bits = path, bits

    def _choose(self, chances: list[Fraction]) -> int:
        at = len(self.taken)
        choice = self._path[at] if at < len(self._path) else 0
        self.taken.append(choice)
        self.widths.append(len(chances))
        self.chance *= chances[choice]
        return choice

    def bernoulli(self, threshold: int) -> bool:
        if threshold in (0, ONE):  # one way only
            return threshold == ONE
        heads = Fraction(threshold, ONE)
        return self._choose([1 - heads, heads]) == 1

    def bernoulli_many(self, threshold: int, n: int) -> NDArray[np.bool_]:
        return np.array([self.bernoulli(threshold) for _ in range(n)], dtype=np.bool_)

    def bernoulli_bytes(self, threshold: int, n: int) -> NDArray[np.uint8]:
        drawn = [
            sum(self.bernoulli(threshold) << bit for bit in range(self._bits)) for _ in range(n)
        ]
        return np.array(drawn, dtype=np.uint8)

    def toss(self, threshold: int, n: int) -> NDArray[np.uint8]:
        return self.bernoulli_bytes(threshold, n)

    def below(self, bound: int) -> int:
        return self._choose([Fraction(1, bound)] * bound)

    def below_many(self, bound: int, n: int) -> NDArray[np.uint32]:
        return np.array([self.below(bound) for _ in range(n)], dtype=np.uint32)

    def words(self, n: int) -> NDArray[Any]:
        raise NotImplementedError("what draws words has too many ways to enumerate")

    _bytes = words  # type: ignore[assignment]


def distribution(run: Callable[[Coins], Outcome], bits: int) -> dict[Outcome, Fraction]:
    """Return what `run` returns, each with its exact probability."""
    found: dict[Outcome, Fraction] = {}
    path: list[int] | None = []
    while path is not None:
        coins = BranchingCoins(path, bits)
        outcome = run(coins)
        found[outcome] = found.get(outcome, Fraction(0)) + coins.chance
        path = None
        for at in reversed(range(len(coins.taken))):
            if coins.taken[at] + 1 < coins.widths[at]:
                path = [*coins.taken[:at], coins.taken[at] + 1]
                break
    assert sum(found.values()) == 1
    return found
