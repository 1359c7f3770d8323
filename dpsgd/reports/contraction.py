"""Guarantees for the truth behind a report y ~ Q(x), after private training on the reports.

Theorem. Let M be (epsilon_c, delta)-DP for replacing one record's report, and let H(g) be the
largest over x, x' of sum_y max(0, Q(y|x) - g Q(y|x')). For every g >= 1 with
g - 1 >= (e**epsilon_c - 1) H(g), M after Q is (ln g, H(g) delta)-DP for replacing x by x'.

Proof. Fix the other reports (they are independent of this one) and an event, and write f(y) for
its probability where the report is y, and m for the least f(y). Then h = f - m lies between 0 and
(e**epsilon_c - 1) m + delta, so that
E_Q(x) f - g E_Q(x') f = (1 - g) m + sum_y h(y) (Q(y|x) - g Q(y|x'))
<= (1 - g) m + ((e**epsilon_c - 1) m + delta) H(g) <= delta H(g).

With g = e**epsilon_c, and with g = e**epsilon of the reports (H = 0), these are the two
guarantees by themselves. As H(g) <= H(1), the total variation eta of Q, the bound is at most
ln(1 + eta (e**epsilon_c - 1)) (Balle, Barthe and Gaboardi, NeurIPS 2018, theorem 2); for delta = 0
it is attained, by answering with e**epsilon_c-odds whether y lies where Q(y|x) > g Q(y|x').
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from dpsgd.accounting.events import check_delta
from ldp import FrequencyOracle, InvalidInput, Mechanism
from ldp.core.mechanism import Categorical
from ldp.mechanisms.numbers.mean import MeanMechanism

_MAX_CELLS = 1 << 22
"""Pairs of inputs times codes beyond which a channel is bounded rather than enumerated."""

_LARGEST = 700.0
"""The largest epsilon; beyond it e**epsilon does not fit a double."""

_STEPS = 30

Spent = Callable[[float], float]
"""The epsilon that a training spent, at a given delta: an accountant's `get_epsilon`."""


def hockey_stick(record: Sequence[Mechanism], g: float) -> float:
    """Return H(g) of one record's reports, or an upper bound: at most 1, 0 from e**epsilon on.

    max over x, x' of sum_y max(0, Q(y|x) - g Q(y|x')), exact (but for rounding) for one
    mechanism whose channel is known in closed form or small. Otherwise the record's epsilon
    alone bounds it, by (e**epsilon - g) / (e**epsilon + 1), and so do the total variations.
    Raises `InvalidInput` unless g >= 1 and there is a mechanism, and as `local_epsilon` does.
    Source: for the bound by epsilon, Kairouz, Oh and Viswanath, JMLR 17, 2016.
    """
    if not record or not g >= 1:
        raise InvalidInput(f"g must be >= 1 and a record has reports, got {g}, {len(record)}")
    ratio = math.exp(min(local_epsilon(record), _LARGEST))
    alone = 1 - math.prod(1 - _of_one(m, g if len(record) == 1 else 1.0) for m in record)
    return max(0.0, min(alone, (ratio - g) / (ratio + 1)))


def local_epsilon(record: Sequence[Mechanism]) -> float:
    """Return the epsilon of one record's reports for every pair of answers: inf where a policy lets
    a report tell two apart for certain.

    Raises `InvalidInput` for a guarantee that needs a delta (the Gaussian), or is of many reports.
    """
    for mechanism in record:
        if mechanism.guarantee not in ("pure", "policy"):
            raise InvalidInput(
                f"{mechanism.name} does not keep one epsilon in all it reports, so nothing is "
                "stated here"
            )
    covered = [m.protected_pairs() for m in record]
    if not all(pairs is None or pairs.all() for pairs in covered):
        return math.inf
    return sum(m.realised_epsilon for m in record)


def contracted_epsilon(record: Sequence[Mechanism], spent: Spent, delta: float) -> float:
    """Return the theorem's epsilon, at `delta`, for reports that went into a private training.

    `record` lists the mechanisms of all that one record reported and the training saw; other
    data of the record must be public. `spent` is for replacing one record's reports. The result is
    ln g for the least g that the theorem has with the training's epsilon at delta / H(g), rounded
    up. Raises `InvalidInput` unless 0 < delta < 1. Cost: 31 queries of `spent`.
    """
    check_delta(delta)
    hockey_stick(record, 1.0)  # checks the record
    low, high = 0.0, min(spent(delta), local_epsilon(record))
    if high > _LARGEST:
        return high
    for _ in range(_STEPS):  # the condition holds at `high` all the time
        middle = (low + high) / 2
        share = hockey_stick(record, math.exp(middle))
        central = spent(min(delta / share, (1 + delta) / 2)) if share else 0.0
        if central < _LARGEST and math.expm1(middle) >= math.expm1(central) * share:
            high = middle
        else:
            low = middle
    return high * (1 + 1e-12)


def replacement_epsilon(spent: Spent, delta: float) -> float:
    """Return an epsilon for replacing a record, from an accountant that adds and removes one.

    Replacing is removing, by (a, delta_a)-DP, and adding, by (b, delta_b)-DP: together
    (a + b, delta_a + e**a delta_b)-DP. Each term gets half of `delta`. Raises `InvalidInput` unless
    0 < delta < 1. Source: group privacy, Dwork and Roth 2014, theorem 2.2 and its proof.
    """
    check_delta(delta)
    first = spent(delta / 2)
    smaller = delta / 2 * math.exp(-first) * (1 - 1e-12)
    return first + spent(smaller) if smaller > 0 else math.inf


def _of_one(mechanism: Mechanism, g: float) -> float:
    """Return H(g) of one mechanism, or 1 where it is not known."""
    if mechanism.two_valued and isinstance(mechanism, FrequencyOracle):
        # Of the codes that support x and not x' the chance is t under x and t / r under x'; all
        # other codes are as likely or less. As p - q = t - t / r, t = (p - q) r / (r - 1).
        p, q = map(float, mechanism.support)
        ratio = math.exp(mechanism.realised_epsilon)
        return max(0.0, (p - q) * (ratio - g) / (ratio - 1))
    if isinstance(mechanism, MeanMechanism):
        inputs = mechanism.steps + 1
    elif isinstance(mechanism, Categorical):
        inputs = mechanism.parameters
    else:
        return 1.0
    matrix = mechanism.matrix() if inputs**2 * mechanism.tally_size <= _MAX_CELLS else None
    if matrix is None:
        return 1.0
    return max(float(np.maximum(row - g * matrix, 0).sum(axis=1).max()) for row in matrix)
