"""Rényi divergences of an answer at the votes that there were. They are private themselves.

What each returns depends on the votes, so that it may not be published: the data of one teacher
may be why an answer was cheap.

A noisy answer of variance v, in units in which one teacher moves it by sqrt(2), has a divergence of
at most order / v from that of neighbours, in both directions. Where one outcome is so likely that
all others together have a chance of at most q, it is less (theorem 6): with mu1 >= order, mu2 > 1,
e_i = mu_i / v and c = 1 - 1 / mu2,

    exp((order - 1) D) <= (1 - q) A**(order - 1) + q B**(order - 1),
    A = (1 - q) / (1 - (q exp(e2))**c),  B = exp(e1) / q**(1 / (mu1 - 1)).

The first term is the likely outcome: a neighbour gives the others (q exp(e2))**c at most. The
second is Jensen's inequality for the others, whose moment of order mu1 is exp((mu1 - 1) e1) at
most. The sum must grow with q, which is only a bound of the chance: its derivative is not negative
where B >= A and (1 - q) A' / A >= 1 / (mu1 - 1), and that is so where q <=
exp((mu2 - 1) e2) / (mu1 / (mu1 - 1) mu2 / (mu2 - 1))**mu2. Both are checked: where they fail,
order / v is returned. The theorem bounds the divergence of the output at these votes from a
neighbour's, not the other direction.
Source: Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson, "Scalable private learning
with PATE", ICLR 2018, theorem 6; mu2 = sqrt(-v ln q) and mu1 = mu2 + 1 by proposition 10.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

from dpsgd.accounting.events import ROUNDED_UP
from dpsgd.pate.votes import Integers

Floats = NDArray[np.float64]


def of_labels(votes: Integers, sigma: float, excesses: Floats) -> Floats:
    """Bound the divergences of the noisiest label's release, shape (questions, orders).

    `votes`, shape (questions, classes), get noise of standard deviation sigma each; orders are
    1 + `excesses`. A teacher that changes its mind moves two counts by one: sqrt(2).
    q is the sum of the chances that another label overtakes the first, Phi(-gap / (sqrt(2) sigma)),
    or if that is less 1 - 1 / classes (proposition 7).
    """
    ranked = np.sort(votes, axis=1)[:, ::-1]
    gaps = (ranked[:, :1] - ranked[:, 1:]) / (math.sqrt(2) * sigma)
    log_wrong = np.asarray(logsumexp(log_ndtr(-gaps), axis=1))
    most = math.log1p(-1 / votes.shape[1])
    return _bounds(np.minimum(log_wrong, most), sigma * sigma, excesses)


def of_thresholds(votes: Integers, threshold: float, sigma: float, excesses: Floats) -> Floats:
    """Bound the divergences of whether the largest count reaches a threshold, with noise.

    Shapes as for `of_labels`. A teacher moves the largest count by one at most, not by sqrt(2): in
    those units the variance is 2 sigma**2. q is the chance of the rarer outcome.
    """
    distance = np.abs(votes.max(axis=1) - threshold) / sigma
    return _bounds(np.asarray(log_ndtr(-distance)), 2 * sigma * sigma, excesses)


def _bounds(log_q: Floats, variance: float, excesses: Floats) -> Floats:
    """Return the lesser of theorem 6's bound and order / variance, shape (questions, orders)."""
    # Rounded up by more than doubles and the grid of the noise can be off.
    log_q = np.minimum(log_q * (1 - 1e-12) + 1e-9, -1e-9)[:, np.newaxis]
    simple = np.broadcast_to((1 + excesses) / variance, (len(log_q), len(excesses)))
    second = np.sqrt(-variance * log_q)
    usable = second > 1
    second = np.where(usable, second, 2.0)
    first = second + 1
    e1, e2 = first / variance, second / variance
    rises = second * (np.log1p(1 / (first - 1)) + np.log1p(1 / (second - 1)))
    usable &= (log_q <= (second - 1) * e2 - rises) & (-log_q > e2)
    log_others = np.where(usable, (log_q + e2) * (1 - 1 / second), -1.0)
    log_likely = _log1mexp(log_q)
    log_a, log_b = log_likely - _log1mexp(log_others), e1 - log_q / (first - 1)
    usable = usable & (log_b >= log_a) & (first >= 1 + excesses)
    moment = np.logaddexp(log_likely + excesses * log_a, log_q + excesses * log_b)
    bound = np.maximum(moment, 0.0) / excesses * ROUNDED_UP
    return np.where(usable, np.minimum(bound, simple), simple)


def _log1mexp(x: Floats) -> Floats:
    """Return ln(1 - e**x), x < 0, with its digits."""
    return np.where(x > -0.5, np.log(-np.expm1(x)), np.log1p(-np.exp(x)))
