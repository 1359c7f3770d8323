"""An explicit channel for the mean of a number, under a policy."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from ldp.core.policy import Ratios
from ldp.mechanisms.numbers.mean_table import MeanTable
from ldp.mechanisms.policies.base import PolicyMechanism


@dataclass(frozen=True)
class PolicyMeanTable(PolicyMechanism, MeanTable):
    """A `MeanTable` whose grid points are protected from each other as a policy says.

    A number between two grid points is reported from one of them, at random, so its row is a
    mixture of theirs. `ldp.planning.graded` says which policy on the grid protects all numbers
    of a region, or by their distance.
    Guarantee: `policy`, for every code and every two grid points; see `PolicyMechanism`.
    Cost: that of `MeanTable`, and the policy's integers in a plan.
    Raises `InvalidInput` as `MeanTable` does, and where the policy is not kept.
    """

    name: ClassVar[str] = "policy_mean_table"
    policy: tuple[int, ...]

    @property
    def inputs(self) -> int:
        return self.grid + 1

    @cached_property
    def _ratios(self) -> Ratios:
        return self.promise.ratios(self._rows)
