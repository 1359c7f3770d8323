"""The mathematics of local differential privacy: mechanisms, tallies, estimates. No I/O."""

from ldp.channel import Channel
from ldp.coins import Coins
from ldp.distribution import Distribution, reconstruct
from ldp.errors import InvalidInput
from ldp.estimation import Estimate, estimate
from ldp.mechanism import FrequencyOracle, Mechanism
from ldp.mechanisms import (
    KRR,
    GaussianMechanism,
    HybridMechanism,
    LaplaceMechanism,
    OneBitMean,
    OrderedExponential,
    PiecewiseMechanism,
    RandomizedResponse,
    SquareWave,
    UnaryEncoding,
    build,
)
from ldp.tally import Tally

__all__ = [
    "KRR",
    "Channel",
    "Coins",
    "Distribution",
    "Estimate",
    "FrequencyOracle",
    "GaussianMechanism",
    "HybridMechanism",
    "InvalidInput",
    "LaplaceMechanism",
    "Mechanism",
    "OneBitMean",
    "OrderedExponential",
    "PiecewiseMechanism",
    "RandomizedResponse",
    "SquareWave",
    "Tally",
    "UnaryEncoding",
    "build",
    "estimate",
    "reconstruct",
]
