"""One private training: its batches, sums and releases, and their accounting."""

import math
import os
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from dpsgd.accounting import Accountant, Event
from dpsgd.accounting.events import check_positive
from dpsgd.clipping.clipped_sums import Bookkeeper
from dpsgd.clipping.current_policy import CurrentPolicy
from dpsgd.clipping.schedules import Schedule
from dpsgd.clipping.taps import tap_layers
from dpsgd.layers import fallback, rules_for
from dpsgd.layers.embedding import padding_rows
from dpsgd.noise.grid import Grid
from dpsgd.noise.sources import GeneratorNoise, KeystreamNoise, NoiseSource
from dpsgd.training.distributed import Ranks
from dpsgd.training.optimizers import AdamBC
from dpsgd.training.sampling import BatchSampler, Physical
from ldp import Coins, InvalidInput


class Remaining(NamedTuple):
    """What is left of a budget."""

    epsilon: float
    """Between what all releases have spent and the budget, at its delta."""
    steps: int
    """How many more steps with the present noise fit; of shuffled batches, how many epochs."""


class Run:
    """Enforce one order on a loader, a module and an optimizer: draw, backward, step.

    Several batches may be used before a step. Their sum with noise of deviation s is the
    sum of k releases with noise s / sqrt(k) each, and is accounted for as k releases.

    A batch is used when a backward pass of it has ended, or an optimizer steps on it. What is
    computed from a part without records, which the loader fills up with record 0, is dropped before
    it meets a sum.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: Optimizer,
        sampler: BatchSampler,
        clipping: CurrentPolicy,
        accountant: Accountant,
        noise: float | Schedule,
        *,
        loss_reduction: str,
        batch_dim: int,
        secure: bool,
        coins: Coins,
        ranks: Ranks,
    ) -> None:
        self.accountant = accountant
        self.clipping = clipping
        self.noise = noise
        self._process = os.getpid()
        self._steps = 0  # steps that the optimizer has made
        self._inside = 0  # calls of step under way, since a subclass's may call its parent's
        self.ranks = ranks
        self._sampling = sampler.sampling
        self._divisor = float(sampler.batch) if loss_reduction == "mean" else 1.0
        self._part: Physical | None = None
        self._passed = False  # a backward pass of the part at hand has ended
        self._draw = 0  # number of the batch that part belongs to
        self._round = 0  # number of passes that may use all records: batches, or shuffled epochs
        self._used: dict[int, int] = {}  # batches since the last step, with their rounds
        self._exhausted = False  # the budget refused the last step
        self._least_noise = math.inf  # with which this round was accounted for
        self.parts: dict[str, Any] = {"module": module, "optimizer": optimizer}
        self._keeper = Bookkeeper(
            module,
            clipping,
            loss_reduction=loss_reduction,
            batch_dim=batch_dim,
            expect=self._expect,
        )
        tap_layers(self._keeper, rules_for(module), fallback)
        self._padding = padding_rows(module)
        self._groups: dict[nn.Parameter, int] = {
            p: clipping.group(name) for name, p in module.named_parameters() if p.requires_grad
        }
        self._noise: NoiseSource | None = None
        self._count_noise: NoiseSource | None = None
        if ranks.rank == 0:  # noise is there once
            device = self._keeper.anchor.device
            self._noise = self._count_noise = KeystreamNoise(coins)
            if device.type != "cpu" and not secure:
                self._noise = GeneratorNoise(device)
        optimizer.register_step_pre_hook(self._before_step)
        optimizer.register_step_post_hook(self._after_step)

    @property
    def noise_multiplier(self) -> float:
        """The noise multiplier of the next step."""
        return self.noise(self._steps) if callable(self.noise) else self.noise

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InvalidInput(
            "a private run cannot be copied or pickled, as the copy would train without privacy: "
            "use save_checkpoint, and make_private in the process that trains"
        )

    @property
    def unseen(self) -> int:
        """How many batches were drawn since the module was last called with one."""
        return self._keeper.drawn - self._keeper.seen

    def drawn(self, part: Physical) -> None:
        """Record that the loader hands out a part of a batch."""
        if part.is_first:
            if not self._used:
                self.clipping.begin(self._steps)
            self._draw += 1
            if part.counts:
                self._round += 1
                self._least_noise = math.inf
        self._part, self._passed, self._inside = part, False, 0
        if self.ranks.size > 1:  # all processes must count alike
            self._used[self._draw] = self._round
        self._keeper.begin(part.size or 1)

    def remaining(self) -> Remaining:
        """Return what is left of the budget."""
        event = Event(self.noise_multiplier, self._sampling, 1)
        return Remaining(*self.accountant.remaining(event))

    def change_norm(self, max_grad_norm: float) -> None:
        """Clip to another norm; raises `InvalidInput` where a batch may be clipped already."""
        if self._used:
            raise InvalidInput(
                "a batch was used, and noise must be for the norm that clips it: set "
                "max_grad_norm after optimizer.step()"
            )
        self.clipping.change(max_grad_norm)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint; raises `InvalidInput` within a step."""
        if self._used and not self._exhausted:
            raise InvalidInput(
                "a batch was used and not stepped on: save after optimizer.step() for its last part"
            )
        return {
            "version": 1,
            "accountant": self.accountant.state_dict(),
            "steps": self._steps,
            "noise_multiplier": None if callable(self.noise) else self.noise,
            "clipping": self.clipping.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a checkpoint; raises `InvalidInput` once a batch was used, or for another's."""
        if self._used:
            raise InvalidInput(
                "a batch was used, and noise must be for the norm that clips it: load the "
                "checkpoint before the first backward pass"
            )
        if not isinstance(state, dict):
            raise InvalidInput(f"the state must be a dict, got {state!r}")
        if state.get("version") != 1:
            raise InvalidInput(f"expected a state of version 1, got {state.get('version')!r}")
        noise, steps = state.get("noise_multiplier"), state.get("steps")
        if (noise is None) != callable(self.noise):
            raise InvalidInput(
                f"the state's noise_multiplier is {noise!r} (None: by a schedule), this run's "
                f"{self.noise!r}: give make_private what it was given then"
            )
        if noise is not None:
            check_positive("the state's noise_multiplier", noise)
        if not isinstance(steps, int) or steps < 0:
            raise InvalidInput(f"the state's steps must be an integer >= 0, got {steps!r}")
        for key in ("clipping", "accountant"):
            if not isinstance(state.get(key), dict):
                raise InvalidInput(f"the state's {key} must be a dict, got {state.get(key)!r}")
        policy = self.clipping.restored(state["clipping"])
        self.accountant.load_state_dict(state["accountant"])
        self.clipping.policy = policy
        self.noise = self.noise if noise is None else noise
        self._steps = steps

    def _expect(self, batch: int) -> bool:
        if self._part is None:
            raise InvalidInput(
                "no batch was drawn since the last step: iterate over the loader of make_private"
            )
        if batch != (handed := self._part.size or 1):
            raise InvalidInput(
                f"the module got {batch} samples where the loader had handed out {handed}: "
                "records are told apart by their places, so give it the whole batch at once, each "
                "record once; for smaller batches set max_physical_batch_size"
            )
        if self._passed:
            raise InvalidInput(
                "a second backward pass for one batch would clip its records twice: add the "
                "losses up and call backward once"
            )
        self._passed = True
        self._used[self._draw] = self._round
        return self._part.size > 0

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any]:
        if os.getpid() != self._process:
            raise InvalidInput(
                "step() in a fork of the process that called make_private, of which that one's "
                "account knows nothing: call make_private in the process that trains"
            )
        closures = [value for value in (*args[1:], *kwargs.values()) if value is not None]
        changed = args, kwargs
        if closures:  # it makes the forward and the backward pass, which the sums must have seen
            with torch.enable_grad():
                loss = closures[0]()
            changed = (optimizer,), {"closure": lambda: loss}
        given = (p for group in optimizer.param_groups for p in group["params"])
        if any(p not in self._groups and p.grad is not None for p in given):
            raise InvalidInput(
                "the optimizer has a gradient of a parameter that was frozen, or not "
                "there, when make_private was called"
            )
        if self._inside:  # the sums were released when the outermost call began
            self._inside += 1
            return changed
        if self._part is None:
            raise InvalidInput("step() without a batch drawn since the last: one batch, one step")
        if not self._part.is_last:
            for parameter in self._groups:
                parameter.grad = None  # optimizers pass over it
            return changed
        self._used[self._draw] = self._round
        multiplier, batches = self.noise_multiplier, len(self._used)
        check_positive("noise_multiplier", multiplier)
        deviations = self.clipping.deviations(multiplier)
        grids = self.clipping.grids(deviations)
        agreed = {"max_grad_norm": self.clipping.sensitivity, "batches": batches}
        counts = [
            self.ranks.total(count, noise_multiplier=multiplier, **agreed)
            for count in self.clipping.counts(self._count_noise)
        ]
        # From here on the release may have been seen, even if a later line fails. A budget that
        # refuses it changes nothing: the batch waits for a step with more noise, which may fit.
        self._account(multiplier)
        self._release(deviations, grids)
        self.clipping.end(counts, batches)
        self._steps += 1
        self._inside = 1
        if isinstance(optimizer, AdamBC):
            optimizer.noise_deviations = {
                p: deviations[group] / self._divisor for p, group in self._groups.items()
            }
        return changed

    def _after_step(self, *_: Any) -> None:
        self._inside = max(0, self._inside - 1)

    def _account(self, multiplier: float) -> None:
        rounds = len(set(self._used.values()))
        share = multiplier / math.sqrt(rounds)
        # A round that goes on was accounted for in a step before, if that had no more noise.
        if share < self._least_noise:
            self._exhausted = True
            self.accountant.step(noise_multiplier=share, sampling=self._sampling, steps=rounds)
            self._least_noise, self._exhausted = share, False
        self._used = {}
        self._part = None

    def _release(self, deviations: list[float], grids: list[Grid]) -> None:
        sums, alone = self._keeper.take_sums(), self.ranks.size == 1
        groups = list(self._groups.values())
        if not alone:
            sums = [grids[group].rounded(s) for group, s in zip(groups, sums, strict=True)]
        if self._noise is not None:
            divisor = self._divisor if alone else 1.0
            for group, summed in zip(groups, sums, strict=True):
                self._noise.add_to([summed], grids[group], deviations[group], divisor)
        if not alone:
            self.ranks.add_up(sums)
            sums = [total.div_(self._divisor) for total in sums]
        for parameter, noisy in zip(self._groups, sums, strict=True):
            if not parameter.requires_grad:  # it was frozen since
                parameter.grad = None
                continue
            if parameter in self._padding:
                noisy[self._padding[parameter]] = 0  # or noise alone would train it
            parameter.grad = noisy.to(parameter.dtype)
