"""Per-sample gradients, in the forms that layers leave them in.

A form knows the norm of each sample's gradient and the sum of the gradients after each was
scaled, and needs the gradients themselves for neither. Forms of one parameter that was used more
than once are merged before a norm is taken, because norms do not add. Norms are rounded upwards:
no gradient clipped by them is longer than it should be.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dpsgd.gradients.mixing import mapped
from dpsgd.noise.compiled import squares
from ldp import InvalidInput

_SLACK = 16.0
"""Rounding errors allowed for in a norm by Gram matrices, in units of the type's epsilon."""
_WIDTH = 2048
"""Values of a row that a matrix product may add up in their own type: `_SLACK` covers what products
of a CPU lose on so many equal values, and not on 4,096."""
_PIECE = 64
"""Squares that a device other than a CPU may add up in the values' own type."""


class PerSample(ABC):
    """The gradients of one parameter for each of b samples."""

    @abstractmethod
    def add_squared_norms(self, totals: Tensor) -> None:
        """Add the squared Euclidean norm of each sample's gradient to totals (b,), in float64."""

    @abstractmethod
    def weighted_sum(self, factors: Tensor) -> Tensor:
        """Return the sum of factors[i] times gradient i, in the parameter's shape."""

    @abstractmethod
    def dense(self) -> Tensor:
        """Return the gradients themselves, shape (b, *shape)."""

    def without(self, dropped: Tensor) -> "PerSample":
        """Return the gradients, with zeros for the samples that the mask `dropped` marks."""

        def drop(values: Tensor) -> Tensor:
            return values.masked_fill(dropped.view(-1, *[1] * (values.ndim - 1)), 0)

        form: PerSample = mapped(drop, self)
        return form


@dataclass(eq=False)
class Dense(PerSample):
    """The gradients themselves, shape (b, *shape)."""

    gradients: Tensor

    def add_squared_norms(self, totals: Tensor) -> None:
        totals += _squares(self.gradients, totals)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        flat = self.gradients.flatten(1) if self.gradients.ndim > 1 else self.gradients[:, None]
        return (factors @ flat).view(self.gradients.shape[1:])

    def dense(self) -> Tensor:
        return self.gradients


@dataclass(eq=False)
class Outer(PerSample):
    """Sums over positions of outer products of output gradients and inputs.

    The gradient of sample i is the sum over t of outputs[i, t]^T inputs[i, t]; inputs have shape
    (b, T, d), outputs (b, T, p) and the parameter p * d values. Repeated use adds positions.
    Source: Goodfellow, "Efficient per-example gradient computations", 2015, for one position; Li
    et al., "Large language models can be strong differentially private learners", ICLR 2022,
    equation 4, for more.
    """

    inputs: Tensor
    outputs: Tensor
    shape: torch.Size
    gram: list[Tensor] = field(default_factory=list)
    """The Gram matrix of the outputs, once it is known: forms of the same outputs may share it."""

    def add_squared_norms(self, totals: Tensor) -> None:
        if self.inputs.shape[1] == 1:
            totals += _squares(self.inputs, totals) * _squares(self.outputs, totals)
        else:
            self.gram[:] = self.gram or [_gram(self.outputs)]
            totals += gram_squares(self.inputs, self.outputs, self.gram[0])

    def weighted_sum(self, factors: Tensor) -> Tensor:
        inputs, outputs = self.inputs, self.outputs
        factors = factors[:, None, None]
        if inputs.shape[-1] < outputs.shape[-1]:
            inputs = inputs * factors
        else:
            outputs = outputs * factors
        if outputs.stride(0) < outputs.stride(1):  # to flatten it as it is would copy it
            inputs, outputs = inputs.transpose(0, 1), outputs.transpose(0, 1)
        return (outputs.flatten(0, 1).T @ inputs.flatten(0, 1)).view(self.shape)

    def dense(self) -> Tensor:
        return (self.outputs.mT @ self.inputs).view(-1, *self.shape)


@dataclass(eq=False)
class Rows(PerSample):
    """Gradients of an embedding's table, which are non-zero on few rows.

    gradients[i, t] is added to the row rows[i, t] of the gradient of sample i; rows have shape
    (b, T), gradients (b, T, d). No one-hot matrix is formed.
    """

    rows: Tensor
    gradients: Tensor
    shape: torch.Size

    def add_squared_norms(self, totals: Tensor) -> None:
        batch, positions, d = self.gradients.shape
        if positions == 1:
            totals += _squares(self.gradients, totals)
            return
        samples = torch.arange(batch, device=self.rows.device)[:, None]
        keys, places = torch.unique(samples * self.shape[0] + self.rows, return_inverse=True)
        summed = self.gradients.new_zeros(keys.numel(), d)
        summed.index_add_(0, places.flatten(), self.gradients.flatten(0, 1))
        owners = keys.div(self.shape[0], rounding_mode="floor")
        totals.index_add_(0, owners, _squares(summed, owners))

    def weighted_sum(self, factors: Tensor) -> Tensor:
        scaled = (self.gradients * factors[:, None, None]).flatten(0, 1)
        return self.gradients.new_zeros(self.shape).index_add_(0, self.rows.flatten(), scaled)

    def dense(self) -> Tensor:
        total = self.gradients.new_zeros(len(self.rows), *self.shape)
        places = self.rows[:, :, None].expand_as(self.gradients)
        return total.scatter_add_(1, places, self.gradients)


@dataclass(eq=False)
class Tied(PerSample):
    """Gradients of a table that is an embedding's and a linear layer's weight as well."""

    outer: Outer
    rows: Rows

    def add_squared_norms(self, totals: Tensor) -> None:
        # Where the embedding's gradient e falls on row r, the sum of g_s h_s^T has g_s[r] h_s.
        inputs, outputs = self.outer.inputs, self.outer.outputs
        apart = torch.zeros_like(totals)
        self.outer.add_squared_norms(apart)
        self.rows.add_squared_norms(apart)
        similar = inputs @ self.rows.gradients.mT
        hit = outputs.gather(2, self.rows.rows[:, None, :].expand(-1, outputs.shape[1], -1))
        cross = torch.linalg.vecdot(similar.flatten(1), hit.flatten(1))
        # Products of small gradients, rounded to zero, may have met large outputs.
        terms = inputs.shape[2] * hit.abs().sum((1, 2)).double() + hit[0].numel()
        apart += 2 * torch.finfo(cross.dtype).tiny * terms
        totals += _rounded_up(apart + 2 * cross, apart, cross.dtype)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        return self.outer.weighted_sum(factors) + self.rows.weighted_sum(factors)

    def dense(self) -> Tensor:
        return self.outer.dense() + self.rows.dense()


@dataclass(eq=False)
class Blocks(PerSample):
    """Gradients of a parameter of which each block of rows has a form of its own."""

    forms: list[PerSample]

    def add_squared_norms(self, totals: Tensor) -> None:
        for form in self.forms:
            form.add_squared_norms(totals)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        return torch.cat([form.weighted_sum(factors) for form in self.forms])

    def dense(self) -> Tensor:
        return torch.cat([form.dense() for form in self.forms], 1)


def merged(forms: list[PerSample]) -> PerSample:
    """Return the sum of gradients of one parameter, sample by sample."""
    if len(forms) == 1:
        return forms[0]
    outers = [form for form in forms if isinstance(form, Outer)]
    rows = [form for form in forms if isinstance(form, Rows)]
    if len(outers) + len(rows) < len(forms):
        return Dense(sum((form.dense() for form in forms[1:]), forms[0].dense()))
    if len(outers) > 1:
        inputs, outputs = zip(*((form.inputs, form.outputs) for form in outers), strict=True)
        outers = [Outer(torch.cat(inputs, 1), torch.cat(outputs, 1), outers[0].shape)]
    if len(rows) > 1:
        places, gradients = zip(*((form.rows, form.gradients) for form in rows), strict=True)
        rows = [Rows(torch.cat(places, 1), torch.cat(gradients, 1), rows[0].shape)]
    return Tied(outers[0], rows[0]) if outers and rows else [*outers, *rows][0]


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
    found = torch.linalg.vecdot(left.to(both).flatten(1), right.to(both).flatten(1))
    diagonals = _diagonal(left, inputs) * _diagonal(right, outputs)
    largest = diagonals.sqrt().sum(1).square()
    return _rounded_up(found, largest, inputs.dtype)


def _gram(rows: Tensor) -> Tensor:
    """Return the products of all pairs of rows, (b, T, T), from (b, T, d)."""
    if rows.shape[2] <= _WIDTH:
        return rows @ rows.mT
    gram = rows.new_zeros((*rows.shape[:2], rows.shape[1]), dtype=torch.float64)
    for part in torch.split(rows, _WIDTH, 2):
        gram += part @ part.mT
    return gram


def _rounded_up(values: Tensor, largest: Tensor, dtype: torch.dtype) -> Tensor:
    """Return squares plus a bound on the rounding error of numbers up to `largest`."""
    return values.clamp_min(0) + _SLACK * torch.finfo(dtype).eps * largest


def least_square(values: int, dtype: torch.dtype) -> float:
    """Return an upper bound on the sum of `values` squares that were each rounded to zero."""
    limits = torch.finfo(dtype)
    return values * limits.tiny / limits.eps


def _squares(values: Tensor, samples: Tensor) -> Tensor:
    """Return the squared norm of each sample's values, rounded up, in float64.

    On a CPU in compiled loops: torch adds thousands of float32 to one total, which made the norm
    of ten million values too small by 7e-5 of it.
    """
    if len(values) != len(samples):
        raise InvalidInput(f"got gradients of {len(values)} samples, expected {len(samples)}")
    rows = values.flatten(1).contiguous() if values.ndim > 1 else values[:, None]
    return _in_loops(rows) if rows.is_cpu else _in_pieces(rows)


def _in_loops(rows: Tensor) -> Tensor:
    return torch.from_numpy(squares(rows.numpy()))  # `as_tensor` would obey a default device


def _in_pieces(rows: Tensor) -> Tensor:
    """Return squared norms, of pieces in the rows' type, and of all of them in float64.

    Of a million equal float32 in one total the norm came out too small by 7e-4 of it, and no order
    of the sum is promised by a device. In a piece each of n additions, squares and the root is off
    by half an epsilon at most, in any order (Higham, "Accuracy and stability of numerical
    algorithms", 2002, section 4.2); twice that is added.
    """
    values = rows.shape[1]
    whole = values - values % _PIECE
    pieces = rows[:, :whole].view(len(rows), whole // _PIECE, _PIECE)
    norms = [torch.linalg.vector_norm(part, dim=-1) for part in (pieces, rows[:, None, whole:])]
    total = torch.linalg.vector_norm(torch.cat(norms, 1), dim=1, dtype=torch.float64).square_()
    total.mul_(1 + (_PIECE + 4) * torch.finfo(rows.dtype).eps)
    bounded: Tensor = total.add_(least_square(values, rows.dtype))
    return bounded


def _diagonal(gram: Tensor, rows: Tensor) -> Tensor:
    """Return the diagonals of the Gram matrices of rows, rounded up: the rows' squared norms."""
    return gram.diagonal(dim1=1, dim2=2) + least_square(rows.shape[2], rows.dtype)
