"""What only tests and simulations may use: coins that repeat."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ldp.coins import Coins


class SeededCoins(Coins):
    """Replay the same coins for the same seed. NOT private: never use it on a person's answer.

    Unlike `Coins` it holds state, so it is not safe to share between threads.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(seed))

    def _bytes(self, count: int) -> bytes:
        return self._generator.bytes(count)

    def stream(self) -> Callable[[NDArray[np.uint64]], None]:
        return self.fill
