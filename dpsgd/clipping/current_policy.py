"""The clipping policy of the current step, which changes only between steps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dpsgd.clipping.adaptive import QuantileClipping
from dpsgd.clipping.policies import ClippingPolicy, FlatClipping, check_norm
from dpsgd.clipping.schedules import Schedule
from dpsgd.noise.grid import Grid
from dpsgd.noise.sources import NoiseSource
from ldp import InvalidInput


class CurrentPolicy(ClippingPolicy):
    """Clip by the current step's policy, and count norms for the next one if it is adaptive.

    `batch` is the expected size of a logical batch.
    """

    def __init__(self, policy: ClippingPolicy | Schedule, batch: int) -> None:
        self._schedule: Schedule | None = None
        if isinstance(policy, ClippingPolicy):
            self.policy = policy
        else:
            self._schedule, self.policy = policy, FlatClipping(policy(0))
        self._batch = batch
        self._counts: Tensor | None = None

    @property
    def limits(self) -> tuple[float, ...]:
        return self.policy.limits

    def group(self, parameter: str) -> int:
        return self.policy.group(parameter)

    def factors(self, norms: Tensor) -> Tensor:
        if isinstance(self.policy, QuantileClipping):
            counts = self.policy.centred_counts(norms)
            self._counts = counts if self._counts is None else self._counts + counts
        return self.policy.factors(norms)

    def deviations(self, noise_multiplier: float) -> list[float]:
        """Return the deviations of the groups' noise, given the multiplier of the whole release.

        Adaptive clipping releases noisy counts, too, which take a part of it.
        """
        if isinstance(self.policy, QuantileClipping):
            noise_multiplier = self.policy.gradient_noise(noise_multiplier, self._batch)
        return self.policy.deviations(noise_multiplier)

    def counts(self, source: NoiseSource | None) -> list[float]:
        """Return the groups' centred counts, noisy if a `source` is given; 0 unless adaptive."""
        if not isinstance(self.policy, QuantileClipping):
            return [0.0]
        totals = torch.zeros(self.groups, dtype=torch.float64, device="cpu")
        if self._counts is not None:
            totals += self._counts.cpu()
        if source is not None:
            deviation = self.policy.deviation(self._batch)
            source.add_to([totals], Grid.for_sums(0.5, 1, deviation), deviation)
        return totals.tolist()

    def begin(self, step: int) -> None:
        """Take the schedule's norm for `step`, which is about to begin."""
        if self._schedule is not None:
            self.policy = FlatClipping(self._schedule(step))

    def end(self, noisy_counts: Sequence[float], batches: int) -> None:
        """Move to the next policy, after a step of `batches` logical batches."""
        self._counts = None
        if isinstance(self.policy, QuantileClipping):
            self.policy = self.policy.moved(noisy_counts, batches * self._batch)

    def change(self, max_grad_norm: float) -> None:
        """Clip to another norm from now on. Raises `InvalidInput` without a single norm."""
        check_norm("max_grad_norm", max_grad_norm)
        if not isinstance(self.policy, FlatClipping | QuantileClipping) or self.groups > 1:
            raise InvalidInput(f"{type(self.policy).__name__} has no single max_grad_norm")
        self._schedule = None
        self.policy = replace(self.policy, max_grad_norm=max_grad_norm)

    def state_dict(self) -> dict[str, Any]:
        """Return the kind of policy, and its norm, or norms, where they may have changed."""
        norms = None
        if isinstance(self.policy, FlatClipping | QuantileClipping) and self._schedule is None:
            norms = self.limits[0] if self.groups == 1 else list(self.limits)
        return {"kind": self._kind, "max_grad_norm": norms}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise `InvalidInput` for the state of another kind of policy."""
        if state.get("kind") != self._kind:
            raise InvalidInput(
                f"the state's clipping is {state.get('kind')!r}, this run's {self._kind!r}"
            )
        norms = state.get("max_grad_norm")
        if norms is None:
            return
        several = norms if isinstance(norms, list) else [norms]
        if len(several) != self.groups:
            raise InvalidInput(f"the state has {len(several)} norms, this run {self.groups} groups")
        for norm in several:
            check_norm("the state's max_grad_norm", norm)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the clip norms of a checkpoint; call `check_state` first."""
        norms = state.get("max_grad_norm")
        if isinstance(norms, list) and isinstance(self.policy, QuantileClipping):
            self.policy = self.policy.at(norms)
        elif norms is not None:
            self.change(norms)

    @property
    def _kind(self) -> str:
        return "schedule" if self._schedule is not None else type(self.policy).__name__
