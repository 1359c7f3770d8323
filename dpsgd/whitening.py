"""Whitening by public records: the importance of features, at no cost of privacy.

whitening = PublicWhitening.fit(public)          # public records alone
model.fit(whitening.transform(private), labels)  # private ones, each for itself
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpsgd.accounting.events import check_positive
from ldp import InvalidInput

_AT_ONCE = 4096
_WITHIN = 1 - 2.0**-20
"""What a unit norm is shortened to, so that rounding to float32 leaves it within 1."""


@dataclass(frozen=True, eq=False)
class PublicWhitening:
    """Scale and turn features so that public records spread alike in every direction.

    A record x becomes h = x / |x|, then Z h with Z = (E[h h^T] + ridge)**-1/2, the mean over public
    records, and last is brought to norm 1. A private gradient step then moves all directions at the
    same pace, so that few steps are enough, and each direction gets the same share of the noise.

    Guarantee: only public data may enter `fit`. What was fitted on private records tells of them
    without any bound, and no accountant can see it; so this is no step of a scikit-learn pipeline,
    whose `fit` would get the private records. `transform` takes each record by itself, so it costs
    no privacy, and every result has a norm of at most 1.
    """

    matrix: Tensor
    """Z, symmetric, shape (d, d), in float64."""

    @classmethod
    def fit(cls, public: Any, *, ridge: float = 1e-4) -> "PublicWhitening":
        """Return the whitening of public records, an array or tensor of shape (n, d).

        `ridge` is added to the second moments, whose sum is 1: it bounds what a direction in which
        public records hardly spread is scaled by. Rows of zeros or non-finite values are left out.
        Raises `InvalidInput` where there is no other row. Cost: n d**2 and 10 d**3.
        """
        check_positive("ridge", ridge)
        moments = second_moments(public)
        values, axes = torch.linalg.eigh(moments)
        return cls(axes @ (axes.T / (values.clamp_min(0) + ridge).sqrt()[:, None]))

    def transform(self, x: Any) -> Tensor:
        """Return the records whitened, in float32, shape (n, d), with norms of at most 1.

        A row of zeros, or with a value that is not finite, becomes a row of zeros. Raises
        `InvalidInput` for another number of features.
        """
        rows = as_rows(x)
        if rows.shape[1] != len(self.matrix):
            raise InvalidInput(
                f"the public records have {len(self.matrix)} features, got {rows.shape[1]}"
            )
        matrix = self.matrix.to(rows.device)
        parts = torch.split(rows, _AT_ONCE)  # so that doubles of all are never held
        return torch.cat([(unit(unit(part) @ matrix) * _WITHIN).float() for part in parts])


def second_moments(x: Any) -> Tensor:
    """Return the mean of h h^T over rows h = x / |x|, in float64, shape (d, d).

    Raises `InvalidInput` where no row is finite and other than zero.
    """
    rows = as_rows(x)
    total, count = torch.zeros(2 * rows.shape[1:], dtype=torch.float64, device=rows.device), 0
    for part in torch.split(rows, _AT_ONCE):
        units = unit(part)
        total += units.T @ units
        count += int(units.any(1).sum())
    if not count:
        raise InvalidInput("no public record is finite and other than zero")
    return total / count


def as_rows(x: Any) -> Tensor:
    """Return records as a tensor; raise `InvalidInput` unless they have shape (n, d), d >= 1."""
    try:
        rows = x if isinstance(x, Tensor) else torch.as_tensor(np.array(x, dtype=np.float64))
    except (TypeError, ValueError):
        raise InvalidInput(f"records must be numbers of shape (n, d), got {type(x)}") from None
    if rows.dim() != 2 or not rows.shape[1] or rows.is_complex():
        raise InvalidInput(f"records must be numbers of shape (n, d), got {tuple(rows.shape)}")
    return rows


def as_labels(y: Any, count: int) -> Tensor:
    """Return labels of any integer type as int64, shape (count,).

    Raises `InvalidInput` unless there is an integer for each of `count` >= 1 records.
    """
    try:
        labels = torch.as_tensor(y)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InvalidInput(f"expected an integer label for each record, got {type(y)}") from None
    wrong = labels.is_floating_point() or labels.is_complex()
    if wrong or labels.shape != (count,) or not count:
        raise InvalidInput(
            f"expected an integer label for each of {count} records, got "
            f"{labels.dtype} of shape {tuple(labels.shape)}"
        )
    return labels.long()


def unit(rows: Tensor) -> Tensor:
    """Return each row over its norm, in float64; a row that has no norm becomes zeros.

    The norm of a row of doubles may overflow: rows are first divided by their largest value.
    """
    rows = rows.double()
    largest = rows.abs().amax(1, keepdim=True)
    usable = torch.isfinite(largest) & (largest > 0)
    rows = torch.where(usable, rows, 0.0) / torch.where(usable, largest, 1.0)
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / norms.clamp_min(1.0)
