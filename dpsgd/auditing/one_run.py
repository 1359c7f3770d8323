"""One-run audit of a private training: a lower bound on its epsilon, from canaries.

Canaries are records of the auditor's own. A fair coin for each says whether it is in the
training; the auditor guesses from the model which were, as many or few as it likes. A training
that keeps its guarantee makes many right guesses unlikely, however the guesses are made.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from scipy.stats import binom

from ldp import Coins, InvalidInput

_LARGEST = 100.0
"""The largest lower bound that is searched for; no audit can show more."""

_CUTS = 64
"""The most numbers of guesses that are compared."""


@dataclass(frozen=True)
class OneRunAudit:
    """The result of an audit: `right` of `guesses` about `canaries` were right.

    If the training were (claimed, delta)-DP for adding and removing a record, so many right
    guesses would have come with probability at most `p_value`. With probability `confidence`
    the training's epsilon at `delta` is at least `lower_bound`.
    """

    canaries: int
    guesses: int
    right: int
    delta: float
    claimed: float
    p_value: float
    lower_bound: float
    confidence: float

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted at `confidence`."""
        return self.lower_bound > self.claimed

    def __str__(self) -> str:
        verdict = "VIOLATES" if self.violated else "no violation of"
        return (
            f"{verdict} ({self.claimed:.4g}, {self.delta:g})-DP: {self.right} of {self.guesses} "
            f"guesses about {self.canaries} canaries were right (p-value {self.p_value:.3g}); "
            f"epsilon is at least {self.lower_bound:.4g} with confidence {self.confidence:g}"
        )


def choose_canaries(n: int, coins: Coins) -> NDArray[np.bool_]:
    """Toss a fair coin for each of n canaries, shape (n,): whether it is in the training.

    Raises `InvalidInput` unless n >= 1.
    """
    if n < 1:
        raise InvalidInput(f"an audit needs a canary, got {n}")
    return coins.bernoulli_many(1 << 63, n)


def audit_one_run(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    claimed: float,
    delta: float,
    guess_in: int,
    guess_out: int,
    confidence: float = 0.95,
) -> OneRunAudit:
    """Guess from scores which canaries were in, and bound the training's epsilon from below.

    scores: (m,), larger where the model remembers a canary, made without a look at `included`;
    included: (m,), the coins of `choose_canaries`. The `guess_in` canaries of the largest
    scores are guessed to be in and the `guess_out` of the smallest to be out; of the others
    nothing is said. Fix both numbers before looking: bounds for several need a higher
    confidence each. Ties are broken by position.
    Guarantee: a training that is (epsilon, delta)-DP for adding and removing a record is given
    a larger lower bound with probability at most 1 - confidence. It does not apply to
    DP for replacing a record. Raises `InvalidInput` for scores and coins that are
    not finite, of the same length or of fair form, guesses that are none or overlap, and a
    claim, delta or confidence out of range.
    Source: Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS
    2023 (arXiv 2305.08846), algorithm 1 and theorem 5.2.
    """
    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(included)
    if values.ndim != 1 or truth.shape != values.shape or truth.dtype != np.bool_:
        raise InvalidInput(
            "scores are (m,) numbers and `included` (m,) booleans, got "
            f"{values.shape} and {truth.dtype} of shape {truth.shape}"
        )
    if not np.isfinite(values).all():
        raise InvalidInput("scores must be finite: a model that diverged is not audited")
    if min(guess_in, guess_out) < 0 or not 1 <= guess_in + guess_out <= values.size:
        raise InvalidInput(
            f"{values.size} canaries allow 1..{values.size} guesses, got {guess_in} + {guess_out}"
        )
    order = np.argsort(values, kind="stable")
    right = int((~truth[order[:guess_out]]).sum() + truth[order[values.size - guess_in :]].sum())
    return _audit(values.size, guess_in + guess_out, right, claimed, delta, confidence)


def audit_by_likelihood(
    log_ratios: ArrayLike, coins: ArrayLike, *, claimed: float, confidence: float = 0.95
) -> OneRunAudit:
    """Guess each canary's coin from its report's likelihoods, and bound epsilon from below.

    log_ratios: (m,), of what is known of canary i's report, ln Pr[report | coin 1] less
    ln Pr[report | coin 0], each at most `claimed`; coins: (m,), true for 1. Guessed are the r
    canaries of the largest absolute log-ratios, with the r that promises the largest bound if the
    likelihoods are right. Of zeros nothing is guessed.
    Guarantee: where the reports are claimed-DP in each coin, the lower bound exceeds `claimed`
    with probability at most 1 - confidence, whether or not the likelihoods are right: given all
    reports, the coins are as hard to guess as ever, so that r may depend on them at delta 0.
    Raises `InvalidInput` for arrays of other shapes, log-ratios that are not finite, and a claim or
    confidence out of range. Source: Steinke, Nasr and Jagielski, proposition 5.1.
    """
    values, truth = np.asarray(log_ratios, dtype=np.float64), np.asarray(coins)
    if values.ndim != 1 or truth.shape != values.shape or truth.dtype != np.bool_:
        raise InvalidInput(
            "log-ratios are (m,) numbers and coins (m,) booleans, got "
            f"{values.shape} and {truth.dtype} of shape {truth.shape}"
        )
    if not values.size or not np.isfinite(values).all():
        raise InvalidInput("an audit needs a canary, and finite log-ratios")
    sizes = np.abs(values)
    order = np.argsort(-sizes, kind="stable")
    expected = np.cumsum(expit(sizes[order]))
    # A cut goes between two sizes, never through equal ones.
    cuts = np.flatnonzero(np.diff(np.append(sizes[order], 0.0)) < 0) + 1
    cuts = np.unique(cuts[np.linspace(0, cuts.size - 1, _CUTS).astype(int)]) if cuts.size else cuts
    promises = [
        one_run_lower_bound(0.0, values.size, int(r), int(expected[r - 1]), confidence)
        for r in cuts
    ]
    guessed = order[: cuts[int(np.argmax(promises))]] if promises else order[:0]
    right = int(((values > 0) == truth)[guessed].sum())
    if guessed.size:
        return _audit(values.size, guessed.size, right, claimed, 0.0, confidence)
    return OneRunAudit(values.size, 0, 0, 0.0, claimed, 1.0, 0.0, confidence)


def _audit(
    canaries: int, guesses: int, right: int, claimed: float, delta: float, confidence: float
) -> OneRunAudit:
    return OneRunAudit(
        canaries=canaries,
        guesses=guesses,
        right=right,
        delta=delta,
        claimed=claimed,
        p_value=one_run_p_value(claimed, delta, canaries, guesses, right),
        lower_bound=one_run_lower_bound(delta, canaries, guesses, right, confidence),
        confidence=confidence,
    )


def one_run_p_value(epsilon: float, delta: float, canaries: int, guesses: int, right: int) -> float:
    """Return a bound on the chance of so many right guesses under (epsilon, delta)-DP.

    beta + 2 m delta max_i (Pr[B >= right - i] - beta) / i, for i = 1..m, with B binomial of
    `guesses` trials at e**epsilon / (e**epsilon + 1) and beta = Pr[B >= right]. Raises
    `InvalidInput` unless 0 <= right <= guesses <= canaries, epsilon >= 0 and 0 <= delta <= 1.
    Source: Steinke, Nasr and Jagielski, theorem 5.2.
    """
    if not (0 <= right <= guesses <= canaries and guesses):
        raise InvalidInput(
            "expected 0 <= right <= guesses <= canaries and a guess, got "
            f"{right}, {guesses}, {canaries}"
        )
    if not (epsilon >= 0 and 0 <= delta <= 1):
        raise InvalidInput(f"expected epsilon >= 0 and 0 <= delta <= 1, got {epsilon}, {delta}")
    chance = 1 / (1 + np.exp(-epsilon))
    beta = float(binom.sf(right - 1, guesses, chance))
    if not (delta and right):
        return beta
    # Beyond i = right the tail is one already, and only the divisor grows.
    i = np.arange(1, right + 1)
    alpha = float(((binom.sf(right - i - 1, guesses, chance) - beta) / i).max())
    return min(1.0, beta + 2 * canaries * delta * alpha)


def one_run_lower_bound(
    delta: float, canaries: int, guesses: int, right: int, confidence: float = 0.95
) -> float:
    """Return a lower bound on the training's epsilon that holds with probability `confidence`.

    The largest whose p-value is at most 1 - confidence, within 1e-9 below; 0 where there is
    none. Raises `InvalidInput` as `one_run_p_value`, and unless 0 < confidence < 1.
    """
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence must lie strictly between 0 and 1, got {confidence}")
    low, high = 0.0, _LARGEST
    if one_run_p_value(low, delta, canaries, guesses, right) > 1 - confidence:
        return 0.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if one_run_p_value(middle, delta, canaries, guesses, right) <= 1 - confidence:
            low = middle
        else:
            high = middle
    return low
