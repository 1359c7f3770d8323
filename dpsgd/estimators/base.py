"""What the private classifier and the private regressor share: parameters, checks and training."""

import contextlib
import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.optim import Optimizer

from dpsgd import release
from dpsgd.accounting import (
    Accountant,
    NoSampling,
    PoissonSampling,
    RDPAccountant,
    Relation,
    Sampling,
    calibrate_noise_multiplier,
    calibrate_steps,
)
from dpsgd.estimators.collected import is_number
from dpsgd.estimators.features import Feature, encode, features_of
from dpsgd.estimators.fitting import REPORTED, Loss, Progress, Score, Table, train, usual_batch
from dpsgd.estimators.parameters import check_parameters
from dpsgd.reports.guarantees import Account, account
from dpsgd.reports.rows import Rows
from dpsgd.training.engine import PrivacyEngine, warn_of
from ldp import Coins, InvalidInput, Mechanism

_OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """The parameters and methods that private estimators share.

    `epsilon` and `delta` are what the training keeps, under adding or removing a row; None trains
    on `Rows` without noise, where the reports alone protect. `steps` noisy steps are made on
    Poisson batches of about `batch_size` rows (None: a quarter of the rows, 64 to 4,096), each
    row's gradient shortened to `max_grad_norm`. The noise is calibrated to (epsilon, delta);
    where a `noise_multiplier` is given instead, the training ends at the last step within it.
    `optimizer` is "adam", "sgd" or a function of parameters and lr; `hidden` are the widths of a
    tanh network (none: a linear model), and `module` another model in its place: a torch module,
    of which a copy is trained, or a function of the numbers of inputs and outputs.

    `feature_bounds` are the features' public (low, high), by name or position, or of all: features
    between them are mapped to [-1, 1], and others clipped. Features without bounds are taken as
    they are. `categories` has the public values of features that are no numbers. This scaling is
    public; with `standardize` features in bounds are then brought to mean 0 and deviation 1, by
    private estimates of both (`dpsgd.release.mean`), which a part of epsilon pays for: take it
    where bounds are much wider than the data. `random_state` seeds the first weights alone, never
    noise or batches; `coins` is for tests. `on_progress` is called with a `Progress` some 20 times,
    and ends the training where it returns true: let it look at no private data.
    """

    epsilon: float | None = 1.0
    delta: float = 1e-5
    steps: int = 100
    batch_size: int | None = None
    max_grad_norm: float = 1.0
    noise_multiplier: float | None = None
    learning_rate: float = 0.05
    optimizer: str | Callable[..., Optimizer] = "adam"
    hidden: tuple[int, ...] = ()
    module: nn.Module | Callable[[int, int], nn.Module] | None = None
    feature_bounds: Any = None
    categories: Mapping[Any, Sequence[Any]] | None = None
    standardize: bool = False
    max_physical_batch_size: int | None = None
    accountant: Callable[[Relation], Accountant] = RDPAccountant
    random_state: Any = None
    on_progress: Callable[[Progress], Any] | None = None
    coins: Coins | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # the noise of a training is drawn afresh
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        features: Sequence[str] | None = None,
        validation_data: tuple[Any, Any] | None = None,
    ) -> Self:
        """Train on features, shape (n, d), and labels or targets, shape (n,); or on `Rows` and the
        name of what is to be learned.

        Of `Rows`, `features` are the attributes to learn from, by default all others.
        `validation_data` are public features and labels, whose `score` stands in `history_`.
        Raises `InvalidInput` where parameters or data do not fit; whatever ends a training, an
        estimator is then not fitted, and has nothing that was released.
        """
        if features is not None and not isinstance(X, Rows):
            raise InvalidInput("features names attributes of Rows: give the columns themselves")
        self._forget()
        check_parameters(self)
        score = None
        if validation_data is not None:
            if not (isinstance(validation_data, tuple | list) and len(validation_data) == 2):
                raise InvalidInput(
                    f"validation_data must be (X, y), got a {type(validation_data).__name__}"
                )
            score = partial(self._score, *validation_data)
        try:
            self._fit(X, y, features, score)
        except BaseException:
            self._forget()
            raise
        return self

    @abstractmethod
    def _fit(self, X: Any, y: Any, features: Sequence[str] | None, score: Score | None) -> None: ...

    def _score(self, X: Any, y: Any) -> float:
        with as_ours("validation_data"):
            return float(self.score(X, y))

    def _forget(self) -> None:
        """Take away all that a training has set."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _train(
        self,
        table: Table,
        loss: Loss,
        module: nn.Module,
        model: nn.Module,
        score: Score | None,
        accountant: Accountant | None,
        records: Mapping[str, Sequence[Mechanism]] | None = None,
    ) -> None:
        """Train a module, of which the model is a part; set all that a fitted estimator has.

        The accountant may have a history, which counts towards epsilon; None trains without noise.
        """
        batch, steps, noise = self._batch(len(table)), self.steps, 0.0
        engine: PrivacyEngine | None = None
        if accountant is not None:
            sampling = PoissonSampling(batch / len(table))
            noise, steps = self._spending(accountant, sampling, steps, len(table))
            engine = PrivacyEngine(accountant=lambda _: accountant, coins=self.coins)
        optimizer = self._optimizer(module)
        self.module_ = copy.deepcopy(model).eval()  # the engine's hooks stay with the other
        self.history_: list[Progress] = []
        every = max(1, steps // REPORTED)

        def after(done: int) -> bool:
            if done % every and done != steps:
                return False
            self.module_.load_state_dict(model.state_dict())
            spent = accountant.get_epsilon(self.delta) if accountant else math.inf
            found = None if score is None else score()
            self.history_.append(Progress(done, steps, spent, found))
            return bool(self.on_progress and self.on_progress(self.history_[-1]))

        train(
            module,
            optimizer,
            table,
            loss,
            batch_size=batch,
            steps=steps,
            engine=engine,
            after=after,
            noise_multiplier=noise,
            max_grad_norm=self.max_grad_norm,
            max_physical_batch_size=self.max_physical_batch_size,
        )
        self.module_.load_state_dict(model.state_dict())
        self._finish(accountant, records, noise)

    def _finish(
        self,
        accountant: Accountant | None,
        records: Mapping[str, Sequence[Mechanism]] | None,
        noise: float,
    ) -> None:
        """Set the account of all that was released, with this noise multiplier."""
        self.noise_multiplier_ = noise
        self.epsilon_ = math.inf if accountant is None else accountant.get_epsilon(self.delta)
        if records is not None:
            self.account_ = account(records, delta=self.delta, accountant=accountant)
        else:
            assert accountant is not None
            self.account_ = Account(self.delta, accountant.relation, self.epsilon_, ())

    def _accountant(self) -> Accountant | None:
        """Return a new accountant, None for a training without noise."""
        if self.epsilon is None and self.noise_multiplier is None:
            return None
        return self.accountant(Relation.ADD_REMOVE)

    def _batch(self, rows: int) -> int:
        return usual_batch(rows) if self.batch_size is None else min(self.batch_size, rows)

    def _spending(
        self, accountant: Accountant, sampling: Sampling, steps: int, rows: int
    ) -> tuple[float, int]:
        """Return the noise multiplier, and the number of steps that keep epsilon."""
        noise = self._noise(accountant, sampling, steps)
        if self.noise_multiplier is not None and self.epsilon is not None:
            most = calibrate_steps(
                accountant, self.epsilon, self.delta, noise_multiplier=noise, sampling=sampling
            )
            if not most:
                raise InvalidInput(
                    f"one step with noise_multiplier {noise:g} exceeds epsilon {self.epsilon:g} at "
                    f"delta {self.delta:g}"
                )
            steps = min(steps, most)
        warn_of(self.delta, rows)
        return noise, steps

    def _noise(
        self, accountant: Accountant, sampling: Sampling, steps: int, share: float = 1.0
    ) -> float:
        """Return the noise multiplier with which `steps` more steps keep a share of epsilon."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        assert self.epsilon is not None
        return calibrate_noise_multiplier(
            accountant, share * self.epsilon, self.delta, sampling=sampling, steps=steps
        )

    def _optimizer(self, module: nn.Module) -> Optimizer:
        made = self.optimizer
        if isinstance(made, str):
            if made not in _OPTIMIZERS:
                raise InvalidInput(f"optimizer must be adam, sgd or a function, got {made!r}")
            made = _OPTIMIZERS[made]
        return made(module.parameters(), lr=self.learning_rate)

    def built(self, inputs: int, outputs: int) -> nn.Module:
        """Return a new module; a linear one begins at zero."""
        with as_ours("random_state"):
            seed = int(check_random_state(self.random_state).randint(2**31))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if isinstance(self.module, nn.Module):
                return copy.deepcopy(self.module)
            if self.module is not None:
                return self.module(inputs, outputs)
            widths = [inputs, *self.hidden]
            layers: list[nn.Module] = []
            for wide, narrow in pairwise(widths):
                layers += [nn.Linear(wide, narrow), nn.Tanh()]
            last = nn.Linear(widths[-1], outputs)
        if not layers:
            nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        return nn.Sequential(*layers, last)

    def _checked(
        self, X: Any, y: Any, **options: Any
    ) -> tuple[NDArray[Any], NDArray[Any], Accountant]:
        """Return arrays to train on, as scikit-learn checks them, and an accountant."""
        accountant = self._accountant()
        if accountant is None:
            raise InvalidInput("epsilon=None is for Rows: nothing else protects rows as they are")
        with as_ours("X and y"):
            if y is None:
                raise InvalidInput(
                    f"{type(self).__name__} requires y to be passed, but the target y is None"
                )
            _refuse_masks(X, y)
            X, y = validate_data(self, X, y, dtype=self._dtype, **options)
        with as_ours("feature_bounds and categories"):
            self.features_ = features_of(self._names(), self.feature_bounds, self.categories)
        return X, y, accountant

    def _encoded(self, X: NDArray[Any], accountant: Accountant) -> Tensor:
        """Return the module's inputs; find how to standardise them, if that is asked for."""
        if self.standardize:
            with as_ours("X"):
                self.features_ = self._standardised(X, accountant)
        with as_ours("X"):
            return as_tensor(encode(self.features_, X))

    def _standardised(self, X: NDArray[Any], accountant: Accountant) -> list[Feature]:
        """Return the features with private estimates of their means and deviations.

        One release has both moments of all of them, for a quarter of epsilon alone. That leaves the
        training nearly all of epsilon, but the estimates are noisy.
        """
        numbers = [i for i, feature in enumerate(self.features_) if feature.values is None]
        found = list(self.features_)
        if unbounded := [found[i].name for i in numbers if found[i].bounds is None]:
            raise InvalidInput(f"standardize needs feature_bounds of {', '.join(unbounded)}")
        if not numbers:
            return found
        unit = np.concatenate([found[i].encoded(X[:, i]) for i in numbers], axis=1)
        lower = np.repeat([-1.0, 0.0], len(numbers))
        released = release.mean(
            np.concatenate([unit, unit**2], axis=1),
            bounds=(lower, np.ones_like(lower)),
            noise_multiplier=self._noise(accountant, NoSampling(), 1, share=0.25),
            accountant=accountant,
            coins=self.coins,
        )
        means, squares = np.split(released.value, 2)
        least = released.std_error[len(numbers) :]
        spreads = np.sqrt(np.maximum(squares - means**2, np.maximum(least, 1e-6)))
        for i, center, spread in zip(numbers, means.tolist(), spreads.tolist(), strict=True):
            found[i] = replace(found[i], center=center, spread=spread)
        return found

    @property
    def _dtype(self) -> type[np.float64] | None:
        return None if self.categories else np.float64

    def _take_rows(
        self, rows: Rows, label: Any, features: Sequence[str] | None
    ) -> Mapping[str, Sequence[Mechanism]]:
        """Set the features of rows, and return the mechanisms of records for the account.

        Raises `InvalidInput` where the rows cannot be learned from, or have no account.
        """
        if self.standardize:
            raise InvalidInput("Rows need no standardize: their numbers lie in [-1, 1]")
        names = features
        if names is None:
            names = [name for name in rows.columns if name != str(label)]
        named = isinstance(label, str) and not isinstance(names, str) and len(names) > 0
        if not named or len({label, *names}) <= len(names):
            raise InvalidInput(
                'name what is to be learned, and each feature once, as in fit(rows, "y", '
                f'features=["x"]), got {label!r} and {names!r}'
            )
        rows.check_together(label, names)
        found = features_of(names, self.feature_bounds, self.categories)
        for i, feature in enumerate(found):
            if is_number(rows, feature.name):
                found[i] = Feature(feature.name, feature.bounds or (-1.0, 1.0))
                continue
            count = rows.reports(feature.name).mechanisms[0].parameters
            values = feature.values or tuple(range(count))
            if len(values) != count:
                raise InvalidInput(f"{feature.name!r} has {count} values, got {len(values)}")
            found[i] = Feature(feature.name, values=values)
        self.features_, self.n_features_in_ = found, len(names)
        self.feature_names_in_ = np.array(names, dtype=object)
        records = rows.records([label, *names])
        account(records, delta=self.delta)
        return records

    def _names(self) -> list[str]:
        found = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return [str(name) for name in found]

    def _inputs(self, X: Any) -> Tensor:
        """Return the module's inputs for true features, checked."""
        check_is_fitted(self)
        with as_ours("X"):
            _refuse_masks(X)
            X = validate_data(self, X, reset=False, dtype=self._dtype)
            return as_tensor(encode(self.features_, X))

    @torch.no_grad()
    def _outputs(self, X: Any) -> NDArray[np.float64]:
        inputs = self._inputs(X)
        parts = [self.module_(part) for part in torch.split(inputs, 1 << 16)]
        found: NDArray[np.float64] = torch.cat(parts).double().numpy()
        return found


def as_tensor(array: NDArray[Any]) -> Tensor:
    """Return an array as a tensor of float32."""
    return torch.as_tensor(np.ascontiguousarray(array, dtype=np.float32))


def _refuse_masks(*arrays: Any) -> None:
    """Raise `InvalidInput` for masked values, which would be learned from as others."""
    if any(np.ma.is_masked(array) for array in arrays):
        raise InvalidInput("an array has masked values: fill them in, or leave their rows out")


class _WrongType(InvalidInput, TypeError):
    """Also a `TypeError`, as scikit-learn's checks of estimators expect it."""


@contextlib.contextmanager
def as_ours(what: str) -> Iterator[None]:
    """Raise as `InvalidInput` what scikit-learn, pandas or numpy cannot make numbers of."""
    try:
        yield
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    except (TypeError, OverflowError) as error:
        raise _WrongType(
            f"{what}: expected numbers, or values of categories, none of them missing: {error}"
        ) from None
