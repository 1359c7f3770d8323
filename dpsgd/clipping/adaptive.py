"""Adaptive clipping: clip norms that follow a quantile of the per-sample gradient norms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from dpsgd.accounting.events import check_positive
from dpsgd.clipping.policies import FlatClipping, PerLayerClipping
from ldp import InvalidInput


@dataclass(frozen=True)
class QuantileClipping:
    """Clip to a norm C, and move C towards the `quantile` of the gradients' norms.

    Each step also releases how many gradients were no longer than C: each adds half if so and
    minus half if not, and the count gets noise of deviation `count_noise` (by default a twentieth
    of the expected batch). Then C is multiplied by exp(-rate * (share - quantile)), for the next
    step. With a `PerLayerClipping` in the place of the first C each group has a count of its own.

    Formal guarantee: with the gradients' multiplier of `gradient_noise`, gradients and counts
    together are one Gaussian release with the noise multiplier that was asked for.

    Source: Andrew, Thakkar, McMahan and Ramaswamy, "Differentially private learning with adaptive
    clipping", NeurIPS 2021, algorithm 1 and theorem 1. Raises `InvalidInput` unless max_grad_norm
    (the first C), rate and count_noise are finite and > 0 and 0 < quantile < 1.
    """

    max_grad_norm: float | PerLayerClipping
    quantile: float = 0.5
    rate: float = 0.2
    count_noise: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.max_grad_norm, PerLayerClipping):
            check_positive("max_grad_norm", self.max_grad_norm)
        check_positive("rate", self.rate)
        check_positive("quantile", self.quantile)
        if self.quantile >= 1:
            raise InvalidInput(f"quantile must lie between 0 and 1, got {self.quantile}")
        if self.count_noise is not None:
            check_positive("count_noise", self.count_noise)

    @property
    def first(self) -> FlatClipping | PerLayerClipping:
        """The policy of the first step."""
        norm = self.max_grad_norm
        return norm if isinstance(norm, PerLayerClipping) else FlatClipping(norm)

    def deviation(self, batch: int) -> float:
        """Return the standard deviation of a count's noise, for batches of this size."""
        return batch / 20 if self.count_noise is None else self.count_noise

    def gradient_noise(self, noise_multiplier: float, batch: int) -> float:
        """Return the gradients' noise multiplier that leaves room for the counts.

        A record moves m counts by sqrt(m) / 2 together. Raises `InvalidInput` where the counts
        alone cost as much as all may.
        """
        most = 2 * self.deviation(batch) / math.sqrt(self.first.groups)
        if noise_multiplier >= most:
            raise InvalidInput(
                "noise_multiplier must be below twice the count's noise over the root of the "
                f"number of groups ({most:g}), got {noise_multiplier:g}: take larger batches, or a "
                "larger count_noise"
            )
        return 1 / math.sqrt(noise_multiplier**-2 - most**-2)

    def moved(self, limit: float, noisy_count: float, samples: int) -> float:
        """Return a group's next norm, from its noisy count over `samples` expected samples."""
        return limit * math.exp(-self.rate * (0.5 + noisy_count / samples - self.quantile))


def centred_counts(norms: Tensor, limits: Sequence[float]) -> Tensor:
    """Return a half for each norm, of shape (groups, b), at most its limit, less one for others."""
    return (norms <= norms.new_tensor(limits)[:, None]).double().sub_(0.5).sum(1)
