"""Choosing a frequency oracle by its predicted variance, under limits on its cost."""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.exact import check_epsilon
from ldp.core.mechanism import Categorical
from ldp.errors import InvalidInput
from ldp.mechanisms import FREQUENCIES

_WORTH = 1.01
"""The largest ratio to the least variance that is accepted for a cheaper report."""


@dataclass(frozen=True)
class Candidate:
    """One mechanism of a comparison; `label` is its name in a survey.

    `variance` is the total over the categories for one report, `bytes` the size of a report and
    `decode` the number of counts it adds to when tallied. `refused` says why it cannot be had; then
    `mechanism` is None where it could not even be built.
    """

    label: str
    mechanism: Categorical | None
    variance: float = math.inf
    bytes: int = 0
    decode: int = 0
    refused: str = ""


@dataclass(frozen=True)
class Choice:
    """The mechanism chosen, and the candidates; `str()` tells the reasons in words.

    `candidates` are in order of predicted variance; `limit` is the minimax constant.
    """

    label: str
    mechanism: Categorical
    variance: float
    limit: float
    candidates: tuple[Candidate, ...]

    def __str__(self) -> str:
        k, epsilon = self.mechanism.k, self.mechanism.epsilon
        lines = [
            f"{self.label} for {k} categories at epsilon {epsilon:g}: the cheapest report among "
            f"those within {_WORTH - 1:.0%} of the least predicted variance.",
            f"Total variance of one report {self.variance:.6g}; no mechanism can do better than "
            f"{self.limit:.6g} against the worst population.",
        ]
        for candidate in self.candidates:
            costs = f"variance {candidate.variance:.6g}, bytes {candidate.bytes}"
            costs += f", decode {candidate.decode}"
            if candidate.mechanism is None:
                costs = candidate.refused
            elif candidate.refused:
                costs += f": refused, {candidate.refused}"
            lines.append(f"  {candidate.label}: {costs}")
        return "\n".join(lines)


def choose(
    k: int,
    epsilon: float,
    *,
    max_bytes: int | None = None,
    max_decode: int | None = None,
    frequencies: ArrayLike | None = None,
) -> Choice:
    """Pick a frequency oracle for k categories by its predicted total variance.

    Compared is the sum over the categories of the variance of the unbiased estimate, for a
    population with the planned `frequencies`, shape (k,); uniform where none are given. It
    leaves out mechanisms of more than `max_bytes` per report, or `max_decode` counts to add to
    when one report is tallied (1 for k-RR and the transforms, k for unary encoding and
    hashing). Of the mechanisms within 1% of the least variance it takes the fewest bytes,
    then the least decoding, then the least variance.
    Raises `InvalidInput` for frequencies that are no distribution of k categories, and where
    the limits leave nothing.
    The sketches (CMS, HCMS) are not compared: their collisions leave an error that does not
    fall with n, so the variance of one report says too little.
    Source: Wang, Blocki, Li and Jha, USENIX Security 2017, section 5, compare in the same way
    for rare categories.
    """
    limit = minimax_constant(k, epsilon)
    planned = _planned(k, frequencies)
    candidates = []
    for label, builder in FREQUENCIES.items():
        candidates.append(_compared(label, builder, epsilon, planned, max_bytes, max_decode))
    candidates.sort(key=lambda candidate: candidate.variance)
    allowed = [candidate for candidate in candidates if not candidate.refused]
    if not allowed:
        raise InvalidInput(
            f"no mechanism for k = {k} stays within max_bytes = {max_bytes} and "
            f"max_decode = {max_decode}"
        )
    good = [c for c in allowed if c.variance <= _WORTH * allowed[0].variance]
    best = min(good, key=lambda c: (c.bytes, c.decode, c.variance))
    assert best.mechanism is not None
    return Choice(best.label, best.mechanism, best.variance, limit, tuple(candidates))


def minimax_constant(k: int, epsilon: float) -> float:
    """Return L(k, epsilon), the least possible n times the total variance at its worst.

    No epsilon-LDP mechanism and estimator of the k frequencies from n reports has a worst-case
    expected squared error, summed over the categories, below L / n (1 + o(1)); subset selection
    attains it, with the optimal size w: L = (k-1)**2 (w e + k - w)**2 / (k w (k-w) (e-1)**2).
    Raises `InvalidInput` unless k >= 2 and 0 < epsilon <= 32.
    Source: Ye and Barg, "Optimal schemes for discrete distribution estimation under locally
    differential privacy", IEEE Trans. Information Theory 64(8), 2018.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 2:
        raise InvalidInput(f"k must be an integer of at least 2, got {k!r}")
    e = math.exp(check_epsilon(epsilon))
    # The constant falls with w until w (w + 1) e**2 >= (k - w) (k - w - 1).
    w = 1 + bisect_left(
        range(1, k), True, key=lambda w: w * (w + 1) * e**2 >= (k - w) * (k - w - 1)
    )
    return (k - 1) ** 2 * (w * e + k - w) ** 2 / (k * w * (k - w) * (e - 1) ** 2)


def _planned(k: int, frequencies: ArrayLike | None) -> NDArray[np.float64]:
    if frequencies is None:
        return np.full(k, 1 / k)
    planned = np.asarray(frequencies, dtype=float)
    if planned.shape != (k,) or not (planned >= 0).all() or abs(planned.sum() - 1) > 1e-6:
        raise InvalidInput(f"frequencies must be {k} shares >= 0 that sum to one")
    return planned


def _compared(
    label: str,
    builder: Callable[[int, float], Categorical],
    epsilon: float,
    planned: NDArray[np.float64],
    max_bytes: int | None,
    max_decode: int | None,
) -> Candidate:
    try:
        mechanism = builder(planned.size, epsilon)
    except InvalidInput as error:
        return Candidate(label, None, refused=str(error))
    size, decode = mechanism.code_bytes, mechanism.decode_cost
    refused = ""
    if max_bytes is not None and size > max_bytes:
        refused = f"more than {max_bytes} bytes"
    elif max_decode is not None and decode > max_decode:
        refused = f"more than {max_decode} counts to add to"
    variance = float(np.sum(mechanism.variance(planned, 1)))
    return Candidate(label, mechanism, variance, size, decode, refused)
