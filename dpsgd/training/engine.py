"""Make the ordinary training loop of PyTorch differentially private."""

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from dpsgd.accounting import Accountant, Event, RDPAccountant, Relation
from dpsgd.accounting.accountant import check_guarantee
from dpsgd.accounting.calibration import calibrate_noise_multiplier
from dpsgd.accounting.events import check_integer, check_positive
from dpsgd.clipping.current_policy import Clipping, CurrentPolicy
from dpsgd.clipping.policies import ClippingPolicy, PerLayerClipping
from dpsgd.clipping.schedules import Schedule
from dpsgd.training import checkpoint
from dpsgd.training.distributed import unwrapped
from dpsgd.training.run import Remaining, Run
from dpsgd.training.sampling import PrivateDataLoader, sampler_for
from dpsgd.training.validation import (
    check_criterion,
    check_module,
    check_optimizer,
    hold_frozen,
)
from ldp import Coins, InvalidInput


class PrivacyEngine:
    """Make a training private: clip per-sample gradients, add noise, and account for it.

        engine = PrivacyEngine()
        model, optimizer, loader = engine.make_private(
            module=model, optimizer=optimizer, data_loader=loader,
            noise_multiplier=1.1, max_grad_norm=1.0)
        for x, y in loader:                     # as ever
            optimizer.zero_grad()
            loss_function(model(x), y).backward()
            optimizer.step()
        engine.get_epsilon(delta=1e-5)

    Formal guarantee: the sequence of optimizer steps is (epsilon, delta)-differentially private
    under the accountant's relation, for every delta at once, against one who sees every step. The
    data set's size and the batch size are public. Losses and batches that the loop prints are not
    covered. It holds for floating point up to what `dpsgd.noise.grid.Grid` says.

    `accountant` is a class of `dpsgd.accounting` whose figures are guarantees, or a function of the
    relation, such as one that returns the accountant of releases before. Noise on a GPU comes from
    torch's generator, which can be predicted by who knows enough of its noise, or with
    `secure_mode` from AES-256, as on a CPU. `coins` is for tests.

    A module in a DistributedDataParallel is trained by all its processes, each with an engine, all
    of the data, and its part of a batch as batch_size. The guarantee is for the whole.
    """

    def __init__(
        self,
        *,
        accountant: Callable[[Relation], Accountant] = RDPAccountant,
        secure_mode: bool = False,
        coins: Coins | None = None,
    ) -> None:
        self._make_accountant = accountant
        self._secure = secure_mode
        self._coins = coins or Coins()
        self._run: Run | None = None
        self._rows = 0

    def make_private(
        self,
        *,
        module: nn.Module,
        optimizer: Optimizer,
        data_loader: DataLoader[Any],
        noise_multiplier: float | Schedule,
        max_grad_norm: Clipping,
        sampling: str = "poisson",
        loss_reduction: str = "mean",
        max_physical_batch_size: int | None = None,
        batch_dim: int = 0,
        criterion: nn.Module | None = None,
        budget: tuple[float, float] | None = None,
    ) -> tuple[nn.Module, Optimizer, PrivateDataLoader]:
        """Return the module, the optimizer and a loader in the place of the given one.

        Module and optimizer are the given objects, changed: each step of that optimizer adds noise.

        - noise_multiplier is the noise's standard deviation over the sensitivity of the clipping,
          max_grad_norm a norm or a policy of `dpsgd.clipping.policies`; either may be a function
          of the number of steps made (`dpsgd.clipping.schedules`).
        - The loader's batch_size is the expected size of a logical batch, and the divisor of sums
          if loss_reduction is "mean". It is handed out in parts of at most max_physical_batch_size,
          and steps between parts do nothing. batch_dim is its dimension in the module's inputs.
        - sampling is "poisson", "fixed" or "shuffle": see `dpsgd.training.sampling`.
        - loss_reduction must be how the loss combines samples, or a record moves the sum by up to
          twice its norm: the engine sees no loss, and checks it where it is given as criterion.
        - With a budget of (epsilon, delta) a step that would exceed it raises `BudgetExhausted`,
          and releases and changes nothing (`RDPAccountant.set_budget`).

        Raises `InvalidInput`, and changes nothing, for anything that would break the guarantee.
        """
        if self._run is not None:
            raise InvalidInput("this engine has made a module private already: use another")
        first = noise_multiplier(0) if callable(noise_multiplier) else noise_multiplier
        first = check_positive("noise_multiplier", first)
        if loss_reduction not in ("mean", "sum"):
            raise InvalidInput(f'loss_reduction must be "mean" or "sum", got {loss_reduction!r}')
        if max_physical_batch_size is not None:
            check_integer("max_physical_batch_size", max_physical_batch_size, 1)
        inner, ranks = unwrapped(module)
        check_module(inner)
        if criterion is not None:
            check_criterion(criterion, loss_reduction)
        check_optimizer(optimizer, inner)
        sampler = sampler_for(data_loader, sampling, ranks)
        values = sum(p.numel() for p in inner.parameters() if p.requires_grad)
        clipping = CurrentPolicy(max_grad_norm, sampler.batch, values)
        _check_groups(clipping.policy, inner)
        clipping.grids(clipping.deviations(first))
        accountant = self._make_accountant(sampler.relation)
        check_guarantee(accountant)
        if accountant.relation is not sampler.relation:
            raise InvalidInput(
                f"these batches are accounted for under {sampler.relation.name}, and the "
                f"accountant's relation is {accountant.relation.name}"
            )
        if budget is not None:
            accountant.set_budget(*budget, Event(first, sampler.sampling, 1))
            warn_of(budget[1], sampler.dataset)
        ranks.total(0, secure_mode=self._secure, loss_reduction=loss_reduction == "mean")
        self._rows = sampler.dataset
        self._run = run = Run(
            inner,
            optimizer,
            sampler,
            clipping,
            accountant,
            noise_multiplier if callable(noise_multiplier) else first,
            loss_reduction=loss_reduction,
            batch_dim=batch_dim,
            secure=self._secure,
            coins=self._coins,
            ranks=ranks,
        )
        hold_frozen(inner)
        loader = PrivateDataLoader(
            data_loader, sampler, run.drawn, most=max_physical_batch_size, coins=self._coins
        )
        return module, optimizer, loader

    def make_private_with_epsilon(
        self,
        *,
        module: nn.Module,
        data_loader: DataLoader[Any],
        target_epsilon: float,
        target_delta: float,
        epochs: int,
        sampling: str = "poisson",
        **options: Any,
    ) -> tuple[nn.Module, Optimizer, PrivateDataLoader]:
        """Do as `make_private`, which takes the options, with the least noise that keeps the target
        after all epochs."""
        check_integer("epochs", epochs, 1)
        sampler = sampler_for(data_loader, sampling, unwrapped(module)[1])
        warn_of(target_delta, sampler.dataset)
        per_epoch = sum(sampler.counts(step) for step in range(sampler.steps))
        noise = calibrate_noise_multiplier(
            self._make_accountant(sampler.relation),
            target_epsilon,
            target_delta,
            sampling=sampler.sampling,
            steps=epochs * per_epoch,
        )
        options |= {"module": module, "data_loader": data_loader, "sampling": sampling}
        return self.make_private(noise_multiplier=noise, **options)

    @property
    def accountant(self) -> Accountant:
        """The accountant, with the history of all releases so far."""
        return self._started.accountant

    @property
    def noise_multiplier(self) -> float:
        """The noise's standard deviation over the sensitivity; set, it takes a schedule's place."""
        return self._started.noise_multiplier

    @noise_multiplier.setter
    def noise_multiplier(self, value: float) -> None:
        self._started.noise = check_positive("noise_multiplier", value)

    @property
    def max_grad_norm(self) -> float:
        """The sensitivity of the clipping now; may be set between steps where it is one norm."""
        return self._started.clipping.sensitivity

    @max_grad_norm.setter
    def max_grad_norm(self, value: float) -> None:
        self._started.change_norm(value)

    def get_epsilon(self, delta: float) -> float:
        """Return the epsilon, at `delta`, of all steps until now.

        Warns where delta is not below one in the number of rows, and where the module was not
        called with the batches that were drawn: a loop that trains a copy of it has no privacy.
        """
        if (unseen := self._started.unseen) > 1:
            warnings.warn(
                f"the module was not called with any of the last {unseen} batches: if a copy of it "
                "was, and was trained, that was without privacy",
                stacklevel=2,
            )
        epsilon = self._started.accountant.get_epsilon(delta)
        warn_of(delta, self._rows)
        return epsilon

    def remaining(self) -> Remaining:
        """Return the epsilon left of the budget, and how many more steps fit; without a budget,
        raise `InvalidInput`."""
        return self._started.remaining()

    def state_dict(self) -> dict[str, Any]:
        """Return the engine's state, without any of a generator: noise drawn twice cancels out.

        Raises `InvalidInput` between the parts of a logical batch.
        """
        return self._started.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a checkpoint. Raises `InvalidInput`, and changes nothing, if it is not one."""
        self._started.load_state_dict(state)

    def save_checkpoint(self, path: str | Path, **others: Any) -> None:
        """Save engine, module, optimizer and `others` into one file, whole or not at all.

        Others that have a state_dict, such as a scheduler, are restored by `load_checkpoint`,
        which returns the rest: plain values, such as the number of the epoch. What was released
        after it is not in its account. Of several processes the first writes. Raises
        `InvalidInput`, and leaves the file as it was, between the parts of a logical batch and for
        what would need code to be restored.
        """
        everything = self._started.parts | others
        parts = {k: v.state_dict() for k, v in everything.items() if hasattr(v, "state_dict")}
        values = {k: v for k, v in everything.items() if k not in parts}
        state: dict[str, Any] = {"engine": self.state_dict(), "parts": parts, "values": values}
        state["optimizer"] = type(self._started.parts["optimizer"]).__name__
        if self._started.ranks.rank == 0:
            checkpoint.write(Path(path), state)

    def load_checkpoint(self, path: str | Path, **others: Any) -> dict[str, Any]:
        """Restore what `save_checkpoint` saved, after `make_private`; return the plain values.

        `others` are those with a state, by the same names. Raises `InvalidInput`, and changes
        nothing, for another run's file, a damaged one, or one of which any part does not fit.
        """
        run, state = self._started, checkpoint.read(Path(path))
        if not all(isinstance(state.get(key), dict) for key in ("engine", "parts", "values")):
            raise InvalidInput(f"{path}: is not a file of save_checkpoint")
        parts = run.parts | others
        if set(state["parts"]) != set(parts):
            there, wanted = (", ".join(sorted(names)) for names in (state["parts"], parts))
            raise InvalidInput(f"{path} has the states of {there}; expected {wanted}")
        saved, ours = state.get("optimizer"), type(run.parts["optimizer"]).__name__
        if saved != ours:
            raise InvalidInput(f"{path}: its optimizer is {saved}, this run's {ours}")
        before = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}
        try:
            for name, part in parts.items():
                part.load_state_dict(state["parts"][name])
            self.load_state_dict(state["engine"])
        except BaseException as error:
            for name, part in parts.items():
                part.load_state_dict(before[name])
            if not isinstance(error, Exception):
                raise
            raise InvalidInput(f"{path} does not fit this run: {error}") from error
        values: dict[str, Any] = state["values"]
        return values

    @property
    def _started(self) -> Run:
        if self._run is None:
            raise InvalidInput("nothing is private yet: call make_private first")
        return self._run


def warn_of(delta: float, rows: int) -> None:
    """Warn of a delta that is not below one in the number of rows."""
    if delta * rows >= 1:
        warnings.warn(
            f"delta {delta:g} is not below 1 / {rows}, one in the number of rows: it would allow "
            "to publish a row as it is",
            stacklevel=3,
        )


def _check_groups(policy: ClippingPolicy, module: nn.Module) -> None:
    """Raise `InvalidInput` unless each group of the policy has a parameter that is trained."""
    used = {policy.group(name) for name, p in module.named_parameters() if p.requires_grad}
    if len(used) < policy.groups and isinstance(policy, PerLayerClipping):
        unused = [name for i, name in enumerate(policy.max_grad_norms) if i not in used]
        raise InvalidInput(
            "max_grad_norms gives a norm, and so noise, to what is not trained: "
            f"{', '.join(unused)}"
        )
