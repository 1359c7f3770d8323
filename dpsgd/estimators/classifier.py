"""A private classifier with scikit-learn's interface."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor
from torch.nn.functional import cross_entropy

from dpsgd.estimators.base import PrivateEstimator, as_ours, as_tensor
from dpsgd.estimators.collected import Joint, candidates, surprise
from dpsgd.estimators.fitting import Loss, Score, Table
from dpsgd.reports.rows import Rows
from ldp import InvalidInput, Mechanism


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Learn a classifier by DP-SGD: `fit`, `predict`, `predict_proba`, `score`, as scikit-learn's.

        model = PrivateClassifier(epsilon=1.0, feature_bounds=(0, 16), classes=range(10))
        model.fit(X, y).predict(X_new)
        print(model.account_)

    Trained on arrays or data frames, or on the randomised `Rows` that a server collected, with
    `fit(rows, "affair")`: then it learns through the channels of the label and of the features,
    and predicts from true features (`dpsgd.estimators.collected`).

    `classes` are the public labels; from y without them, with a warning, since which labels occur
    is then told for certain. The other parameters are in `PrivateEstimator`.

    Fitted: `classes_`, `n_features_in_`, `feature_names_in_` (of a frame or rows), `module_` (the
    torch module, in eval mode), `epsilon_`, `noise_multiplier_` (0 without noise), `account_`
    (`dpsgd.Account`), `history_` (a list of `Progress`).

    Formal guarantee: the module's parameters, and so all predictions for other rows, are
    (epsilon, delta)-differentially private for adding or removing a training row; for `Rows` the
    account has what holds for a record's answers. The number of rows, the classes, names and
    bounds count as public. `score` on training rows is not covered.
    """

    classes: Sequence[Any] | None = None

    def _fit(self, X: Any, y: Any, features: Sequence[str] | None, score: Score | None) -> None:
        loss: Loss = surprise
        records: Mapping[str, Sequence[Mechanism]] | None = None
        if isinstance(X, Rows):
            accountant = self._accountant()
            records = self._take_rows(X, y, features)
            self.classes_ = self._classes_of(X, y)
            found = candidates(X, self.features_)
            with np.errstate(divide="ignore"):
                labels = np.log(X.reports(y).likelihoods())
            table = Table(as_tensor(found.evidence), as_tensor(labels))
            model = self.built(found.inputs.shape[1], len(self.classes_))
            module: torch.nn.Module = Joint(model, found.inputs)
        else:
            X, y, accountant = self._checked(X, y)
            with as_ours("y and classes"):
                self.classes_, codes = self._coded(y)
            inputs = self._encoded(X, accountant)
            table = Table(inputs, torch.as_tensor(codes))
            module = model = self.built(inputs.shape[1], len(self.classes_))
            loss = _cross_entropy
        self._train(table, loss, module, model, score, accountant, records)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the classes for true features, shape (n, classes)."""
        found: NDArray[np.float64] = torch.as_tensor(self._outputs(X)).softmax(1).numpy()
        return found

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable classes for true features, shape (n,)."""
        outputs = self._outputs(X)
        found: NDArray[Any] = self.classes_[outputs.argmax(1)]
        return found

    def _coded(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the classes, and the place of each label among them."""
        if self.classes is None:
            check_classification_targets(y)
            classes, codes = np.unique(y, return_inverse=True)
            if len(classes) > 1:
                warnings.warn(
                    "the classes are taken from y, and the model tells them for certain: give "
                    "classes= where it is private which labels occur",
                    stacklevel=4,
                )
        else:
            classes = np.unique(list(self.classes))
            codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
        if len(classes) < 2:
            raise InvalidInput(f"a classifier needs two classes at least, got one class: {classes}")
        if (classes[codes] != y).any():
            raise InvalidInput(f"y has a label that is none of the {len(classes)} classes")
        return classes, codes

    def _classes_of(self, rows: Rows, label: str) -> NDArray[Any]:
        count = rows.reports(label).mechanisms[0].parameters
        classes = np.arange(count) if self.classes is None else np.array(list(self.classes))
        if len(classes) != count:
            raise InvalidInput(f"{label!r} has {count} values, got {len(classes)} classes")
        return classes


def _cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(outputs, labels, reduction="none")
