"""The mathematics of local differential privacy: mechanisms, tallies, estimates. No I/O."""

from ldp.channel import Channel
from ldp.coins import Coins
from ldp.errors import InvalidInput
from ldp.estimation import Estimate, estimate
from ldp.longitudinal import Longitudinal
from ldp.mechanism import FrequencyOracle, Mechanism
from ldp.mechanisms import (
    KRR,
    LOLOHA,
    RAPPOR,
    DBitFlip,
    KRRChain,
    OneBitMean,
    RandomizedResponse,
    UnaryChain,
    UnaryEncoding,
    build,
)
from ldp.tally import Tally

__all__ = [
    "KRR",
    "LOLOHA",
    "RAPPOR",
    "Channel",
    "Coins",
    "DBitFlip",
    "Estimate",
    "FrequencyOracle",
    "InvalidInput",
    "KRRChain",
    "Longitudinal",
    "Mechanism",
    "OneBitMean",
    "RandomizedResponse",
    "Tally",
    "UnaryChain",
    "UnaryEncoding",
    "build",
    "estimate",
]
