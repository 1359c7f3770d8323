"""Reproducible coins, for tests and simulations only."""

from threading import Lock

import numpy as np

from ldp.core.coins import Coins

_AHEAD = 1 << 12
"""Bytes drawn at once, for many small requests: a multiple of four."""


class SeededCoins(Coins):
    """Replay the same coins for the same seed. NOT private: never use it on a person's answer.

    Unlike `Coins` it holds state: threads that share it draw in no certain order.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(seed))
        self._ahead = b""
        self._lock = Lock()

    def _bytes(self, count: int) -> bytes:
        taken = -(-count // 4) * 4  # the generator yields 32 bits at a time
        with self._lock:
            if taken > len(self._ahead):
                self._ahead += self._generator.bytes(taken + _AHEAD)
            drawn, self._ahead = self._ahead[:count], self._ahead[taken:]
        return drawn
