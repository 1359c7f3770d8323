"""The clipping policy of the current step, which changes only between steps."""

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
        self._count: Tensor | float = 0.0

    @property
    def groups(self) -> int:  # type: ignore[override]
        return self.policy.groups

    @property
    def sensitivity(self) -> float:
        return self.policy.sensitivity

    def group(self, parameter: str) -> int:
        return self.policy.group(parameter)

    def factors(self, norms: Tensor) -> Tensor:
        if isinstance(self.policy, QuantileClipping):
            self._count = self._count + self.policy.centred_count(norms)
        return self.policy.factors(norms)

    def gradient_noise(self, noise_multiplier: float) -> float:
        """Return the noise multiplier of the gradients, given that of a step's whole release.

        Adaptive clipping releases a noisy count, too, which takes a part of it.
        """
        if isinstance(self.policy, QuantileClipping):
            return self.policy.gradient_noise(noise_multiplier, self._batch)
        return noise_multiplier

    def count(self, source: NoiseSource | None) -> float:
        """Return the centred count of norms, noisy if a `source` is given; 0 unless adaptive."""
        if not isinstance(self.policy, QuantileClipping):
            return 0.0
        total = torch.tensor([float(self._count)], dtype=torch.float64, device="cpu")
        if source is not None:
            deviation = self.policy.deviation(self._batch)
            source.add_to([total], Grid.for_sums(0.5, 1, deviation), deviation)
        return total.item()

    def begin(self, step: int) -> None:
        """Take the schedule's norm for `step`, which is about to begin."""
        if self._schedule is not None:
            self.policy = FlatClipping(self._schedule(step))

    def end(self, noisy_count: float, batches: int) -> None:
        """Move to the next policy, after a step of `batches` logical batches."""
        self._count = 0.0
        if isinstance(self.policy, QuantileClipping):
            self.policy = self.policy.moved(noisy_count, batches * self._batch)

    def change(self, max_grad_norm: float) -> None:
        """Clip to another norm from now on. Raises `InvalidInput` without a single norm."""
        check_norm("max_grad_norm", max_grad_norm)
        if not isinstance(self.policy, FlatClipping):
            raise InvalidInput(f"{type(self.policy).__name__} has no single max_grad_norm")
        self._schedule = None
        self.policy = replace(self.policy, max_grad_norm=max_grad_norm)

    def state_dict(self) -> dict[str, Any]:
        """Return the kind of policy and its norm where that is not given by a schedule."""
        one = isinstance(self.policy, FlatClipping) and self._schedule is None
        return {"kind": self._kind, "max_grad_norm": self.policy.sensitivity if one else None}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise `InvalidInput` for the state of another kind of policy."""
        if state.get("kind") != self._kind:
            raise InvalidInput(
                f"the state's clipping is {state.get('kind')!r}, this run's {self._kind!r}"
            )
        if state.get("max_grad_norm") is not None:
            check_norm("the state's max_grad_norm", state["max_grad_norm"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the clip norm of a checkpoint; call `check_state` first."""
        if state.get("max_grad_norm") is not None:
            self.change(state["max_grad_norm"])

    @property
    def _kind(self) -> str:
        return "schedule" if self._schedule is not None else type(self.policy).__name__
