"""Privacy losses: how far one report tells any two inputs apart, as a distribution.

The *privacy loss* of a code y, of an input x against another x', is ln(Q[x][y] / Q[x'][y]). Drawn
from Q[x], the losses L say how likely the event of Q[x] that exceeds e**epsilon times its
probability under Q[x'] is, at any epsilon: E max(0, 1 - e**(epsilon - L)), the *hockey-stick
divergence*. A distribution of losses whose divergence is at least that of every two inputs, at
every epsilon of either sign, *dominates* the mechanism; then the sum of independent losses
dominates reports about one record, in which the inputs of every report are chosen anew (Zhu, Dong
and Wang, "Optimal accounting of differential privacy via characteristic function", AISTATS 2022,
theorem 10). `ldp.planning.composition.of_channels` adds such losses up.

All that is kept here only grows by rounding: a mass is at least the one that it stands for, and at
a loss at least as large, which never lowers a divergence, of one report or of many.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, singledispatch

import numpy as np
from numpy.typing import NDArray

from ldp.core.channel import Channel
from ldp.core.exact import check_epsilon, exp_bounds, float_above, log_upper
from ldp.core.mechanism import Mechanism
from ldp.errors import InvalidInput

Floats = NDArray[np.float64]

_STEPS = 128
"""Losses between 0 and the largest one on which the divergence of a table is kept."""

_MOST_CELLS = 1 << 25
"""Pairs of inputs times codes beyond which a channel is bounded rather than compared."""

_UNIT = 2.0**-52
"""Twice the relative error of one operation on doubles."""

_LABEL = 2.0**-44
"""What the largest loss of a table is raised by."""


@dataclass(frozen=True)
class Losses:
    """Losses on a lattice that dominate a mechanism: masses[i] at (lowest + i) unit.

    `epsilon` is at least the largest loss that is not infinite; `certain` is the mass at infinity,
    of codes that rule an input out. Masses and `certain` sum to one, up to what rounding added.
    """

    epsilon: float
    unit: float
    lowest: int
    masses: tuple[float, ...]
    certain: float = 0.0

    def divergence(self, epsilon: float) -> float:
        """Return an upper bound on the hockey-stick divergence of any two inputs, at `epsilon`."""
        at = (self.lowest + np.arange(len(self.masses))) * self.unit
        excess = -np.expm1(np.minimum(epsilon - at, 0.0))
        return min(1.0, self.certain + float(np.array(self.masses) @ excess) * (1 + 1e-12))


def bounded(epsilon: float, variation: Fraction | float | None = None) -> Losses:
    """Return losses that dominate every epsilon-LDP mechanism of at most this total variation.

    `variation` is the largest total variation distance of two inputs' reports; None stands for
    the largest that epsilon allows, tanh(epsilon / 2), that of randomised response. The losses
    are epsilon, 0 and -epsilon: the divergence of two inputs is convex in e**epsilon, at most
    `variation` at 1 and 0 from e**epsilon on, and the divergence of these losses is the straight
    line between. So they are exact for two inputs whose codes have no other losses
    (`Mechanism.two_valued`). Raises `InvalidInput` unless epsilon is in range and
    0 <= variation <= 1.
    Source: Ghazi and Issa, "Total variation meets differential privacy", ISIT 2024; for None,
    Kairouz, Oh and Viswanath, ICML 2015.
    """
    check_epsilon(epsilon)
    low, high = exp_bounds(Fraction(epsilon))
    most = (high - 1) / (high + 1)
    if variation is not None and not 0 <= variation <= 1:
        raise InvalidInput(f"a total variation must lie in [0, 1], got {variation}")
    distance = most if variation is None else min(Fraction(variation), most)
    up = distance * low / (low - 1)
    down = distance / (low - 1)
    neither = max(Fraction(0), 1 - distance * (high + 1) / (high - 1))
    return Losses(epsilon, epsilon, -1, tuple(map(float_above, (down, neither, up))))


def unbounded(epsilon: float) -> Losses:
    """Return losses that dominate whatever keeps P(y | x) <= e**epsilon P(y | x') one way round.

    The loss is epsilon for certain: such reports only add up. Nothing less holds where a policy
    protects x from x', and not x' from x.
    """
    return Losses(epsilon, epsilon, 1, (1.0,))


def variation_of(mechanism: Mechanism) -> float | None:
    """Return the largest total variation of two inputs' fresh reports, rounded up, or a bound.

    With the epsilon it is what `bounded` asks for, and all that a device needs to keep of a
    report. It is 1 where nothing smaller is known, and None where a policy protects x from x'
    and not x' from x: then `bounded` does not hold, and reports only add up.
    Cost: 0.1 s for the largest tables, otherwise below a millisecond.
    """
    if mechanism.variation is not None:
        return float_above(mechanism.variation)
    if not mechanism.is_mutual:
        return None
    matrix, pairs = _matrix(mechanism), mechanism.protected_pairs()
    if matrix is None:
        return 1.0
    largest = 0.0
    for x, row in enumerate(matrix):
        others = matrix if pairs is None else matrix[pairs[x]]
        apart: Floats = np.abs(others - row).sum(axis=1)
        largest = max(largest, float(apart.max(initial=0.0)))
    return min(1.0, largest / 2 + float(matrix.shape[1] + 4) * _UNIT)


@singledispatch
def losses_of(reported: object) -> Losses:
    """Return losses that dominate one report of a `Mechanism` or `Channel`, of any two inputs.

    - Of a mechanism with a known `variation`: `bounded`, which is exact where all losses of two
      inputs are epsilon, 0 and -epsilon, as of k-RR, unary encoding, subset selection, hashing,
      projective geometry, the Hadamard mechanisms, one bit, the piecewise one and the square wave.
    - Of a table or a number's channel of moderate size: the largest divergence of any two inputs,
      at 257 losses between -epsilon and epsilon and straight lines between; it is convex, so a
      line is above it.
    - Otherwise `bounded` by epsilon alone.
    - Of a mechanism with a policy: the same for the pairs of values at finite distance, in the
      order in which they are; `unbounded` where the channel is too large. What the policy does not
      protect is not counted, as in `Mechanism.epsilon`; `losses_of(mechanism.channel())` counts
      it.
    Codes of a `Channel` that rule an input out are losses of infinity. Reports are drawn afresh.
    Raises `InvalidInput` for a mechanism whose reports share a memo, because reports of a memo do
    not compose as fresh ones (`Longitudinal`), and for one that keeps its epsilon only but for a
    delta.
    """
    raise InvalidInput(f"a mechanism or a channel is expected, got {type(reported).__name__}")


@losses_of.register
def _(reported: Losses) -> Losses:
    return reported


@losses_of.register
def _(reported: Channel) -> Losses:
    columns = list(zip(*reported.rows, strict=True))
    positive = [[p for p in column if p] for column in columns]
    worst = max(max(column) / min(column) for column in positive if column)
    matrix = np.array([[float(p) for p in row] for row in reported.rows])
    return _of_table(matrix, None, log_upper(worst))


@losses_of.register
def _(reported: Mechanism) -> Losses:
    return _of_mechanism(reported)


@lru_cache(maxsize=256)
def _of_mechanism(mechanism: Mechanism) -> Losses:
    if mechanism.guarantee == "repeated":
        raise InvalidInput(
            f"{mechanism.name}: reports that share a memo do not compose as fresh ones; where each "
            "has a memo of its own, use bounded(realised_epsilon)"
        )
    if mechanism.guarantee == "approximate":
        raise InvalidInput(f"{mechanism.name} keeps its epsilon only but for a delta")
    epsilon = mechanism.realised_epsilon
    if mechanism.epsilon * (1 - 1e-9) < epsilon:
        epsilon = mechanism.epsilon  # losses of round epsilons have a lattice in common
    if mechanism.variation is not None:
        return bounded(epsilon, mechanism.variation)
    matrix = _matrix(mechanism)
    if matrix is not None:
        return _of_table(matrix, mechanism.protected_pairs(), epsilon)
    return bounded(epsilon) if mechanism.is_mutual else unbounded(epsilon)


def _matrix(mechanism: Mechanism) -> Floats | None:
    """Return Pr[code | input] where all pairs of inputs can be compared, else None."""
    matrix = mechanism.matrix()
    return None if matrix is None or len(matrix) * matrix.size > _MOST_CELLS else matrix


def _of_table(matrix: Floats, pairs: NDArray[np.bool_] | None, epsilon: float) -> Losses:
    """Return losses that dominate the rows of a channel, shape (inputs, codes).

    `pairs[x, x']` tells which ordered pairs of rows count (None: all); `epsilon` is at least the
    largest finite loss of any of these. The largest divergence of the pairs is computed at the
    losses i unit, and is a straight line in e**loss between two of them.
    """
    unit = (epsilon + _LABEL) / _STEPS
    nodes = np.arange(-_STEPS, _STEPS + 1)
    # The largest node is beyond e**epsilon, and each at most e**(i unit): rounding and the error of
    # exp, at most 2**-47 for losses up to 32, are less than either margin.
    at = np.exp(nodes * unit) * (1 - _LABEL / 4)
    highest, certain = _divergences(matrix, pairs, at, unit)
    codes = matrix.shape[1]
    error = (codes + 2 * nodes.size + 16) * _UNIT
    highest = np.minimum(highest + error, 1.0)
    certain = min(1.0, certain + error) if certain else 0.0
    highest[-1] = certain
    # The mass at the losses from node i on is what makes the slope left of i: h_i plus
    # (h_(i-1) - h_i) e_i / (e_i - e_(i-1)), from the top down, where it is never decreasing.
    steep = at[1:] / np.diff(at)
    tails = highest[1:] + np.maximum(0, highest[:-1] - highest[1:]) * steep
    tails = np.concatenate([[1.0], tails * (1 + 16 * _UNIT), [certain]])
    tails = np.maximum.accumulate(tails[::-1])[::-1]
    masses = (tails[:-1] - tails[1:]) * (1 + _UNIT)
    return Losses(epsilon, unit, -_STEPS, tuple(masses.tolist()), certain)


def _divergences(
    matrix: Floats, pairs: NDArray[np.bool_] | None, at: Floats, unit: float
) -> tuple[Floats, float]:
    """Return the largest sum of (P - a P')_+ over pairs of rows at each a of `at`, exact but for
    rounding, and the largest mass of codes of a row that are impossible under the other."""
    size, half = at.size + 1, at.size // 2
    largest, certain = np.zeros(at.size), 0.0
    for x, row in enumerate(matrix):
        others = matrix if pairs is None else matrix[pairs[x]]
        if not len(others):
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.log(row / others)
        losses[:, row == 0] = -np.inf
        # The code counts at the nodes below its loss, of which there are so many.
        below = np.clip(np.ceil(losses / unit) + half, 0, at.size).astype(np.intp)
        flat = (below + size * np.arange(len(others))[:, None]).ravel()
        length = size * len(others)
        own = np.bincount(flat, np.broadcast_to(row, others.shape).ravel(), length)
        other = np.bincount(flat, others.ravel(), length)
        counted = [
            np.cumsum(each.reshape(-1, size)[:, ::-1], axis=1)[:, -2::-1] for each in (own, other)
        ]
        largest = np.maximum(largest, (counted[0] - at * counted[1]).max(axis=0))
        certain = max(certain, float(np.where(others == 0, row, 0.0).sum(axis=1).max()))
    return largest, certain
