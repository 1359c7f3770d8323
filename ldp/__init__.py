"""The mathematics of local differential privacy: mechanisms, tallies, estimates. No I/O."""

from ldp.channel import Channel
from ldp.coins import Coins
from ldp.errors import InvalidInput
from ldp.estimation import Estimate, estimate
from ldp.mechanism import FrequencyOracle, Mechanism
from ldp.mechanisms import (
    HRR,
    KRR,
    HadamardResponse,
    LocalHashing,
    OneBitMean,
    RandomizedResponse,
    SubsetSelection,
    UnaryEncoding,
    build,
)
from ldp.tally import Tally

__all__ = [
    "HRR",
    "KRR",
    "Channel",
    "Coins",
    "Estimate",
    "FrequencyOracle",
    "HadamardResponse",
    "InvalidInput",
    "LocalHashing",
    "Mechanism",
    "OneBitMean",
    "RandomizedResponse",
    "SubsetSelection",
    "Tally",
    "UnaryEncoding",
    "build",
    "estimate",
]
