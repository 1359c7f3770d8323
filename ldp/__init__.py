"""The mathematics of local differential privacy: mechanisms, tallies, estimates. No I/O."""

from ldp.channel import Channel
from ldp.coins import Coins
from ldp.errors import InvalidInput
from ldp.estimation import Estimate, estimate
from ldp.longitudinal import Longitudinal
from ldp.mechanism import FrequencyOracle, Mechanism
from ldp.mechanisms import (
    HRR,
    KRR,
    LOLOHA,
    RAPPOR,
    CountMeanSketch,
    DBitFlip,
    GaussianMechanism,
    HadamardCountMeanSketch,
    HadamardResponse,
    HybridMechanism,
    KRRChain,
    LaplaceMechanism,
    LocalHashing,
    OneBitMean,
    OrderedExponential,
    PiecewiseMechanism,
    ProjectiveGeometry,
    RandomizedResponse,
    SquareWave,
    SubsetSelection,
    UnaryChain,
    UnaryEncoding,
    build,
)
from ldp.tally import Tally

__all__ = [
    "HRR",
    "KRR",
    "LOLOHA",
    "RAPPOR",
    "Channel",
    "Coins",
    "CountMeanSketch",
    "DBitFlip",
    "Estimate",
    "FrequencyOracle",
    "GaussianMechanism",
    "HadamardCountMeanSketch",
    "HadamardResponse",
    "HybridMechanism",
    "InvalidInput",
    "KRRChain",
    "LaplaceMechanism",
    "LocalHashing",
    "Longitudinal",
    "Mechanism",
    "OneBitMean",
    "OrderedExponential",
    "PiecewiseMechanism",
    "ProjectiveGeometry",
    "RandomizedResponse",
    "SquareWave",
    "SubsetSelection",
    "Tally",
    "UnaryChain",
    "UnaryEncoding",
    "build",
    "estimate",
]
