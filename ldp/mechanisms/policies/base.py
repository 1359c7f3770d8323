"""Mechanisms that keep a policy instead of one epsilon for all pairs of values."""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ldp.core.coins import Coins
from ldp.core.exact import ONE
from ldp.core.mechanism import Categorical, Mechanism
from ldp.core.policy import UNLIMITED, Policy, Ratios
from ldp.errors import InvalidInput
from ldp.mechanisms.frequency.table import ChannelTable
from ldp.mechanisms.tools.sampling import draw_many, thresholds


class PolicyMechanism(Mechanism):
    """A mechanism whose guarantee is the `Policy` that it carries among its integers.

    `epsilon` bounds the policy's largest finite distance and `realised_epsilon` is the
    integers' epsilon for pairs at finite distance: neither says anything about pairs at infinite
    distance, so this is epsilon-LDP only for a policy without any. Built from integers it
    verifies in exact arithmetic that every pair of values keeps its distance; a client that was
    promised a policy compares it with `promise`, by `Policy.implies`.
    """

    guarantee = "policy"
    policy: tuple[int, ...]

    @property
    @abstractmethod
    def inputs(self) -> int:
        """The number of inputs of the channel, which the policy is for."""

    @cached_property
    def promise(self) -> Policy:
        """The policy that the mechanism keeps."""
        policy = Policy.from_integers(self.policy)
        if policy.k != self.inputs:
            raise InvalidInput(
                f"{self.name}: the policy is for {policy.k} values, the channel has {self.inputs}"
            )
        return policy

    @cached_property
    @abstractmethod
    def _ratios(self) -> Ratios:
        """The largest exact ratio between two values, by pair of classes."""

    def _worst_ratio(self) -> Fraction:
        return self.promise.worst(self._ratios)

    @property
    def is_mutual(self) -> bool:
        return self.promise.is_mutual

    def protected_pairs(self) -> NDArray[np.bool_]:
        finite = np.array([[d != UNLIMITED for d in row] for row in self.promise.distances])
        classes = np.array(self.promise.classes)
        pairs: NDArray[np.bool_] = finite[classes[:, None], classes]
        return pairs

    def _check_privacy(self) -> None:
        if self.promise.epsilon > self.epsilon:
            raise InvalidInput(
                f"{self.name}: the policy lets values be told apart by "
                f"{self.promise.epsilon:.6g}, more than the {self.epsilon:g} it was meant for"
            )
        self.promise.check_ratios(self._ratios, self.name)


class PolicyCategorical(PolicyMechanism, Categorical):
    """A mechanism for categories that keeps a policy."""

    @property
    def inputs(self) -> int:
        return self.k


@dataclass(frozen=True)
class PolicyTable(PolicyCategorical, ChannelTable):
    """Report code y for category x with probability weights[m x + y] / 2**64, as a policy allows.

    A `ChannelTable` of which weights may be zero: a code may rule a value out where the policy
    puts its value infinitely far from it. Tally and estimate are the table's.
    Guarantee: `policy`, for every code and every two values; see `PolicyMechanism`.
    Cost: one code of 1 or 2 bytes; k m integers in a plan; one search in a row for a report.
    Raises `InvalidInput` unless 2 <= k <= m, k m <= 2**16, each row sums to 2**64, every code is
    possible, the rows are linearly independent, and the policy is kept.
    Source: Murakami and Kawamoto 2019 and Acharya et al. 2020 (see `Policy`) for the channels.
    """

    name: ClassVar[str] = "policy_table"
    policy: tuple[int, ...] = ()

    def _check_rows(self) -> None:
        for x, row in enumerate(self._rows):
            if sum(row) != ONE or max(row) == ONE:
                raise InvalidInput(
                    f"{self.name}: row {x} must sum to 2**64, of weights below it, got {sum(row)}"
                )
        for y, column in enumerate(zip(*self._rows, strict=True)):
            if not any(column):
                raise InvalidInput(f"{self.name}: no category can cause code {y}")

    @cached_property
    def _possible(self) -> tuple[NDArray[np.intp], ...]:
        return tuple(np.flatnonzero(np.array(row, dtype=object)) for row in self._rows)

    @cached_property
    def _thresholds(self) -> tuple[NDArray[np.uint64], ...]:
        return tuple(thresholds(self.name, [w for w in row if w]) for row in self._rows)

    def _draw(self, value: int, n: int, coins: Coins) -> NDArray[np.intp]:
        drawn: NDArray[np.intp] = self._possible[value][
            draw_many(self._thresholds[value], n, coins)
        ]
        return drawn

    @cached_property
    def _ratios(self) -> Ratios:
        return self.promise.ratios(self._rows)
