"""LDPRecover: against a loop that follows the paper, and on a simulated attack."""

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import KRR, FrequencyOracle, InvalidInput, Tally, UnaryEncoding
from ldp.core.estimation import Estimate
from ldp.estimating.consistency import project
from ldp.estimating.recovery import ldp_recover


def raw(values: list[float]) -> Estimate:
    array = np.array(values)
    return Estimate(array, np.full(array.size, 0.01), 1000, (0.0, 1.0))


def naive(mechanism: FrequencyOracle, values: list[float], share: float) -> list[float]:
    p, q = map(float, mechanism.support)
    positive = [value for value in values if value > 0]
    left = []
    for value in values:
        forged = (1 - q * len(values)) / (p - q) / len(positive) if value > 0 else 0.0
        left.append((1 + share) * value - share * forged)
    low, high = -10.0, 10.0  # of the constant that leaves a distribution
    for _ in range(100):
        middle = (low + high) / 2
        total = sum(max(0.0, value - middle) for value in left)
        low, high = (middle, high) if total > 1 else (low, middle)
    return [max(0.0, value - low) for value in left]


@pytest.mark.parametrize("mechanism", [KRR(5, 1.0), UnaryEncoding(5, 1.0)], ids=["krr", "oue"])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 1.0])
def test_the_recovered_frequencies_are_the_papers(mechanism: FrequencyOracle, share: float) -> None:
    values = [0.62, 0.3, -0.04, 0.08, 0.01]
    found = ldp_recover(mechanism, raw(values), share)
    assert found.value == pytest.approx(naive(mechanism, values, share))
    assert found.value.sum() == pytest.approx(1)
    assert (found.share, found.raw.value.tolist()) == (share, values)


def error(mechanism: KRR, attack: NDArray[np.float64]) -> list[float]:
    """The squared errors of the raw, projected and recovered frequencies of an attack whose
    codes have these shares: 5% of all reports. The honest ones have no noise."""
    truth = np.linspace(0, 1, mechanism.k)
    truth /= truth.sum()
    p, q = map(float, mechanism.support)
    n, forged = 95_000_000, 5_000_000
    honest = np.rint(n * (truth * (p - q) + q)).astype(np.int64)
    tallies = [Tally(int(honest.sum()), honest), Tally(forged, (forged * attack).astype(np.int64))]
    raw = mechanism.estimate(tallies[0] + tallies[1])
    recovered = ldp_recover(mechanism, raw, forged / n)
    return [
        float(np.square(v - truth).sum()) for v in (raw.value, project(raw.value), recovered.value)
    ]


def test_recovery_undoes_forged_reports_that_are_spread_as_assumed() -> None:
    mechanism = KRR(40, 1.0)
    raw, projected, recovered = error(mechanism, np.full(40, 1 / 40))
    assert recovered < 1e-9 < 1e-6 < min(raw, projected)


def test_recovery_does_not_undo_an_attack_on_a_few_targets() -> None:
    mechanism = KRR(40, 2.0)
    attack = np.zeros(40)
    attack[:4] = 1 / 4
    _, projected, recovered = error(mechanism, attack)
    assert projected < recovered  # as its docstring warns


def test_an_impossible_share_is_refused() -> None:
    for share in (-0.1, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="share of forged reports must be >= 0"):
            ldp_recover(KRR(5, 1.0), raw([0.2] * 5), share)
    with pytest.raises(InvalidInput, match="5 frequencies are expected, got 4"):
        ldp_recover(KRR(5, 1.0), raw([0.25] * 4))
