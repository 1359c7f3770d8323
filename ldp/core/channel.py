"""A finite channel: the exact conditional distribution of a mechanism's codes."""

from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction

from ldp.core.exact import certainly_at_most, log_upper
from ldp.errors import InvalidInput

MAX_OUTPUTS = 1 << 16
"""Channels with more outputs are not enumerated."""


@dataclass(frozen=True)
class Channel:
    """`Q[x][y]` = Pr[code y | input x], in exact rationals.

    `outputs` names the codes in column order; `rows` has one row per input, each as long as
    `outputs` and summing to exactly one. Raises `InvalidInput` otherwise.
    """

    outputs: tuple[Hashable, ...]
    rows: tuple[tuple[Fraction, ...], ...]

    def __post_init__(self) -> None:
        for x, row in enumerate(self.rows):
            if len(row) != len(self.outputs):
                raise InvalidInput(f"row {x} has {len(row)} entries for {len(self.outputs)} codes")
            if sum(row) != 1 or min(row) < 0:
                raise InvalidInput(f"row {x} is not a distribution: it sums to {sum(row)}")

    @property
    def worst_ratio(self) -> Fraction | None:
        """The largest `Q[x][y] / Q[x'][y]`, or None where a code rules an input out."""
        worst = Fraction(1)
        for column in zip(*self.rows, strict=True):
            low, high = min(column), max(column)
            if high == 0:
                continue
            if low == 0:
                return None
            worst = max(worst, high / low)
        return worst

    @property
    def epsilon(self) -> float:
        """The smallest double certainly >= the channel's exact epsilon; inf if there is none."""
        worst = self.worst_ratio
        return float("inf") if worst is None else log_upper(worst)

    def satisfies(self, epsilon: float) -> bool:
        """Tell, in exact arithmetic, whether the channel is epsilon-LDP."""
        worst = self.worst_ratio
        return worst is not None and certainly_at_most(worst, epsilon)
