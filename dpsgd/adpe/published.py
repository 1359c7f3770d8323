"""ADPE as published: a training that claims an epsilon which its noise does not keep."""

import math
import warnings
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from dpsgd.accounting.events import check_delta, check_epsilon, check_integer, check_positive
from dpsgd.adpe.claims import MECHANISMS, Claim, claim, multipliers
from dpsgd.clipping.schedules import Schedule
from dpsgd.whitening import as_labels
from ldp import InvalidInput

_INSTEAD = "take dpsgd.whitening with PrivateClassifier, or PrivacyEngine (docs/adpe.md)"


@dataclass(frozen=True, kw_only=True)
class ADPE:
    """Train as ADPE is published, to compare: this protects nobody.

        model = ADPE(as_published=True, epsilon=8.0).fit(body, images, labels, importance)
        model.claim  # claimed epsilon 8, honest epsilon 206 (rho 128.7) ...

    In each batch, feature j of each record gets noise of z s1 / (alpha_j |B|), and each coefficient
    of the loss, expanded to second order around 0, noise of z s2 / |B|. alpha is the importance, by
    `shap_importance`, raised to `least_importance`; z makes the paper's formulas say `epsilon` at
    `delta`, half of rho for the features and half for the coefficients. Adam with a rate that falls
    by `decay` each epoch.

    - mechanism: "gaussian", or "laplace", the variant that ADDP and AdLM use, which claims a pure
      epsilon (their relevances are of another kind than SHAP values).
    - schedule: the noise of an epoch over that of others, as in `dpsgd.clipping.schedules`; the
      claimed epsilon of all epochs stays the same.
    - input_sensitivity: s1, by default the number of features K, twice that for Laplace noise.
    - coefficient_sensitivity: s2, by default d (H + H**2 / 4) for d classes and H hidden units.
    - noisy_coefficients: False adds no noise to the coefficients.
    - shared: one draw of input noise for all records of a batch.
    - epsilon None: no noise at all, as for the network that SHAP values are taken of.

    Guarantee: none that the paper's claim says; `Claim` has both figures.
    Raises `InvalidInput` unless as_published is True, and for bad parameters.
    Source: Wang, Gao, Zhu and Huang, Journal of Xidian University 50(4), 2023, 54-64; of the
    Laplace variant Phan, Wu, Hu and Dou, "Adaptive Laplace mechanism", ICDM 2017. The printed
    formulas leave some details open: `docs/adpe.md` says how they were read.
    """

    as_published: bool = False
    epsilon: float | None = 8.0
    delta: float = 1e-5
    mechanism: str = "gaussian"
    epochs: int = 8
    batch_size: int = 256
    schedule: Schedule | None = None
    input_sensitivity: float | None = None
    coefficient_sensitivity: float | None = None
    least_importance: float = 1e-3
    noisy_coefficients: bool = True
    shared: bool = False
    learning_rate: float = 1e-3
    decay: float = 0.95

    def __post_init__(self) -> None:
        if self.as_published is not True:
            raise InvalidInput(
                "ADPE does not keep the epsilon that it claims: to see what it does, say "
                f"as_published=True; to protect records, {_INSTEAD}"
            )
        if self.mechanism not in MECHANISMS:
            raise InvalidInput(
                f"mechanism must be one of {', '.join(MECHANISMS)}, got {self.mechanism!r}"
            )
        if self.epsilon is not None and not check_epsilon(self.epsilon):
            raise InvalidInput("epsilon must be > 0, or None for no noise, got 0")
        check_delta(self.delta)
        check_integer("epochs", self.epochs, 1)
        check_integer("batch_size", self.batch_size, 1)
        for name in ("learning_rate", "decay", "least_importance"):
            check_positive(name, getattr(self, name))
        for name in ("input_sensitivity", "coefficient_sensitivity"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        for each in self._relative():
            check_positive("the schedule's noise", each)

    def claim(self, importance: Tensor) -> Claim:
        """Return what a training with this importance, shape (K,), claims and is worth."""
        if self.epsilon is None:
            return Claim(math.inf, math.inf, math.inf, self.delta)
        alpha = self._alpha(importance)
        return claim(
            self.mechanism,
            self.noise,
            delta=self.delta,
            batch_size=self.batch_size,
            sensitivity=self._input_sensitivity(len(alpha)),
            importance=alpha.tolist(),
            shared=self.shared,
        )

    def fit(
        self,
        body: nn.Module,
        inputs: Tensor,
        labels: Tensor,
        importance: Tensor | None = None,
    ) -> "Published":
        """Train `body`, which is changed, and a linear layer on it; warn of the honest epsilon.

        `inputs` have shape (n, ...) with K features in [0, 1], `labels` shape (n,). The body's
        outputs, shape (n, H), must lie in [-1, 1]. Without importance all features have 1.
        Random numbers are torch's own.
        Raises `InvalidInput` where shapes do not fit or features lie outside of [0, 1].
        """
        features = inputs[0].numel() if len(inputs) else 0
        if importance is None:
            importance = torch.ones(features, device=inputs.device)
        if len(inputs) < self.batch_size or importance.shape != (features,):
            raise InvalidInput(
                f"expected a batch of {self.batch_size} records at least and the importance of "
                f"their {features} features, got {len(inputs)} and {tuple(importance.shape)}"
            )
        if not bool(((inputs >= 0) & (inputs <= 1)).all()) or not bool(importance.isfinite().all()):
            raise InvalidInput("expected features in [0, 1] and finite importances")
        labels = as_labels(labels, len(inputs))
        if int(labels.min()) < 0:
            raise InvalidInput("labels must be integers from 0 on")
        known = self.claim(importance)
        if self.epsilon is not None:
            warnings.warn(f"ADPE as published: {known}; {_INSTEAD}", stacklevel=2)
        with torch.no_grad():
            hidden = body(inputs[:1]).shape[1]
        classes = int(labels.max()) + 1
        head = nn.Linear(hidden, classes, bias=False).to(inputs.device)
        model = nn.Sequential(body, head)
        optimizer = torch.optim.Adam(model.parameters(), lr=self.learning_rate)
        rate = torch.optim.lr_scheduler.ExponentialLR(optimizer, self.decay)
        alpha = self._alpha(importance).view_as(inputs[0])
        s1 = self._input_sensitivity(features)
        s2 = self.coefficient_sensitivity or classes * (hidden + hidden**2 / 4)
        for z in self.noise:
            order = torch.randperm(len(inputs), device=inputs.device)
            for rows in torch.split(order, self.batch_size):
                if len(rows) < self.batch_size:
                    continue
                noisy = inputs[rows]
                if z:
                    drawn = torch.zeros_like(noisy[:1] if self.shared else noisy)
                    noisy = noisy + self._drawn(drawn) * (z * s1 / self.batch_size) / alpha
                units, truth = body(noisy), one_hot(labels[rows], classes).to(noisy.dtype)
                linear, quadratic = coefficients(units, truth)
                if z and self.noisy_coefficients:
                    scale = z * s2 / self.batch_size
                    linear = linear + scale * self._drawn(linear)
                    quadratic = quadratic + scale * self._drawn(quadratic)
                optimizer.zero_grad()
                expanded(linear, quadratic, head.weight).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            rate.step()
        return Published(model, known)

    def _relative(self) -> list[float]:
        return [self.schedule(t) if self.schedule else 1.0 for t in range(self.epochs)]

    @property
    def noise(self) -> list[float]:
        """The noise multiplier z of each epoch, with which the paper's formulas say `epsilon`."""
        if self.epsilon is None:
            return [0.0] * self.epochs
        return multipliers(self.mechanism, self.epsilon, self.delta, self._relative())

    def _input_sensitivity(self, features: int) -> float:
        return self.input_sensitivity or features * (2.0 if self.mechanism == "laplace" else 1.0)

    def _alpha(self, importance: Tensor) -> Tensor:
        return importance.clamp_min(self.least_importance)

    def _drawn(self, like: Tensor) -> Tensor:
        """Return standard noise of a tensor's shape."""
        if self.mechanism == "gaussian":
            return torch.randn_like(like)
        ones = torch.ones_like(like)
        return torch.distributions.Laplace(0 * ones, ones).sample()


@dataclass(frozen=True, eq=False)
class Published:
    """What ADPE as published learned, and what it claims and is worth."""

    module: nn.Module
    claim: Claim

    def get_epsilon(self, delta: float) -> NoReturn:
        """Raise `InvalidInput`: there is no epsilon that holds."""
        raise InvalidInput(f"this model has no epsilon: {self.claim}; {_INSTEAD}")

    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        """Return the most probable classes, shape (n,)."""
        return torch.cat([self.module(part).argmax(1) for part in torch.split(inputs, 1000)])


def coefficients(units: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Return each class's coefficients of the expanded loss, shapes (d, H) and (d, H, H).

    The logistic loss of a class is ln 2 + (1/2 - y) t + t**2 / 8 + O(t**4) at t = w h, averaged
    over the batch. The second-order coefficients of all classes are alike, until noise is added.
    """
    linear = (0.5 - truth).T @ units / len(units)
    return linear, (units.T @ units / (8 * len(units))).expand(truth.shape[1], -1, -1)


def expanded(linear: Tensor, quadratic: Tensor, weights: Tensor) -> Tensor:
    """Return the sum over classes of the expanded loss at weights (d, H), without its constant."""
    return (linear * weights).sum() + torch.einsum("di,dij,dj->", weights, quadratic, weights)
