"""Recovery of frequencies from poisoned reports, under an assumption about the attack."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldp.core.estimation import Estimate
from ldp.core.mechanism import FrequencyOracle
from ldp.errors import InvalidInput
from ldp.estimating.consistency import project


@dataclass(frozen=True, eq=False)
class RecoveredEstimate:
    """A recovered distribution, shape (k,), the assumed share, and the raw estimate behind it.

    The error of the recovered values depends on the attack and is not known. Forged reports
    that are spread as assumed are taken out exactly; after an attack on a few targets the result
    may be farther from the truth than Norm-Sub alone.
    """

    value: NDArray[np.float64]
    share: float
    raw: Estimate


def ldp_recover(mechanism: FrequencyOracle, raw: Estimate, share: float = 0.2) -> RecoveredEstimate:
    """Subtract `share` forged reports per genuine one, assumed spread over categories.

    Each forged report is taken to support one category, so that the forged ones' frequencies
    sum to (1 - q k) / (p - q); that sum is spread evenly over the categories whose raw
    frequency is positive. The rest, (1 + share) raw - share forged, is projected on the
    distributions (Norm-Sub). Under k-RR that sum is one; under unary encoding and hashing,
    whose forged reports can support more, it is negative and little is taken away beyond what
    Norm-Sub takes.
    Raises `InvalidInput` unless 0 <= share < infinity, and for an estimate of another length.
    Source: Sun et al., "LDPRecover: recovering frequencies from poisoning attacks against local
    differential privacy", ICDE 2024.
    """
    if not 0 <= share < np.inf:
        raise InvalidInput(f"the share of forged reports must be >= 0 and finite, got {share}")
    if raw.value.shape != (mechanism.k,):
        raise InvalidInput(f"{mechanism.k} frequencies are expected, got {raw.value.size}")
    p, q = mechanism.support
    positive = raw.value > 0
    forged = np.where(positive, float((1 - q * mechanism.k) / (p - q)), 0.0)
    forged /= max(1, int(positive.sum()))
    return RecoveredEstimate(project((1 + share) * raw.value - share * forged), share, raw)
