"""What is drawn, summed and released in one training, and what the accountant is told of it."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from dpsgd.accounting import Accountant
from dpsgd.bookkeeping import Bookkeeper
from dpsgd.clipping import ClippingPolicy, check_norm
from dpsgd.layers import by_sample, rules_for
from dpsgd.noise import GeneratorNoise, Grid, KeystreamNoise, NoisePrefetcher, NoiseSource
from dpsgd.sampling import BatchSampler, Physical
from ldp import Coins, InvalidInput


class Run:
    """Hold a loader, a module and an optimizer to one order: draw, backward, step.

    Several batches may be drawn before a step. Their sum with noise N of deviation s is what
    comes of adding up k releases with noise s / sqrt(k) each, and is accounted for as those.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: Optimizer,
        sampler: BatchSampler,
        policy: ClippingPolicy,
        accountant: Accountant,
        noise_multiplier: float,
        *,
        loss_reduction: str,
        batch_dim: int,
        secure: bool,
        coins: Coins,
    ) -> None:
        self.accountant = accountant
        self.noise_multiplier = noise_multiplier
        self._policy = policy
        self._sampling = sampler.sampling
        self._divisor = float(sampler.batch) if loss_reduction == "mean" else 1.0
        self._part: Physical | None = None
        self._passed = False  # a backward pass of the part at hand has ended
        self._drawn: list[bool] = []  # since the last step, whether records took part anew
        self._least_noise = math.inf  # that the last time records took part was accounted with
        self._keeper = Bookkeeper(
            module,
            rules_for(module, by_sample),
            policy,
            loss_reduction=loss_reduction,
            batch_dim=batch_dim,
            expect=self._expect,
        )
        self._parameters = self._keeper.parameters
        self._managed = {id(p) for p in self._parameters}
        shapes = [p.shape for p in self._parameters]
        device = self._parameters[0].device
        self._noise = NoisePrefetcher(_source(device, secure, coins), shapes, device)
        self._dimensions = sum(shape.numel() for shape in shapes)
        self._secure = secure
        optimizer.register_step_pre_hook(self._before_step)

    def drawn(self, part: Physical) -> None:
        """Take note that the loader hands out a part of a batch."""
        if part.is_first:
            self._drawn.append(part.counts)
        self._part, self._passed = part, False
        self._noise.begin()

    def state_dict(self) -> dict[str, Any]:
        """Return the accountant's state and the noise; raises `InvalidInput` within a step."""
        if self._drawn:
            raise InvalidInput("a batch was drawn and not stepped on: save after optimizer.step()")
        return {
            "version": 1,
            "accountant": self.accountant.state_dict(),
            "noise_multiplier": self.noise_multiplier,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint; raises `InvalidInput` after a step, or for another's state."""
        if self.accountant.history:
            raise InvalidInput("this run has made steps, which a checkpoint would make forgotten")
        if state.get("version") != 1:
            raise InvalidInput(f"expected a state of version 1, got {state.get('version')!r}")
        check_norm("the state's noise_multiplier", state.get("noise_multiplier", math.nan))
        self.accountant.load_state_dict(state["accountant"])
        self.noise_multiplier = state["noise_multiplier"]

    def _expect(self, batch: int) -> None:
        if self._part is None:
            raise InvalidInput("no batch was drawn: iterate over the loader of make_private")
        if batch > self._part.size:
            raise InvalidInput(
                f"the module got {batch} samples where the loader had drawn {self._part.size}: a "
                "record must not be in a batch more than once"
            )
        if self._passed:
            raise InvalidInput(
                "a second backward pass for one batch would clip its records twice: add the "
                "losses up and call backward once"
            )
        self._passed = True

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if any(value is not None for value in (*args[1:], *kwargs.values())):
            raise InvalidInput("a private optimizer steps without a closure")
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in self._managed and parameter.grad is not None:
                    raise InvalidInput(
                        "the optimizer has a gradient of a parameter that was frozen, or not "
                        "there, when make_private was called"
                    )
        if self._part is None or not self._drawn:
            raise InvalidInput("step() without a batch drawn since the last: one batch, one step")
        if not self._part.is_last:
            for parameter in self._parameters:
                parameter.grad = None  # optimizers pass over it
            return
        self._account()
        self._release()

    def _account(self) -> None:
        continued = not self._drawn[0]
        parts = sum(self._drawn) + continued
        share = self.noise_multiplier / math.sqrt(parts)
        new = sum(self._drawn)
        if continued and share < self._least_noise:
            new += 1  # less noise than records of this epoch were promised
        if new:
            self.accountant.step(noise_multiplier=share, sampling=self._sampling, steps=new)
            self._least_noise = share
        self._drawn = []

    def _release(self) -> None:
        sensitivity = self._policy.sensitivity
        deviation = self.noise_multiplier * sensitivity
        grid = Grid.for_sums(sensitivity, self._dimensions) if self._secure else None
        sums = self._keeper.take_sums()

        def add(part: Tensor, noise: Tensor) -> None:
            if grid is None:
                part.add_(noise, alpha=deviation)
            else:
                part.copy_(grid.release(part, noise, deviation))

        self._noise.add_to(sums, add)
        for parameter, noisy in zip(self._parameters, sums, strict=True):
            parameter.grad = noisy.div_(self._divisor).to(parameter.dtype)


def _source(device: torch.device, secure: bool, coins: Coins) -> NoiseSource:
    if secure:
        return KeystreamNoise(coins, torch.float64)
    return KeystreamNoise(coins) if device.type == "cpu" else GeneratorNoise(device)
