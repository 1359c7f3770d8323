"""Weights for a survey that is asked in order to explain one of its attributes.

Where a record reports a target y and attributes x_1, ..., x_d, each with its part of epsilon, what
is learned of how y depends on x_j has noise that both reports multiply: the errors of the cells'
departures from independence have the variance l_y l_j / n times that without privacy, l being
the variance of one report against that of the plain answer (Q_y^-1 and Q_j^-1 act on the two sides
of the table of codes, `ldp.estimating.joint`). The split of epsilon that is proposed minimises

    l_y(epsilon_y) sum_j importance_j l_j(epsilon_j),

the sum of these errors, each weighed by how much x_j tells of y. Where l falls as 1 / epsilon**2
the target gets half of epsilon, and the others share the rest in proportion to the cube roots of
their importances.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from ldp.core.exact import MAX_EPSILON, check_epsilon
from ldp.errors import InvalidInput
from ldp.planning.budget import Attribute, split

LEAST = 0.01
"""The smallest importance, as a part of the largest: no attribute is left without epsilon."""


def mutual_information(table: ArrayLike) -> float:
    """Return how much rows tell of columns, in nats, from a table of counts of plain records.

    The estimate by the counts less its bias to order 1/n, (rows - 1) (columns - 1) / (2 n)
    (Miller, "Note on the bias of information estimates", 1955), at least 0. Rows and columns
    without counts do not count. Raises `InvalidInput` unless the counts are at least 0 and some
    are more, in two dimensions.
    """
    counts = np.asarray(table, dtype=float)
    if counts.ndim != 2 or not (np.isfinite(counts) & (counts >= 0)).all() or not counts.any():
        raise InvalidInput(f"a table of counts has two dimensions, got shape {counts.shape}")
    counts = counts[counts.any(axis=1)][:, counts.any(axis=0)]
    n = float(counts.sum())
    shares = counts / n
    even = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    seen = shares > 0
    plain = float(np.sum(shares[seen] * np.log(shares[seen] / even[seen])))
    rows, columns = counts.shape
    bias: float = (rows - 1) * (columns - 1) / (2 * n)
    return max(0.0, plain - bias)


def joint_error(target: Attribute, others: Sequence[Attribute], epsilons: Sequence[float]) -> float:
    """Return l_y sum_j importance_j l_j, at the target's epsilon and then the others'.

    The `variance` of each attribute is that of one report against a plain answer's.
    """
    own, *rest = epsilons
    inner: float = sum(a.importance * a.variance(e) for a, e in zip(others, rest, strict=True))
    return target.variance(own) * inner


def for_target(epsilon: float, target: Attribute, others: Sequence[Attribute]) -> list[float]:
    """Return the split of epsilon of least `joint_error`: the target's part, then the others'.

    The importances of the others count; those below `LEAST` of the largest count as that. Raises
    `InvalidInput` where there are no others, and as `split`. Cost: some tens of `split`.
    """
    from scipy.optimize import minimize_scalar  # loaded for surveys with a target alone

    check_epsilon(epsilon)
    if not others:
        raise InvalidInput("a target is explained by other attributes: the survey has none")
    least = LEAST * max(other.importance for other in others)
    others = [replace(a, importance=max(a.importance, least)) for a in others]

    def shared(part: float) -> list[float]:
        own = min(target.cap, part * epsilon)
        return [own, *split(min(MAX_EPSILON, epsilon - own), others).epsilons]

    def error(part: float) -> float:
        return joint_error(target, others, shared(part))

    found = minimize_scalar(error, bounds=(0.01, 0.99), method="bounded", options={"xatol": 1e-3})
    return shared(float(found.x))
