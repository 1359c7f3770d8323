"""Per-sample gradients, in the forms that layers leave them in.

A form knows the norm of each sample's gradient and the sum of the gradients after each was
scaled, and needs the gradients themselves for neither. Forms of one parameter that was used more
than once are merged before a norm is taken, because norms do not add.

Norms are rounded upwards where a difference of large numbers, or a square that is rounded to zero,
could make them come out too small: no gradient clipped by them is longer than it should be.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpsgd.noise.compiled import add_products, add_squares, take_roots
from dpsgd.noise.shared import tensor_of
from ldp import InvalidInput

_SLACK = 16.0
"""Rounding errors allowed for in a norm by Gram matrices, in units of the type's epsilon."""
_WIDTH = 2048
"""Values of a row that a matrix product may add up in their own type: `_SLACK` covers what products
of a CPU lose on so many equal values, and not on 4,096."""
_PIECE = 64
"""Squares that a device other than a CPU may add up in the values' own type."""

Totals = Tensor | NDArray[np.float64]
"""A number for each sample, in float64: on a CPU an array, which compiled loops take as it is."""


class PerSample(ABC):
    """The gradients of one parameter for each of b samples."""

    @abstractmethod
    def add_squared_norms(self, totals: Totals) -> None:
        """Add the squared Euclidean norm of each sample's gradient to totals (b,), in float64."""

    @abstractmethod
    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Return the sum of factors[i] times gradient i, in the parameter's shape."""

    @abstractmethod
    def dense(self) -> Tensor:
        """Return the gradients themselves, shape (b, *shape)."""

    @abstractmethod
    def without(self, dropped: Tensor) -> "PerSample":
        """Return the gradients, with zeros for the samples that the mask `dropped` marks."""

    def merge(self, other: "PerSample") -> "PerSample":
        """Return the sum of both gradients, sample by sample."""
        return Dense(self.dense() + other.dense())


class Dense(PerSample):
    """The gradients themselves, shape (b, *shape)."""

    def __init__(self, gradients: Tensor) -> None:
        self.gradients = gradients

    def add_squared_norms(self, totals: Totals) -> None:
        _add_squares(self.gradients, totals)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        flat = self.gradients.flatten(1) if self.gradients.ndim > 1 else self.gradients[:, None]
        return (factors @ flat).view(self.gradients.shape[1:])

    def dense(self) -> Tensor:
        return self.gradients

    def without(self, dropped: Tensor) -> PerSample:
        return Dense(_drop(self.gradients, dropped))


class Outer(PerSample):
    """Sums over positions of outer products of output gradients and inputs.

    The gradient of sample i is the sum over t of outputs[i, t]^T inputs[i, t]; inputs have shape
    (b, T, d), outputs (b, T, p) and the parameter p * d values; of one position, (b, d) and
    (b, p). Repeated use adds positions.
    Source: Goodfellow, "Efficient per-example gradient computations", 2015, for one position; Li
    et al., "Large language models can be strong differentially private learners", ICLR 2022,
    equation 4, for more.
    """

    def __init__(self, inputs: Tensor, outputs: Tensor, shape: torch.Size) -> None:
        if inputs.ndim == 3 and inputs.shape[1] == 1:
            inputs, outputs = inputs.squeeze(1), outputs.squeeze(1)
        self._inputs = [inputs]
        self._outputs = [outputs]
        self._gram: list[Tensor] = []  # of the outputs, once it is known
        self.shape = shape

    @property
    def inputs(self) -> Tensor:
        """The inputs of all positions, shape (b, T, d)."""
        return _joined(self._inputs)

    @property
    def outputs(self) -> Tensor:
        """The output gradients of all positions, shape (b, T, p)."""
        return _joined(self._outputs)

    def _both(self) -> tuple[Tensor, Tensor]:
        """Return inputs and outputs: of one position (b, d) and (b, p), else of all."""
        if len(self._inputs) == 1 and self._inputs[0].ndim == 2:
            return self._inputs[0], self._outputs[0]
        return self.inputs, self.outputs

    def add_squared_norms(self, totals: Totals) -> None:
        inputs, outputs = self._both()
        if inputs.ndim == 2:
            _add_products(inputs, outputs, totals)
        else:
            self._gram[:] = self._gram or [_gram(outputs)]
            increase(totals, gram_squares(inputs, outputs, self._gram[0]))

    def weighted_sum(self, factors: Tensor) -> Tensor:
        inputs, outputs = self._both()
        factors = factors.view(-1, *[1] * (inputs.ndim - 1))
        if inputs.shape[-1] < outputs.shape[-1]:
            inputs = inputs * factors
        else:
            outputs = outputs * factors
        if inputs.ndim == 3:
            if outputs.stride(0) < outputs.stride(1):  # to flatten it as it is would copy it
                inputs, outputs = inputs.transpose(0, 1), outputs.transpose(0, 1)
            inputs, outputs = inputs.flatten(0, 1), outputs.flatten(0, 1)
        return (outputs.T @ inputs).view(self.shape)

    def dense(self) -> Tensor:
        return (self.outputs.mT @ self.inputs).view(-1, *self.shape)

    def without(self, dropped: Tensor) -> PerSample:
        inputs, outputs = self._both()
        return Outer(_drop(inputs, dropped), _drop(outputs, dropped), self.shape)

    def share_gram(self, other: "Outer") -> None:
        """Compute one Gram matrix of the outputs, which are the same, for both."""
        self._gram = other._gram

    def merge(self, other: PerSample) -> PerSample:
        if isinstance(other, Outer):
            self._inputs += other._inputs
            self._outputs += other._outputs
            self._gram = []
            return self
        return Tied(self, other) if isinstance(other, Rows) else super().merge(other)


class Rows(PerSample):
    """Gradients of an embedding's table, which are non-zero on few rows.

    gradients[i, t] is added to the row rows[i, t] of the gradient of sample i; rows have shape
    (b, T), gradients (b, T, d). No one-hot matrix is formed.
    """

    def __init__(self, rows: Tensor, gradients: Tensor, shape: torch.Size) -> None:
        self.rows = rows
        self.gradients = gradients
        self.shape = shape

    def add_squared_norms(self, totals: Totals) -> None:
        batch, positions, d = self.gradients.shape
        if positions == 1:
            _add_squares(self.gradients, totals)
            return
        samples = torch.arange(batch, device=self.rows.device)[:, None]
        keys, places = torch.unique(samples * self.shape[0] + self.rows, return_inverse=True)
        summed = self.gradients.new_zeros(keys.numel(), d)
        summed.index_add_(0, places.flatten(), self.gradients.flatten(0, 1))
        owners = keys.div(self.shape[0], rounding_mode="floor")
        squares = new_totals((len(summed),), summed.device)
        _add_squares(summed, squares)
        tensor_of(totals).index_add_(0, owners, tensor_of(squares))

    def weighted_sum(self, factors: Tensor) -> Tensor:
        scaled = (self.gradients * factors[:, None, None]).flatten(0, 1)
        return self.gradients.new_zeros(self.shape).index_add_(0, self.rows.flatten(), scaled)

    def dense(self) -> Tensor:
        total = self.gradients.new_zeros(len(self.rows), *self.shape)
        places = self.rows[:, :, None].expand_as(self.gradients)
        return total.scatter_add_(1, places, self.gradients)

    def without(self, dropped: Tensor) -> PerSample:
        return Rows(self.rows, _drop(self.gradients, dropped), self.shape)

    def merge(self, other: PerSample) -> PerSample:
        if isinstance(other, Rows):
            rows = torch.cat([self.rows, other.rows], 1)
            return Rows(rows, torch.cat([self.gradients, other.gradients], 1), self.shape)
        return Tied(other, self) if isinstance(other, Outer) else super().merge(other)


class Tied(PerSample):
    """Gradients of a table that is an embedding's and a linear layer's weight as well."""

    def __init__(self, outer: Outer, rows: Rows) -> None:
        self.outer = outer
        self.rows = rows

    def add_squared_norms(self, totals: Totals) -> None:
        # Where the embedding's gradient e falls on row r, the sum of g_s h_s^T has g_s[r] h_s.
        inputs, outputs = self.outer.inputs, self.outer.outputs
        parts = new_totals((len(inputs),), inputs.device)
        self.outer.add_squared_norms(parts)
        self.rows.add_squared_norms(parts)
        apart = tensor_of(parts)
        similar = inputs @ self.rows.gradients.mT
        hit = outputs.gather(2, self.rows.rows[:, None, :].expand(-1, outputs.shape[1], -1))
        cross = torch.linalg.vecdot(similar.flatten(1), hit.flatten(1))
        # Products of small gradients, rounded to zero, may have met large outputs.
        terms = inputs.shape[2] * hit.abs().sum((1, 2)).double() + hit[0].numel()
        apart += 2 * torch.finfo(cross.dtype).tiny * terms
        increase(totals, _rounded_up(apart + 2 * cross, apart, cross.dtype))

    def weighted_sum(self, factors: Tensor) -> Tensor:
        return self.outer.weighted_sum(factors) + self.rows.weighted_sum(factors)

    def dense(self) -> Tensor:
        return self.outer.dense() + self.rows.dense()

    def without(self, dropped: Tensor) -> PerSample:
        return self.outer.without(dropped).merge(self.rows.without(dropped))

    def merge(self, other: PerSample) -> PerSample:
        if isinstance(other, Outer):
            return self.outer.merge(other).merge(self.rows)
        if isinstance(other, Rows):
            return self.outer.merge(self.rows.merge(other))
        return super().merge(other)


class Deferred(PerSample):
    """Known norms, and gradients that are summed or formed only on demand."""

    def __init__(
        self,
        squares: Totals,
        summed: Callable[[Tensor], Tensor],
        formed: Callable[[], Tensor],
        dropping: Callable[[Tensor], PerSample],
    ) -> None:
        self._squares = squares
        self._summed = summed
        self._formed = formed
        self._dropping = dropping

    def add_squared_norms(self, totals: Totals) -> None:
        totals += self._squares

    def weighted_sum(self, factors: Tensor) -> Tensor:
        return self._summed(factors)

    def dense(self) -> Tensor:
        return self._formed()

    def without(self, dropped: Tensor) -> PerSample:
        return self._dropping(dropped)


def outer(inputs: Tensor, outputs: Tensor, shape: torch.Size) -> PerSample:
    """Return the sum over positions of outer products, in the form that costs least.

    One position is best left as it is. Of several, the gradients themselves are formed where
    they are no larger than their factors, or Gram matrices would cost more.
    """
    batch, positions, d = inputs.shape
    p = outputs.shape[2]
    if positions > 1 and prefers_dense(positions, d, p):
        return Dense((outputs.mT @ inputs).view(batch, *shape))
    return Outer(inputs, outputs, shape)


def prefers_dense(positions: int, d: int, p: int) -> bool:
    """Tell whether p x d gradients are cheaper to form than Gram matrices of the positions.

    In multiplications they always are, as Gram matrices leave their sum to do; but once they are
    larger than their factors, memory is slower still.
    """
    return p * d <= max(2 * positions**2, 1.25 * positions * (p + d))


def gram_squares(inputs: Tensor, outputs: Tensor, right: Tensor | None = None) -> Tensor:
    """Return the squared norms of sums of outer products over T, from (b, T, d) and (b, T, p).

    `right` is the outputs' Gram matrix, where it is known. The two Gram matrices may cancel each
    other; a bound on the rounding error is added.
    """
    left, right = _gram(inputs), _gram(outputs) if right is None else right
    both = torch.promote_types(left.dtype, right.dtype)
    squares = torch.linalg.vecdot(left.to(both).flatten(1), right.to(both).flatten(1))
    diagonals = _diagonal(left, inputs) * _diagonal(right, outputs)
    largest = diagonals.sqrt().sum(1).square()
    return _rounded_up(squares, largest, inputs.dtype)


def _gram(rows: Tensor) -> Tensor:
    """Return the products of all pairs of rows, (b, T, T), from (b, T, d)."""
    if rows.shape[2] <= _WIDTH:
        return rows @ rows.mT
    gram = rows.new_zeros((*rows.shape[:2], rows.shape[1]), dtype=torch.float64)
    for part in torch.split(rows, _WIDTH, 2):
        gram += part @ part.mT
    return gram


def _rounded_up(squares: Tensor, largest: Tensor, dtype: torch.dtype) -> Tensor:
    """Return squares plus a bound on the rounding error of numbers up to `largest`."""
    return squares.clamp_min(0) + _SLACK * torch.finfo(dtype).eps * largest


def _joined(parts: list[Tensor]) -> Tensor:
    if len(parts) > 1:
        parts[:] = [torch.cat([part if part.ndim == 3 else part[:, None] for part in parts], 1)]
    return parts[0] if parts[0].ndim == 3 else parts[0][:, None]


def least_square(values: int, dtype: torch.dtype) -> float:
    """Return an upper bound on the sum of `values` squares that were each rounded to zero."""
    limits = torch.finfo(dtype)
    return values * limits.tiny / limits.eps


def new_totals(size: tuple[int, ...], device: torch.device) -> Totals:
    """Return zero totals of shape `size`."""
    if device.type == "cpu":
        return np.zeros(size)
    return torch.zeros(size, dtype=torch.float64, device=device)


def norms_of(
    squares: Totals, least: float, scale: float, dtype: torch.dtype
) -> tuple[Tensor, bool]:
    """Return the roots of squares plus `least`, times `scale`, and whether all are finite."""
    if isinstance(squares, Tensor):
        norms = squares.add(least).sqrt_().mul_(scale).to(dtype)
        return norms, math.isfinite(norms.sum())
    norms = torch.empty(squares.shape, dtype=dtype, device="cpu")
    return norms, take_roots(squares, least, scale, norms.numpy())


def increase(totals: Totals, values: Tensor) -> None:
    """Add `values` to `totals` in place, one number to each."""
    total = tensor_of(totals)
    total += values


def _add_squares(values: Tensor, totals: Totals) -> None:
    """Add the squared norm of each sample's values, rounded up, to totals.

    On a CPU, in arrays, squares are added up in float64: torch adds thousands of float32 to one
    total, which made the norm of ten million values too small by 7e-5 of it. On other devices
    `_upper_squares` does it. A norm beyond the values' type is infinite: to clip it would take
    factors of few bits.
    """
    rows = _rows(values, totals)
    if isinstance(totals, Tensor):
        totals += _upper_squares(rows)
    else:
        add_squares(rows.numpy(), totals, torch.finfo(rows.dtype).max)


def _add_products(left: Tensor, right: Tensor, totals: Totals) -> None:
    """Add the squared norm of each sample's outer product, rounded up, to totals."""
    rows, others = _rows(left, totals), _rows(right, totals)
    if isinstance(totals, Tensor):
        totals += _upper_squares(rows) * _upper_squares(others)
    else:
        add_products(rows.numpy(), others.numpy(), totals, torch.finfo(rows.dtype).max)


def _upper_squares(rows: Tensor) -> Tensor:
    """Return the squared norm of each row, rounded up, in the type of the rows.

    Of pieces in that type, and of all of them in float64: of a million equal float32 in one total
    the norm came out too small by 7e-4 of it, and no order of the sum is promised by a device. In
    a piece each of n additions, squares and the root is off by half an epsilon at most, in any
    order (Higham, "Accuracy and stability of numerical algorithms", 2002, section 4.2); twice
    that is added.
    """
    values = rows.shape[1]
    whole = values - values % _PIECE
    norms = []
    if whole:
        pieces = rows[:, :whole].view(len(rows), whole // _PIECE, _PIECE)
        norms.append(torch.linalg.vector_norm(pieces, dim=2))
    if whole < values:
        norms.append(torch.linalg.vector_norm(rows[:, whole:], dim=1, keepdim=True))
    together = torch.cat(norms, 1) if len(norms) > 1 else norms[0] if norms else rows
    squares: Tensor = torch.linalg.vector_norm(together, dim=1, dtype=torch.float64).square_()
    squares.mul_(1 + (_PIECE + 4) * torch.finfo(rows.dtype).eps)
    return squares.add_(least_square(values, rows.dtype)).to(rows.dtype)


def _rows(values: Tensor, totals: Totals) -> Tensor:
    """Return the samples' values as rows, their number checked: compiled loops check none."""
    if values.shape[0] != totals.shape[0]:
        raise InvalidInput(
            f"got gradients of {values.shape[0]} samples, expected {totals.shape[0]}"
        )
    return values.flatten(1).contiguous() if values.ndim > 1 else values[:, None]


def _diagonal(gram: Tensor, rows: Tensor) -> Tensor:
    """Return the diagonals of the Gram matrices of rows, rounded up: the rows' squared norms."""
    return gram.diagonal(dim1=1, dim2=2) + least_square(rows.shape[2], rows.dtype)


def _drop(values: Tensor, dropped: Tensor) -> Tensor:
    return values.masked_fill(dropped.view(-1, *[1] * (values.ndim - 1)), 0)
