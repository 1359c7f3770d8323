"""The mechanisms, and the one that a plan names.

Each lives in the module of its name and is imported when it is first asked for: an app that
embeds the client pays for what its plan uses.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ldp.errors import InvalidInput
from ldp.mechanism import Mechanism

if TYPE_CHECKING:
    from ldp.mechanisms.chains import KRRChain, UnaryChain
    from ldp.mechanisms.count_mean_sketch import CountMeanSketch, HadamardCountMeanSketch
    from ldp.mechanisms.dbitflip import DBitFlip
    from ldp.mechanisms.gaussian import GaussianMechanism
    from ldp.mechanisms.hadamard import HRR, HadamardResponse
    from ldp.mechanisms.histogram import SummingHistogram, thresholding_histogram
    from ldp.mechanisms.hybrid import HybridMechanism
    from ldp.mechanisms.krr import KRR, RandomizedResponse
    from ldp.mechanisms.laplace import LaplaceMechanism
    from ldp.mechanisms.local_hashing import LocalHashing
    from ldp.mechanisms.loloha import LOLOHA
    from ldp.mechanisms.onebit import OneBitMean
    from ldp.mechanisms.ordered import OrderedExponential
    from ldp.mechanisms.piecewise import PiecewiseMechanism
    from ldp.mechanisms.policy import PolicyMechanism, PolicyTable
    from ldp.mechanisms.policy_subsets import PolicySubsets
    from ldp.mechanisms.policy_unary import PolicyUnary
    from ldp.mechanisms.projective import ProjectiveGeometry
    from ldp.mechanisms.rappor import RAPPOR
    from ldp.mechanisms.square_wave import SquareWave
    from ldp.mechanisms.subset_selection import SubsetSelection
    from ldp.mechanisms.table import ChannelTable
    from ldp.mechanisms.unary import UnaryEncoding

__all__ = [
    "HRR",
    "KRR",
    "LOLOHA",
    "RAPPOR",
    "ChannelTable",
    "CountMeanSketch",
    "DBitFlip",
    "GaussianMechanism",
    "HadamardCountMeanSketch",
    "HadamardResponse",
    "HybridMechanism",
    "KRRChain",
    "LaplaceMechanism",
    "LocalHashing",
    "OneBitMean",
    "OrderedExponential",
    "PiecewiseMechanism",
    "PolicyMechanism",
    "PolicySubsets",
    "PolicyTable",
    "PolicyUnary",
    "ProjectiveGeometry",
    "RandomizedResponse",
    "SquareWave",
    "SubsetSelection",
    "SummingHistogram",
    "UnaryChain",
    "UnaryEncoding",
    "build",
    "thresholding_histogram",
]

_MODULES: Mapping[str, str] = {
    "HRR": "hadamard",
    "KRR": "krr",
    "LOLOHA": "loloha",
    "RAPPOR": "rappor",
    "ChannelTable": "table",
    "CountMeanSketch": "count_mean_sketch",
    "DBitFlip": "dbitflip",
    "GaussianMechanism": "gaussian",
    "HadamardCountMeanSketch": "count_mean_sketch",
    "HadamardResponse": "hadamard",
    "HybridMechanism": "hybrid",
    "KRRChain": "chains",
    "LaplaceMechanism": "laplace",
    "LocalHashing": "local_hashing",
    "OneBitMean": "onebit",
    "OrderedExponential": "ordered",
    "PiecewiseMechanism": "piecewise",
    "PolicyMechanism": "policy",
    "PolicySubsets": "policy_subsets",
    "PolicyTable": "policy",
    "PolicyUnary": "policy_unary",
    "ProjectiveGeometry": "projective",
    "RandomizedResponse": "krr",
    "SquareWave": "square_wave",
    "SubsetSelection": "subset_selection",
    "SummingHistogram": "histogram",
    "UnaryChain": "chains",
    "UnaryEncoding": "unary",
    "thresholding_histogram": "histogram",
}

# The Gaussian mechanism is (epsilon, delta)-LDP, and a plan promises pure epsilon: not here.
_IN_PLANS: Mapping[str, str] = {
    "cms": "CountMeanSketch",
    "dbitflip": "DBitFlip",
    "hadamard": "HadamardResponse",
    "hashing": "LocalHashing",
    "hcms": "HadamardCountMeanSketch",
    "hrr": "HRR",
    "hybrid": "HybridMechanism",
    "krr": "KRR",
    "krr_chain": "KRRChain",
    "laplace": "LaplaceMechanism",
    "loloha": "LOLOHA",
    "onebit": "OneBitMean",
    "ordered": "OrderedExponential",
    "piecewise": "PiecewiseMechanism",
    "policy_subsets": "PolicySubsets",
    "policy_table": "PolicyTable",
    "policy_unary": "PolicyUnary",
    "projective": "ProjectiveGeometry",
    "rappor": "RAPPOR",
    "she": "SummingHistogram",
    "square_wave": "SquareWave",
    "subset": "SubsetSelection",
    "table": "ChannelTable",
    "unary": "UnaryEncoding",
    "unary_chain": "UnaryChain",
}


def named(name: str) -> type[Mechanism]:
    """Return what a plan calls by this name; raise `InvalidInput` for a name we do not know."""
    if name not in _IN_PLANS:
        raise InvalidInput(f"unknown mechanism {name!r}; this version knows {sorted(_IN_PLANS)}")
    mechanism: type[Mechanism] = __getattr__(_IN_PLANS[name])
    return mechanism


def build(name: str, epsilon: float, integers: Mapping[str, Sequence[int]]) -> Mechanism:
    """Build the mechanism that a plan names; raise `InvalidInput` as `named`, and where the
    integers do not keep epsilon."""
    return named(name).from_integers(epsilon, integers)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
