"""The functional mechanism released once: a noisy quadratic loss, of which training is free."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dpsgd.accounting import Accountant, GDPAccountant, NoSampling, Relation, analytic_noise
from dpsgd.accounting.events import check_integer
from dpsgd.noise.grid import Grid
from dpsgd.noise.sources import KeystreamNoise
from dpsgd.whitening import as_labels, as_rows, second_moments, unit
from ldp import Coins, InvalidInput

_AT_ONCE = 4096
_WITHIN = 1 - 2.0**-40
"""What a unit norm is shortened to, so that rounding leaves it within 1."""


@dataclass(frozen=True, kw_only=True)
class FunctionalMechanism:
    """Release the quadratic loss of a linear classifier once, and solve it.

        model = FunctionalMechanism(epsilon=1.0, delta=1e-5).fit(x, y, classes=10)
        model.predict(x_new), model.accountant.get_epsilon(1e-5)

    The loss of ADPE's top layer, expanded to second order, depends on the records only through
    G = sum h h^T and S = sum h y^T, where h = x / |x| and y has a one at the label. Both are
    released with Gaussian noise of s_G and s_S, and (G + lam I) W = S - (mean of S over classes) is
    solved. Any number of further epochs, by any optimizer, would be free too.

    - split: the part of rho that G gets, 0 < split < 1; s_G = z / sqrt(split).
    - public: unlabelled public records, shape (m, d). G is then n times their mean of h h^T, for n
      records, costs nothing, and all of the budget goes to S. Only public data may be given here.

    The noise of G has a spectral norm of about 1.41 s_G sqrt(d), and would make negative
    eigenvalues of most small ones. G has none, so those are raised to 0, and lam is
    s_G sqrt(d) / 8. (As they come, lam must be 1.5 s_G sqrt(d) or the solution follows the noise,
    and on MNIST at epsilon 0.5 that costs 7 points.) With public records lam is z**2 / 10.

    Formal guarantee: the model is (epsilon, delta)-DP for adding or removing a record, where the
    number n of records is public: an added record was a row of zeros before. Without `public`, n is
    used for nothing. All is one Gaussian mechanism. Proof: a record adds (sqrt(split) t, sqrt(1 -
    split) h y^T) to what is released with noise z, where t is the upper triangle of h h^T with the
    entries off the diagonal times sqrt(2), so |t| = |h|**2 <= 1 and |h y^T| = |h| <= 1. The
    record's norm is then at most 1, with z from `analytic_noise`; s_G**-2 + s_S**-2 = z**-2. Noise
    is added on a grid, see `dpsgd.noise.grid.Grid`. The number of features and of classes is
    public; an error of `fit` is not covered.

    Raises `InvalidInput` for an epsilon, a delta or a split that is not valid.
    Source: Zhang, Zhang, Xiao, Yang and Winslett, "Functional mechanism", VLDB 2012, of the loss;
    Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss", STOC 2014, of G.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    split: float = 0.8
    public: Any = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.split < 1:
            raise InvalidInput(f"split must lie strictly between 0 and 1, got {self.split!r}")
        analytic_noise(self.epsilon, self.delta)

    def fit(self, x: Any, y: Any, *, classes: int, coins: Coins | None = None) -> "NoisyQuadratic":
        """Release the loss of records, shape (n, d), with labels in 0..classes-1, and solve it.

        A record of zeros, or with a value that is not finite, adds nothing. `coins` is for tests.
        Raises `InvalidInput`, and releases nothing, where shapes or labels do not fit. Cost: n d**2
        and d**3 operations, and a draw for each of d (d + 1) / 2 + d classes values.
        """
        rows = as_rows(x)
        check_integer("classes", classes, 2)
        labels = as_labels(y, len(rows))
        if not bool(((labels >= 0) & (labels < classes)).all()):
            raise InvalidInput(f"a label lies outside of 0..{classes - 1}")
        d, size = rows.shape[1], len(rows)
        share = self.split if self.public is None else 0.0
        known = None if self.public is None else second_moments(self.public).to(rows.device)
        if known is not None and len(known) != d:
            raise InvalidInput(f"public records have {len(known)} features, the others {d}")
        z = analytic_noise(self.epsilon, self.delta)
        accountant = GDPAccountant(Relation.ADD_REMOVE)
        released = sums(rows, labels.to(rows.device), classes, share)
        grid = Grid.for_sums(1.0, len(released), z)
        accountant.step(noise_multiplier=z, sampling=NoSampling())
        KeystreamNoise(coins or Coins()).add_to([released], grid, z)
        products = released[-d * classes :].view(d, classes) / math.sqrt(1 - share)
        if known is None:
            squares = _symmetric(released[: -d * classes] / math.sqrt(share), d)
            ridge = z / math.sqrt(share) * math.sqrt(d) / 8
        else:
            squares, ridge = size * known, z**2 / 10
        values, axes = torch.linalg.eigh(squares)
        target = products - products.mean(1, keepdim=True)
        weights = axes @ ((axes.T @ target) / (values.clamp_min(0) + ridge)[:, None])
        return NoisyQuadratic(weights, accountant)


@dataclass(frozen=True, eq=False)
class NoisyQuadratic:
    """A linear classifier, with the account of the loss it was solved from."""

    weights: Tensor
    """W, in float64, shape (d, classes)."""
    accountant: Accountant

    def get_epsilon(self, delta: float) -> float:
        """Return the epsilon of all that the model was computed from, at a delta."""
        return self.accountant.get_epsilon(delta)

    def predict(self, x: Any) -> Tensor:
        """Return the most probable classes of records, shape (n,)."""
        parts = torch.split(as_rows(x), _AT_ONCE)
        return torch.cat([(unit(part) @ self.weights).argmax(1) for part in parts])


def sums(rows: Tensor, labels: Tensor, classes: int, share: float) -> Tensor:
    """Return the scaled sums that noise is added to, flat, in float64: see the class's proof.

    Without a share the squares are left out.
    """
    d = rows.shape[1]
    squares = torch.zeros(d, d, dtype=torch.float64, device=rows.device)
    products = torch.zeros(d, classes, dtype=torch.float64, device=rows.device)
    for part, own in zip(torch.split(rows, _AT_ONCE), torch.split(labels, _AT_ONCE), strict=True):
        units = unit(part) * _WITHIN
        if share:
            squares += units.T @ units
        products.index_add_(1, own, units.T)
    flat = products.flatten() * math.sqrt(1 - share)
    if not share:
        return flat
    i, j = torch.triu_indices(d, d, device=rows.device)
    weight = torch.where(i == j, 1.0, math.sqrt(2)).to(torch.float64)
    return torch.cat([squares[i, j] * weight * math.sqrt(share), flat])


def _symmetric(triangle: Tensor, d: int) -> Tensor:
    """Return the matrix whose upper triangle this is, with sqrt(2) off the diagonal."""
    i, j = torch.triu_indices(d, d, device=triangle.device)
    found = torch.zeros(d, d, dtype=torch.float64, device=triangle.device)
    found[i, j] = torch.where(i == j, triangle, triangle / math.sqrt(2))
    return torch.triu(found, 1).T + found
