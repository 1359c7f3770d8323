"""A private regressor with scikit-learn's interface."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from torch import Tensor, nn

from dpsgd import release
from dpsgd.accounting import NoSampling
from dpsgd.estimators.base import PrivateEstimator, as_ours, as_tensor
from dpsgd.estimators.features import check_bounds, scaled
from dpsgd.estimators.fitting import Progress, Score, Table
from dpsgd.estimators.moments import moments
from dpsgd.reports.rows import Rows
from ldp import InvalidInput


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRegressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Learn a regression by DP-SGD on squared errors: `fit`, `predict`, `score`, as scikit-learn's.

        model = PrivateRegressor(epsilon=1.0, feature_bounds=(0, 100), target_bounds=(0, 500))
        model.fit(X, y).predict(X_new)

    Trained on arrays or data frames; or on the randomised `Rows` that a server collected, with
    `fit(rows, "age")`, which gives the linear model of least squares on the true answers, without
    bias: its moments have unbiased estimates, and are released once (`dpsgd.estimators.moments`).
    Steps, batches, optimizer and learning rate have no part in that.

    `target_bounds` are the public (low, high) of the targets, which are mapped to [-1, 1] and
    clipped; without, they are taken as they are. The other parameters are in `PrivateEstimator`.

    Fitted, and formal guarantee: as of `PrivateClassifier`; there are no classes.
    """

    learning_rate: float = 0.02
    target_bounds: tuple[float, float] | None = None

    def _fit(self, X: Any, y: Any, features: Sequence[str] | None, score: Score | None) -> None:
        if self.target_bounds is not None:
            check_bounds("target_bounds", self.target_bounds)
        if isinstance(X, Rows):
            self._fit_rows(X, y, features, score)
            return
        X, y, accountant = self._checked(X, y, y_numeric=True)
        inputs = self._encoded(X, accountant)
        with as_ours("y"):
            if np.asarray(y).dtype.kind in "mM":
                raise InvalidInput("y has times: give numbers, such as days since a public date")
            targets = scaled(np.asarray(y, dtype=np.float64), self.target_bounds)
        model = self.built(inputs.shape[1], 1)
        self._train(Table(inputs, as_tensor(targets)), _squares, model, model, score, accountant)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the expected targets for true features, shape (n,), in the targets' units."""
        found: NDArray[np.float64] = self._outputs(X)[:, 0]
        if self.target_bounds is None:
            return found
        low, high = self.target_bounds
        return low + (found + 1) * (high - low) / 2

    def _fit_rows(
        self, rows: Rows, label: Any, features: Sequence[str] | None, score: Score | None
    ) -> None:
        if self.hidden or self.module is not None:
            raise InvalidInput("a regression on Rows is linear: leave out hidden and module")
        records = self._take_rows(rows, label, features)
        found = moments(rows, label, self.features_)
        accountant, noise = self._accountant(), 0.0
        if accountant is None:
            solution = found.solved(found.vectors.mean(axis=0))
        else:
            noise, _ = self._spending(accountant, NoSampling(), 1, rows.n)
            released = release.mean(
                found.vectors,
                bounds=found.bounds,
                noise_multiplier=noise,
                accountant=accountant,
                coins=self.coins,
            )
            solution = found.solved(released.value, released.std_error)
        weights = np.zeros(sum(feature.width for feature in self.features_))
        weights[found.places] = solution[1:]
        linear = nn.Linear(len(weights), 1)
        with torch.no_grad():
            linear.weight.copy_(as_tensor(weights[np.newaxis]))
            linear.bias.fill_(solution[0])
        self.module_ = nn.Sequential(linear).eval()
        self._finish(accountant, records, noise)
        scored = None if score is None else score()
        self.history_ = [Progress(1, 1, self.epsilon_, scored)]


def _squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(1) - targets).square()
