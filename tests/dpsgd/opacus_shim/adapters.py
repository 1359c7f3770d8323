"""Opacus's names over `dpsgd`: an adapter translates arguments and attributes, and no more.

Gradients, norms, sums, noise and epsilons are those that `dpsgd` computes. A test that asks for
what no adapter translates stands in `not_applicable.toml`.
"""

import copy
from collections.abc import Callable, Iterator
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar

import hypothesis
import numpy as np
import oracle
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.optim import Optimizer
from torch.utils.data import DataLoader, RandomSampler

import dpsgd
from dpsgd import accounting
from dpsgd.accounting.pld import PLDAccountant
from dpsgd.clipping.clipped_sums import Bookkeeper
from dpsgd.gradients.persample import Rows
from dpsgd.training.sampling import Physical, PoissonBatches, PrivateDataLoader
from dpsgd.training.validation import check_module
from ldp import Coins, InvalidInput

NO_NOISE = 1e-30
"""Opacus's noise multiplier 0, which `dpsgd` refuses: so little that no float32 shows it."""


class TorchCoins(Coins):
    """Coins of a torch generator, by default the global one, as Opacus's randomness is.

    `order` draws the permutations: Opacus, without Poisson sampling, keeps the loader's own order.
    """

    def __init__(
        self,
        generator: torch.Generator | None = None,
        order: Callable[[int], Tensor] = torch.arange,
    ) -> None:
        self._generator, self._order = generator, order

    def _bytes(self, count: int) -> bytes:
        drawn = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=self._generator)
        return drawn.numpy().tobytes()

    def bernoulli_many(self, threshold: int, n: int) -> Any:
        return (torch.rand(n, generator=self._generator) < threshold / 2**64).numpy()

    def permutation(self, n: int) -> Any:
        return self._order(n).numpy().astype(np.intp)


# Per-sample gradients


def watch(keeper: Bookkeeper, *, dense: bool = True) -> None:
    """Leave what the book-keeper computes on the parameters, under Opacus's names."""
    add, take = keeper._add, keeper.take_sums

    def added(booked: Any, batch: int, scale: float) -> None:
        squares = {
            p: torch.zeros(batch, dtype=torch.float64, device=p.device) for p in keeper.parameters
        }
        for p in keeper.parameters:
            p.grad_sample = p.new_zeros(batch, *p.shape) if dense else None  # type: ignore[attr-defined]
        for p, form in booked.items():
            form.add_squared_norms(squares[p])
            if dense:
                p.grad_sample += form.dense() * scale
        for p, totals in squares.items():
            p._norm_sample = totals.sqrt().mul(scale).to(p.dtype)  # type: ignore[attr-defined]
        add(booked, batch, scale)

    def taken() -> list[Tensor]:
        sums = take()
        for p, summed in zip(keeper.parameters, sums, strict=True):
            p.summed_grad = summed.clone()  # type: ignore[attr-defined]
        return sums

    keeper._add, keeper.take_sums = added, taken  # type: ignore[method-assign]
    forget_samples(keeper.parameters)


def forget_samples(parameters: Any) -> None:
    for p in parameters:
        if p.requires_grad:
            p.grad_sample = None


class Wrapped(nn.Module):
    """A private module as its attribute `_module`, which a run may be told to draw batches for."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_module"), name)

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        forget_samples(self.parameters())

    def to_standard_module(self) -> nn.Module:
        return copy.deepcopy(self._module)


class Hooks:
    """Per-sample gradients of a module that stays as it is: GradSampleHooks."""

    dense = True

    def __init__(
        self,
        module: nn.Module,
        *,
        batch_first: bool = True,
        loss_reduction: str = "mean",
        max_grad_norm: float = 1e20,
        strict: bool = True,
        use_ghost_clipping: bool = True,
    ) -> None:
        if type(module).__name__ == "SequenceBias" and not batch_first:
            hypothesis.reject()
        if strict:
            check(module)
        self.policy = oracle.Recording(max_grad_norm)
        self.keeper = oracle.keep(
            module, self.policy, reduction=loss_reduction, batch_dim=0 if batch_first else 1
        )
        watch(self.keeper, dense=self.dense)

    def get_norm_sample(self) -> Tensor:
        return self.policy.norms

    def get_clipping_coef(self) -> Tensor:
        return self.policy.factors(self.policy.norms[None])[0]

    def cleanup(self) -> None:
        """Do nothing: a private module stays one, and a deep copy of it is ordinary again."""


class HooksFastGradientClipping(Hooks):
    dense = False


def check(module: nn.Module) -> None:
    try:
        check_module(module)
    except InvalidInput as error:
        raise NotImplementedError(str(error)) from None


class GradSampleModule(Wrapped):
    HOOKS: ClassVar[type[Hooks]] = Hooks
    GRAD_SAMPLERS: ClassVar[dict[Any, Any]] = {nn.Conv2d: None}  # ours has one way

    def __init__(self, module: nn.Module, **options: Any) -> None:
        super().__init__(module)
        self.drawn: Callable[[Physical], None] | None = None
        self._batch_dim = 0 if options.get("batch_first", True) else 1
        self._hooks = self.HOOKS(module, **options)
        for p in module.parameters():
            p._wrapper = self  # type: ignore[attr-defined]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        first = args[0]
        if isinstance(first, PackedSequence) or first.shape[self._batch_dim] == 0:
            hypothesis.reject()  # as `not_applicable.toml` says of examples
        if len(args) > 1:  # of bags, as the loader would say it
            self._hooks.keeper.dims.drawn = len(args[1])
        if self.drawn is not None:
            self.drawn(Physical(first.shape[self._batch_dim], True, True, True))
        return super().forward(*args, **kwargs)

    def get_norm_sample(self) -> Tensor:
        return self._hooks.get_norm_sample()

    def get_clipping_coef(self) -> Tensor:
        return self._hooks.get_clipping_coef()


class GradSampleModuleFastGradientClipping(GradSampleModule):
    HOOKS = HooksFastGradientClipping


def wrap_model(model: nn.Module, grad_sample_mode: str, **options: Any) -> GradSampleModule:
    return GradSampleModule(model, **options)


def compute_embedding_norm_sample(
    layer: nn.Embedding, activations: list[Tensor], backprops: Tensor
) -> dict[Tensor, Tensor]:
    rows = activations[0].flatten(1)
    form = Rows(rows, backprops.reshape(*rows.shape, -1), layer.weight.shape)
    return {layer.weight: oracle.squared_norms(form).sqrt().to(backprops.dtype)}


def loss_of(_module: nn.Module, _optimizer: Any, criterion: nn.Module) -> nn.Module:
    """DPLossFastGradientClipping: a loss needs no wrapper here."""
    return criterion


# Training


class DPOptimizer:
    """The optimizer that the engine made private, beside the engine's figures."""

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        noise_multiplier: float,
        max_grad_norm: float,
        expected_batch_size: int,
        loss_reduction: str = "mean",
        generator: torch.Generator | None = None,
    ) -> None:
        """Make the module of `optimizer` private; each of its forwards then draws a batch."""
        wrapper = optimizer.param_groups[0]["params"][0]._wrapper
        engine = dpsgd.PrivacyEngine(coins=TorchCoins(generator))
        engine.make_private(
            module=wrapper._module,
            optimizer=optimizer,
            data_loader=DataLoader(range(expected_batch_size), batch_size=expected_batch_size),  # type: ignore[arg-type]
            noise_multiplier=noise_multiplier or NO_NOISE,
            max_grad_norm=max_grad_norm,
            sampling="shuffle",
            loss_reduction=loss_reduction,
        )
        assert engine._run is not None
        watch(engine._run._keeper, dense=wrapper.HOOKS.dense)
        wrapper.drawn = engine._run.drawn
        self._fill(engine, optimizer, expected_batch_size)

    @classmethod
    def of(cls, engine: dpsgd.PrivacyEngine, optimizer: Optimizer, expected: int) -> "DPOptimizer":
        made = cls.__new__(cls)
        made._fill(engine, optimizer, expected)
        return made

    def _fill(self, engine: dpsgd.PrivacyEngine, optimizer: Optimizer, expected: int) -> None:
        self.engine, self.original_optimizer = engine, optimizer
        self.expected_batch_size = expected

    @property
    def noise_multiplier(self) -> float:
        value = self.engine.noise_multiplier
        return 0.0 if value == NO_NOISE else value

    @noise_multiplier.setter
    def noise_multiplier(self, value: float) -> None:
        self.engine.noise_multiplier = value or NO_NOISE

    @property
    def max_grad_norm(self) -> float:
        return self.engine.max_grad_norm

    @max_grad_norm.setter
    def max_grad_norm(self, value: float) -> None:
        self.engine.max_grad_norm = value

    def zero_grad(self) -> None:
        self.original_optimizer.zero_grad()
        for group in self.original_optimizer.param_groups:
            forget_samples(group["params"])

    def step(self, closure: Callable[[], Any] | None = None) -> None:
        """Step, after the closure: `dpsgd` takes none, since a step may not run twice."""
        if closure is not None:
            closure()
        self.original_optimizer.step()

    def signal_skip_step(self) -> None:
        """Do nothing: the loader says which parts of a batch end in a step."""


class AdaClipDPOptimizer(DPOptimizer):
    pass


class PrivacyEngine:
    """The engine, which accounts by Renyi divergence to save the tests' time."""

    def __init__(self, *, accountant: str = "rdp", secure_mode: bool = False) -> None:
        self._mechanism, self._secure = accountant, secure_mode
        self.engine: dpsgd.PrivacyEngine

    def make_private(self, **options: Any) -> Any:
        return self._make(dpsgd.PrivacyEngine.make_private, **options)

    def make_private_with_epsilon(self, **options: Any) -> Any:
        return self._make(dpsgd.PrivacyEngine.make_private_with_epsilon, **options)

    def _make(
        self,
        make: Callable[..., Any],
        *,
        module: nn.Module,
        optimizer: Optimizer,
        data_loader: DataLoader[Any],
        max_grad_norm: float | list[float],
        batch_first: bool = True,
        loss_reduction: str = "mean",
        poisson_sampling: bool = True,
        clipping: str = "flat",
        noise_generator: torch.Generator | None = None,
        grad_sample_mode: str = "hooks",
        wrap_model: bool = True,
        **options: Any,
    ) -> Any:
        policy: Any = max_grad_norm
        if clipping == "per_layer":
            names = [name for name, p in module.named_parameters() if p.requires_grad]
            policy = dpsgd.PerLayerClipping(dict(zip(names, policy, strict=True)))
        elif clipping == "adaptive":
            options.pop("max_clipbound"), options.pop("min_clipbound")  # ours has no bounds
            policy = dpsgd.QuantileClipping(
                policy,
                quantile=options.pop("target_unclipped_quantile"),
                rate=options.pop("clipbound_learning_rate"),
                count_noise=options.pop("unclipped_num_std"),
            )
        elif clipping != "flat":
            raise NotImplementedError(clipping)
        if "noise_multiplier" in options:
            options["noise_multiplier"] = options["noise_multiplier"] or NO_NOISE
        generator = data_loader.generator

        def shuffled(n: int) -> Tensor:
            return torch.randperm(n, generator=generator)

        order = shuffled if isinstance(data_loader.sampler, RandomSampler) else torch.arange
        self.engine = dpsgd.PrivacyEngine(
            accountant=MECHANISMS[self._mechanism],
            secure_mode=self._secure,
            coins=TorchCoins(noise_generator, order),
        )
        module, optimizer, loader = make(
            self.engine,
            module=module,
            optimizer=optimizer,
            data_loader=data_loader,
            max_grad_norm=policy,
            sampling="poisson" if poisson_sampling else "shuffle",
            loss_reduction=loss_reduction,
            batch_dim=0 if batch_first else 1,
            **options,
        )
        assert self.engine._run is not None
        watch(self.engine._run._keeper)
        assert data_loader.batch_size is not None
        kind = AdaClipDPOptimizer if clipping == "adaptive" else DPOptimizer
        private = kind.of(self.engine, optimizer, data_loader.batch_size)
        return (Wrapped(module) if wrap_model else module), private, loader

    @staticmethod
    def get_compatible_module(module: nn.Module) -> nn.Module:
        return ModuleValidator.fix(module)

    @property
    def accountant(self) -> "Accountant":
        made = Accountant.__new__(Accountant)
        made.ours = self.engine.accountant
        return made

    def get_epsilon(self, delta: float) -> float:
        return self.engine.get_epsilon(delta)


class BatchMemoryManager:
    def __init__(
        self, *, data_loader: PrivateDataLoader, max_physical_batch_size: int, optimizer: Any
    ) -> None:
        draws = data_loader._draws
        self._loader = PrivateDataLoader(
            data_loader,
            draws.sampler,
            data_loader._drawn,
            most=max_physical_batch_size,
            coins=draws.coins,
        )

    def __enter__(self) -> PrivateDataLoader:
        return self._loader

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def scheduler(attribute: str, value: Callable[..., float]) -> type:
    """Make a class that sets an attribute of the optimizer to value(epoch, first, **options)."""

    class Scheduler:
        def __init__(self, optimizer: DPOptimizer, **options: Any) -> None:
            self._optimizer, self._options, self._epoch = optimizer, options, 0
            self._first = getattr(optimizer, attribute)

        def step(self) -> None:
            self._epoch += 1
            setattr(self._optimizer, attribute, value(self._epoch, self._first, **self._options))

    return Scheduler


def exponential(epoch: int, first: float, *, gamma: float) -> float:
    return dpsgd.Exponential(first, gamma)(epoch)


def stepwise(epoch: int, first: float, *, step_size: int, gamma: float) -> float:
    return dpsgd.Exponential(first, gamma)(epoch // step_size)


def scaled(
    epoch: int,
    first: float,
    *,
    noise_lambda: Callable[[int], float] | None = None,
    scheduler_function: Callable[[int], float] | None = None,
) -> float:
    function = noise_lambda or scheduler_function
    assert function is not None
    return first * function(epoch)


# Batches


class Sampler:
    """The batches of a sampler of ours, as a torch batch sampler."""

    def __init__(self, ours: PoissonBatches, coins: Coins) -> None:
        self._ours, self._coins = ours, coins

    def __len__(self) -> int:
        return self._ours.steps

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ours.epoch(self._coins))


def poisson_sampler(
    num_samples: int, sample_rate: float, generator: torch.Generator | None = None
) -> Sampler:
    return Sampler(
        PoissonBatches(num_samples, whole(num_samples * sample_rate)), TorchCoins(generator)
    )


def poisson_shard(
    total_size: int, sample_rate: float, generator: torch.Generator | None = None
) -> Sampler:
    rank, processes = torch.distributed.get_rank(), torch.distributed.get_world_size()
    ours = PoissonBatches(total_size, whole(total_size * sample_rate), rank, processes)
    return Sampler(ours, TorchCoins(generator))


def whole(batch: float) -> int:
    """Return the expected batch size, of which `dpsgd` takes whole numbers only."""
    if abs(batch - round(batch)) > 1e-9:
        raise NotImplementedError(f"a batch of {batch} records")
    return round(batch)


class DPDataLoader:
    def __new__(
        cls, dataset: Any, *, sample_rate: float, generator: torch.Generator | None = None
    ) -> Any:
        ours = PoissonBatches(len(dataset), whole(len(dataset) * sample_rate))
        coins = TorchCoins(generator)
        return PrivateDataLoader(DataLoader(dataset), ours, lambda _: None, coins=coins)

    @classmethod
    def from_data_loader(
        cls, loader: DataLoader[Any], generator: torch.Generator | None = None
    ) -> Any:
        assert loader.batch_size is not None
        ours = PoissonBatches(len(loader.dataset), loader.batch_size)  # type: ignore[arg-type]
        coins = TorchCoins(generator or loader.generator)
        return PrivateDataLoader(loader, ours, lambda _: None, coins=coins)


# Validation


class ModuleValidator:
    @classmethod
    def validate(cls, module: nn.Module, *, strict: bool = False) -> list[InvalidInput]:
        try:
            check_module(module)
        except InvalidInput as error:
            if strict:
                raise
            return [error]
        return []

    @classmethod
    def is_valid(cls, module: nn.Module) -> bool:
        return not cls.validate(module)

    @classmethod
    def fix(cls, module: nn.Module) -> nn.Module:
        return dpsgd.fix(module)[0]

    class VALIDATORS:
        def __class_getitem__(cls, kind: type) -> Any:
            return ModuleValidator.validate

    class FIXERS:
        def __class_getitem__(cls, kind: type) -> Any:
            return lambda layer: ModuleValidator.fix(layer) if dpsgd.fix(layer)[1] else layer


# Accounting


class Accountant:
    MECHANISM = ""

    def __init__(self) -> None:
        self.ours = MECHANISMS[self.MECHANISM](accounting.Relation.ADD_REMOVE)

    def step(self, *, noise_multiplier: float, sample_rate: float, steps: int = 1) -> None:
        sampling = accounting.PoissonSampling(sample_rate)
        self.ours.step(noise_multiplier=noise_multiplier, sampling=sampling, steps=steps)

    def get_epsilon(self, delta: float) -> float:
        return self.ours.get_epsilon(delta)

    @property
    def history(self) -> list[tuple[float, float, int]]:
        return [(e.noise_multiplier, e.sampling.rate, e.steps) for e in self.ours.history]

    @history.setter
    def history(self, value: list[tuple[float, float, int]]) -> None:
        self.ours = type(self.ours)(self.ours.relation)
        for noise_multiplier, sample_rate, steps in value:
            self.step(noise_multiplier=noise_multiplier, sample_rate=sample_rate, steps=steps)

    def __len__(self) -> int:
        return len(self.ours.history)

    def state_dict(self) -> dict[str, Any]:
        return self.ours.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.ours.load_state_dict(state)


class RDPAccountant(Accountant):
    MECHANISM = "rdp"


class PRVAccountant(Accountant):
    MECHANISM = "prv"


class GaussianAccountant(Accountant):
    MECHANISM = "gdp"


MECHANISMS: dict[str, Any] = {
    "rdp": accounting.RDPAccountant,
    "prv": PLDAccountant,
    "gdp": accounting.CentralLimitApproximation,
}


def create_accountant(mechanism: str) -> Accountant:
    kinds = {kind.MECHANISM: kind for kind in (RDPAccountant, PRVAccountant, GaussianAccountant)}
    if mechanism not in kinds:
        raise ValueError(mechanism)
    return kinds[mechanism]()


def get_noise_multiplier(
    *,
    target_epsilon: float,
    target_delta: float,
    sample_rate: float,
    epochs: int | None = None,
    steps: int | None = None,
    accountant: str = "rdp",
) -> float:
    return accounting.calibrate_noise_multiplier(
        create_accountant(accountant).ours,
        target_epsilon,
        target_delta,
        sampling=accounting.PoissonSampling(sample_rate),
        steps=int(epochs / sample_rate) if epochs is not None else steps or 0,
    )


# Opacus's modules, by name; what is not translated is absent, and importing it gives a stub.

NAMES: dict[str, dict[str, Any]] = {
    "": {"PrivacyEngine": PrivacyEngine, "GradSampleModule": GradSampleModule},
    "accountants": {
        "GaussianAccountant": GaussianAccountant,
        "IAccountant": object,
        "PRVAccountant": PRVAccountant,
        "RDPAccountant": RDPAccountant,
        "create_accountant": create_accountant,
    },
    "accountants.utils": {"get_noise_multiplier": get_noise_multiplier},
    "data_loader": {"DPDataLoader": DPDataLoader},
    "grad_sample": {
        "GradSampleHooks": Hooks,
        "GradSampleHooksFastGradientClipping": HooksFastGradientClipping,
        "GradSampleModule": GradSampleModule,
        "GradSampleModuleFastGradientClipping": GradSampleModuleFastGradientClipping,
        "embedding_norm_sample": SimpleNamespace(
            compute_embedding_norm_sample=compute_embedding_norm_sample
        ),
        "wrap_model": wrap_model,
    },
    "grad_sample.grad_sample_module": {"GradSampleModule": GradSampleModule},
    "grad_sample.grad_sample_module_fast_gradient_clipping": {
        "GradSampleModuleFastGradientClipping": GradSampleModuleFastGradientClipping
    },
    "grad_sample.gsm_exp_weights": {"GradSampleModuleExpandedWeights": GradSampleModule},
    "grad_sample.conv": {},
    "grad_sample.linear": {},
    "grad_sample.utils": {"get_gsm_class": lambda _: GradSampleModule},
    "layers": {
        "DPGRU": nn.GRU,
        "DPLSTM": nn.LSTM,
        "DPMultiheadAttention": nn.MultiheadAttention,
        "DPRNN": nn.RNN,
    },
    "layers.dp_multihead_attention": {"DPMultiheadAttention": nn.MultiheadAttention},
    "optimizers": {
        "DPOptimizer": DPOptimizer,
        "DPOptimizerFastGradientClipping": DPOptimizer,
    },
    "optimizers.adaclipoptimizer": {"AdaClipDPOptimizer": AdaClipDPOptimizer},
    "optimizers.optimizer": {"DPOptimizer": DPOptimizer},
    "schedulers": {
        "ExponentialGradClip": scheduler("max_grad_norm", exponential),
        "ExponentialNoise": scheduler("noise_multiplier", exponential),
        "LambdaGradClip": scheduler("max_grad_norm", scaled),
        "LambdaNoise": scheduler("noise_multiplier", scaled),
        "StepGradClip": scheduler("max_grad_norm", stepwise),
        "StepNoise": scheduler("noise_multiplier", stepwise),
    },
    "utils": {},
    "utils.adaptive_clipping.adaptive_clipping_utils": {},
    "utils.batch_memory_manager": {"BatchMemoryManager": BatchMemoryManager},
    "utils.fast_gradient_clipping_utils": {"DPLossFastGradientClipping": loss_of},
    "utils.tensor_utils": {},
    "utils.uniform_sampler": {
        "DistributedUniformWithReplacementSampler": poisson_shard,
        "UniformWithReplacementSampler": poisson_sampler,
    },
    "validators": {},
    "validators.errors": {
        "IllegalModuleConfigurationError": InvalidInput,
        "ShouldReplaceModuleError": InvalidInput,
        "UnsupportedModuleError": InvalidInput,
    },
    "validators.module_validator": {"ModuleValidator": ModuleValidator},
}
