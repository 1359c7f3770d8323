"""The clipping policy of the current step, which changes only between steps."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dpsgd.clipping.adaptive import QuantileClipping, centred_counts
from dpsgd.clipping.policies import ClippingPolicy, FlatClipping
from dpsgd.clipping.schedules import Schedule
from dpsgd.noise.grid import Grid
from dpsgd.noise.sources import NoiseSource
from ldp import InvalidInput

Clipping = float | Schedule | ClippingPolicy | QuantileClipping
"""What a training clips by; a number is the norm of `FlatClipping`."""


class CurrentPolicy(ClippingPolicy):
    """Clip by the current step's policy, and count norms for the next one if it is adaptive.

    `batch` is the expected size of a logical batch, `values` the number of values that are trained.
    """

    def __init__(self, clipping: Clipping, batch: int, values: int) -> None:
        self._schedule = clipping if callable(clipping) else None
        self._adaptive = clipping if isinstance(clipping, QuantileClipping) else None
        first = clipping.first if isinstance(clipping, QuantileClipping) else clipping
        first = first(0) if callable(first) else first
        self.policy = first if isinstance(first, ClippingPolicy) else FlatClipping(first)
        self._batch, self._values = batch, values
        self._counts: Tensor | None = None

    @property
    def limits(self) -> tuple[float, ...]:
        return self.policy.limits

    def group(self, parameter: str) -> int:
        return self.policy.group(parameter)

    def factors(self, norms: Tensor) -> Tensor:
        if self._adaptive:
            counts = centred_counts(norms, self.limits)
            self._counts = counts if self._counts is None else self._counts + counts
        return self.policy.factors(norms)

    def deviations(self, noise_multiplier: float) -> list[float]:
        """Return the deviations of the groups' noise; noisy counts take their part of it."""
        if self._adaptive:
            noise_multiplier = self._adaptive.gradient_noise(noise_multiplier, self._batch)
        return self.policy.deviations(noise_multiplier)

    def grids(self, deviations: list[float]) -> list[Grid]:
        """Return the grids of the groups' sums with this noise; raises `InvalidInput` for none."""
        return [
            Grid.for_sums(limit, self._values, deviation)
            for limit, deviation in zip(self.limits, deviations, strict=True)
        ]

    def counts(self, source: NoiseSource | None) -> list[float]:
        """Return the groups' centred counts, noisy if a `source` is given; 0 unless adaptive."""
        if not self._adaptive:
            return [0.0]
        totals = torch.zeros(self.groups, dtype=torch.float64, device="cpu")
        totals += 0 if self._counts is None else self._counts.cpu()
        if source is not None:
            deviation = self._adaptive.deviation(self._batch)
            source.add_to([totals], Grid.for_sums(0.5, 1, deviation), deviation)
        return totals.tolist()

    def begin(self, step: int) -> None:
        """Take the schedule's norm for `step`, which is about to begin."""
        if self._schedule is not None:
            self.policy = FlatClipping(self._schedule(step))

    def end(self, noisy_counts: Sequence[float], batches: int) -> None:
        """Move to the next policy, after a step of `batches` logical batches."""
        self._counts = None
        if (adaptive := self._adaptive) is not None:
            each = zip(self.limits, noisy_counts, strict=True)
            self.policy = self.policy.at(
                [adaptive.moved(limit, count, batches * self._batch) for limit, count in each]
            )

    def change(self, max_grad_norm: float) -> None:
        """Clip to another norm from now on. Raises `InvalidInput` without a single norm."""
        if not isinstance(self.policy, FlatClipping):
            raise InvalidInput(f"{type(self.policy).__name__} has no single max_grad_norm")
        self.policy, self._schedule = FlatClipping(max_grad_norm), None

    def state_dict(self) -> dict[str, Any]:
        """Return the kind of clipping, and its norm or norms where no schedule gives them."""
        norms = self.limits[0] if self.groups == 1 else list(self.limits)
        return {"kind": self._kind, "max_grad_norm": None if self._schedule else norms}

    def restored(self, state: dict[str, Any]) -> ClippingPolicy:
        """Return the policy of a checkpoint; raises `InvalidInput` for that of another kind."""
        norms = state.get("max_grad_norm")
        several: list[Any] = norms if isinstance(norms, list) else [norms]
        if (kind := state.get("kind")) != self._kind:
            raise InvalidInput(f"the state's clipping is {kind!r}, this run's {self._kind!r}")
        if norms is None:
            return self.policy
        if len(several) != self.groups:
            raise InvalidInput(f"the state has {len(several)} norms, this run {self.groups} groups")
        return self.policy.at(several)

    @property
    def _kind(self) -> str:
        return "schedule" if self._schedule else type(self._adaptive or self.policy).__name__
