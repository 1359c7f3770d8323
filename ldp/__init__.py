"""The mathematics of local differential privacy: mechanisms, tallies, estimates. No I/O."""

from ldp.channel import Channel
from ldp.choose import Choice, choose, minimax_constant
from ldp.coins import Coins
from ldp.errors import InvalidInput
from ldp.estimation import Estimate, estimate
from ldp.mechanism import FrequencyOracle, Mechanism
from ldp.mechanisms import (
    HRR,
    KRR,
    ChannelTable,
    CountMeanSketch,
    HadamardCountMeanSketch,
    HadamardResponse,
    LocalHashing,
    OneBitMean,
    ProjectiveGeometry,
    RandomizedResponse,
    SubsetSelection,
    SummingHistogram,
    UnaryEncoding,
    build,
    thresholding_histogram,
)
from ldp.tally import Tally

__all__ = [
    "HRR",
    "KRR",
    "Channel",
    "ChannelTable",
    "Choice",
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
    "SummingHistogram",
    "Tally",
    "UnaryEncoding",
    "build",
    "choose",
    "estimate",
    "minimax_constant",
    "thresholding_histogram",
]
