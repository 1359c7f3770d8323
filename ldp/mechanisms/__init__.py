"""The mechanisms, by the name a plan calls them."""

from collections.abc import Mapping, Sequence

from ldp.errors import InvalidInput
from ldp.mechanism import Mechanism
from ldp.mechanisms.count_mean_sketch import CountMeanSketch, HadamardCountMeanSketch
from ldp.mechanisms.hadamard import HRR, HadamardResponse
from ldp.mechanisms.histogram import SummingHistogram, thresholding_histogram
from ldp.mechanisms.krr import KRR, RandomizedResponse
from ldp.mechanisms.local_hashing import LocalHashing
from ldp.mechanisms.onebit import OneBitMean
from ldp.mechanisms.projective import ProjectiveGeometry
from ldp.mechanisms.subset_selection import SubsetSelection
from ldp.mechanisms.table import ChannelTable
from ldp.mechanisms.unary import UnaryEncoding

_BY_NAME: Mapping[str, type[Mechanism]] = {
    mechanism.name: mechanism
    for mechanism in (
        KRR,
        UnaryEncoding,
        OneBitMean,
        SubsetSelection,
        LocalHashing,
        HRR,
        HadamardResponse,
        ProjectiveGeometry,
        CountMeanSketch,
        HadamardCountMeanSketch,
        SummingHistogram,
        ChannelTable,
    )
}


def build(name: str, epsilon: float, integers: Mapping[str, Sequence[int]]) -> Mechanism:
    """Build the mechanism that a plan names; raise `InvalidInput` for one we do not know."""
    if name not in _BY_NAME:
        raise InvalidInput(f"unknown mechanism {name!r}; this version knows {sorted(_BY_NAME)}")
    return _BY_NAME[name].from_integers(epsilon, integers)


__all__ = [
    "HRR",
    "KRR",
    "ChannelTable",
    "CountMeanSketch",
    "HadamardCountMeanSketch",
    "HadamardResponse",
    "LocalHashing",
    "OneBitMean",
    "ProjectiveGeometry",
    "RandomizedResponse",
    "SubsetSelection",
    "SummingHistogram",
    "UnaryEncoding",
    "build",
    "thresholding_histogram",
]
