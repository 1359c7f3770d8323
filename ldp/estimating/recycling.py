"""Recycling: turn reports of a looser level into reports of a stricter one.

For a recipient who may see only reports at or below some epsilon. It never helps an analyst who
may see the originals: the second perturbation takes information away, and maximum likelihood
over the original reports has the smaller error (with levels 0.5 to 4 of k-RR, k = 8, by 40%).
"""

from fractions import Fraction

from ldp.core.exact import ONE, ceil_threshold, certainly_at_most, check_epsilon, floor_threshold
from ldp.errors import InvalidInput
from ldp.mechanisms.frequency.krr import KRR
from ldp.mechanisms.frequency.unary import UnaryEncoding
from ldp.mechanisms.lasting.chains import KRRChain, UnaryChain, chained, odds_ratio


def recycle(mechanism: KRR | UnaryEncoding, epsilon: float) -> KRRChain | UnaryChain:
    """Return the chain whose second round turns the mechanism's reports into epsilon-LDP ones.

    `chain.report_many(codes, coins)` perturbs the codes again; the chain then tallies and
    estimates them. The result has the channel of the same mechanism at `epsilon` (k-RR,
    SUE if the encoding was symmetric, OUE otherwise) up to 2**-60, and keeps it exactly.
    Guarantee: one report so made is epsilon-LDP. A recipient who also has the original, or
    several versions made of it, learns at most as much as from the original: its looser epsilon.
    So make the stricter version once per report, before it leaves.
    Raises `InvalidInput` unless epsilon is below the mechanism's, and for an encoding that
    cannot be turned into that of the stricter level.
    Source: k-RR keeps with r = ((k - 1) p_l - (1 - p_h)) / (k p_h - 1); a bit that is 1 stays
    so with a, one that is 0 becomes 1 with b, a - b = (p_l - q_l) / (p_h - q_h) and
    b = q_l - q_h (a - b): the solution R of Q_h R = Q_l.
    """
    if check_epsilon(epsilon) >= mechanism.realised_epsilon:
        raise InvalidInput(
            f"reports of epsilon {mechanism.realised_epsilon:g} are recycled to a smaller one, "
            f"got {epsilon:g}"
        )
    if isinstance(mechanism, KRR):
        wanted = 1 - Fraction(KRR(mechanism.k, epsilon).resample, ONE)
        kept = wanted / (1 - Fraction(mechanism.resample, ONE))
        return KRRChain(mechanism.k, epsilon, mechanism.resample, ceil_threshold(1 - kept))
    return _recycled_bits(mechanism, epsilon)


def _recycled_bits(encoding: UnaryEncoding, epsilon: float) -> UnaryChain:
    first = encoding.own, encoding.other
    symmetric = sum(first) == ONE
    make = UnaryEncoding.symmetric if symmetric else UnaryEncoding
    (p, q), (p_low, q_low) = encoding.support, make(encoding.k, epsilon).support
    contrast = (p_low - q_low) / (p - q)
    other = q_low - q * contrast
    if other <= 0 or other + contrast >= 1:
        raise InvalidInput(f"{encoding!r} cannot be turned into an encoding of epsilon {epsilon:g}")
    a, b = floor_threshold(other + contrast), ceil_threshold(other)
    step = 1
    while not certainly_at_most(odds_ratio(*chained(first, (a, b))), epsilon):
        a, b, step = a - step, b + step, 2 * step  # rounding overshot: nearer to a fair coin
    return UnaryChain(encoding.k, epsilon, first, (a, b))
