"""The mathematics of local differential privacy: mechanisms, tallies, estimates. No I/O."""

from ldp.channel import Channel
from ldp.coins import Coins
from ldp.errors import InvalidInput
from ldp.estimation import Estimate, estimate
from ldp.mechanism import FrequencyOracle, Mechanism
from ldp.mechanisms import (
    HRR,
    KRR,
    CountMeanSketch,
    HadamardCountMeanSketch,
    HadamardResponse,
    LocalHashing,
    OneBitMean,
    ProjectiveGeometry,
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
    "CountMeanSketch",
    "Estimate",
    "FrequencyOracle",
    "HadamardCountMeanSketch",
    "HadamardResponse",
    "InvalidInput",
    "LocalHashing",
    "Mechanism",
    "OneBitMean",
    "ProjectiveGeometry",
    "RandomizedResponse",
    "SubsetSelection",
    "Tally",
    "UnaryEncoding",
    "build",
    "estimate",
]
