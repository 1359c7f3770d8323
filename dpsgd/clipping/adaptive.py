"""Adaptive clipping: a clip norm that follows a quantile of the per-sample gradient norms."""

import math
from dataclasses import dataclass, replace

from torch import Tensor

from dpsgd.clipping.policies import FlatClipping, check_norm
from ldp import InvalidInput


@dataclass(frozen=True)
class QuantileClipping(FlatClipping):
    """Clip to a norm C, and move C towards the `quantile` of the gradients' norms.

    Each step also releases how many gradients were no longer than C: each adds half if so and
    minus half if not, so that a record moves the count by a half, and the count gets noise of
    deviation `count_noise` (by default a twentieth of the expected batch). Then C is multiplied by
    exp(-rate * (share - quantile)), for the next step: gradients get noise for the C that clipped
    them.

    Formal guarantee: with the gradients' multiplier of `gradient_noise`, gradients and count
    together are one Gaussian release with the noise multiplier that was asked for.

    Source: Andrew, Thakkar, McMahan and Ramaswamy, "Differentially private learning with adaptive
    clipping", NeurIPS 2021, algorithm 1 and theorem 1. Raises `InvalidInput` unless max_grad_norm
    (the first C), rate and count_noise are finite and > 0 and 0 < quantile < 1.
    """

    quantile: float = 0.5
    rate: float = 0.2
    count_noise: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_norm("rate", self.rate)
        check_norm("quantile", self.quantile)
        if self.quantile >= 1:
            raise InvalidInput(f"quantile must lie between 0 and 1, got {self.quantile}")
        if self.count_noise is not None:
            check_norm("count_noise", self.count_noise)

    def centred_count(self, norms: Tensor) -> Tensor:
        """Return the sum over samples of a half where the norm is at most C, else minus a half."""
        return (norms <= self.max_grad_norm).double().sub_(0.5).sum()

    def deviation(self, batch: int) -> float:
        """Return the standard deviation of the count's noise, for batches of this size."""
        return batch / 20 if self.count_noise is None else self.count_noise

    def gradient_noise(self, noise_multiplier: float, batch: int) -> float:
        """Return the gradients' noise multiplier that leaves room for the count.

        Raises `InvalidInput` where the count alone costs as much as all may.
        """
        most = 2 * self.deviation(batch)
        if noise_multiplier >= most:
            raise InvalidInput(
                f"noise_multiplier must be below twice the count's noise ({most:g}), got "
                f"{noise_multiplier:g}: take larger batches, or a larger count_noise"
            )
        return 1 / math.sqrt(noise_multiplier**-2 - most**-2)

    def moved(self, noisy_count: float, samples: int) -> "QuantileClipping":
        """Return the next step's policy, from the noisy count over `samples` expected samples."""
        share = 0.5 + noisy_count / samples
        step = math.exp(-self.rate * (share - self.quantile))
        return replace(self, max_grad_norm=self.max_grad_norm * step)
