"""The Laplace and the exponential mechanism, which are pure: delta is 0."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsgd.accounting.events import check_epsilon
from ldp import InvalidInput


def laplace_scale(epsilon: float, sensitivity: float = 1.0) -> float:
    """Return the scale of Laplace noise that keeps epsilon-DP for an L1 sensitivity.

    Raises `InvalidInput` unless both are finite and > 0.
    Source: Dwork, McSherry, Nissim and Smith, TCC 2006, proposition 1.
    """
    _check_positive("epsilon", epsilon)
    _check_positive("sensitivity", sensitivity)
    return math.nextafter(sensitivity / epsilon, math.inf)


def laplace_delta(scale: float, epsilon: float, sensitivity: float = 1.0) -> float:
    """Return the exact delta of Laplace noise at an epsilon: 0 from sensitivity / scale on.

    1 - e**((epsilon - sensitivity / scale) / 2) below. Raises `InvalidInput` unless scale and
    sensitivity are finite and > 0 and epsilon finite and >= 0.
    Source: Balle, Barthe and Gaboardi, NeurIPS 2018, theorem 3.
    """
    _check_positive("scale", scale)
    _check_positive("sensitivity", sensitivity)
    check_epsilon(epsilon)
    return max(0.0, -math.expm1((epsilon - sensitivity / scale) / 2))


def exponential_probabilities(
    scores: Sequence[float], epsilon: float, sensitivity: float = 1.0
) -> NDArray[np.float64]:
    """Return the probability that the exponential mechanism selects each candidate.

    In proportion to e**(epsilon score / (2 sensitivity)), where a neighbour moves no score by
    more than `sensitivity`: epsilon-DP. Raises `InvalidInput` unless epsilon and sensitivity are
    finite and > 0 and there are scores, all finite.
    Source: McSherry and Talwar, FOCS 2007, theorem 6.
    """
    _check_positive("epsilon", epsilon)
    _check_positive("sensitivity", sensitivity)
    values = np.asarray(scores, dtype=float)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise InvalidInput(f"scores must be one or more finite numbers, got {scores!r}")
    weights = np.exp((values - values.max()) * (epsilon / sensitivity / 2))
    return np.asarray(weights / weights.sum())


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{name} must be finite and > 0, got {value}")
