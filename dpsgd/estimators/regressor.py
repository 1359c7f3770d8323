"""A private regressor with scikit-learn's interface."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from torch import Tensor, nn

from dpsgd.accounting import Accountant
from dpsgd.estimators.base import PrivateEstimator, as_tensor
from dpsgd.estimators.features import check_bounds, encode, scaled
from dpsgd.estimators.fitting import Progress, Table
from dpsgd.estimators.moments import Floats, Moments, moments, solved
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

    target_bounds: tuple[float, float] | None = None

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        features: Sequence[str] | None = None,
        validation_data: tuple[Any, Any] | None = None,
    ) -> Self:
        """Train on features, shape (n, d), and targets, shape (n,); or on `Rows` and a target's
        name.

        Of `Rows`, `features` are the attributes to learn from, by default all others.
        `validation_data` are public features and targets, whose R^2 stands in `history_`. Raises
        `InvalidInput`, and trains nothing, where parameters or data do not fit.
        """
        if self.target_bounds is not None:
            check_bounds("target_bounds", self.target_bounds)
        score = None if validation_data is None else lambda: float(self.score(*validation_data))
        if isinstance(X, Rows):
            self._fit_rows(X, y, features, score)
            return self
        X, y = self._checked(X, y, y_numeric=True)  # noqa: N806
        inputs = as_tensor(encode(self.features_, X))
        targets = scaled(np.asarray(y, dtype=np.float64), self.target_bounds)
        model = self.built(inputs.shape[1], 1)
        self._train(Table(inputs, as_tensor(targets)), _squares, model, model, score)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the expected targets for true features, shape (n,), in the targets' units."""
        found: NDArray[np.float64] = self._outputs(X)[:, 0]
        if self.target_bounds is None:
            return found
        low, high = self.target_bounds
        return low + (found + 1) * (high - low) / 2

    def _fit_rows(
        self,
        rows: Rows,
        label: Any,
        features: Sequence[str] | None,
        score: Callable[[], float] | None,
    ) -> None:
        if self.hidden or self.module is not None:
            raise InvalidInput("a regression on Rows is linear: leave out hidden and module")
        records = self._take_rows(rows, label, features)
        found = moments(rows, label, self.features_)
        accountant, vector, noise = self._released(found)
        solution = solved(vector, found.products.shape[1], noise)
        weights = np.zeros(sum(feature.width for feature in self.features_))
        weights[found.places] = solution[1:]
        linear = nn.Linear(len(weights), 1)
        with torch.no_grad():
            linear.weight.copy_(as_tensor(weights[np.newaxis]))
            linear.bias.fill_(solution[0])
        self.module_ = nn.Sequential(linear)
        self._finish(accountant, records)
        scored = None if score is None else score()
        self.history_ = [Progress(1, 1, self.epsilon_, scored)]

    def _released(self, found: Moments) -> tuple[Accountant | None, Floats, float]:
        """Return the mean moments, as released, and the standard deviation of their noise."""
        if self.epsilon is None and self.noise_multiplier is None:
            return None, found.vectors.mean(axis=0), 0.0
        raise NotImplementedError


def _squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.squeeze(1) - targets).square()
