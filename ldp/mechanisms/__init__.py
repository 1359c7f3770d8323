"""Registry of all mechanisms.

A new mechanism is a file in one of the folders and its lines here: the import, the name in
`__all__`, and, where a survey may ask for it, the makers under the names that a survey calls them.
All other lists are derived from these.
"""

from collections.abc import Callable, Mapping, Sequence

from ldp.core.mechanism import Categorical, Mechanism
from ldp.errors import InvalidInput
from ldp.mechanisms.frequency.count_mean_sketch import CountMeanSketch, HadamardCountMeanSketch
from ldp.mechanisms.frequency.hadamard import HRR, HadamardResponse
from ldp.mechanisms.frequency.histogram import SummingHistogram, thresholding_histogram
from ldp.mechanisms.frequency.krr import KRR, RandomizedResponse
from ldp.mechanisms.frequency.local_hashing import LocalHashing
from ldp.mechanisms.frequency.ordered import OrderedExponential
from ldp.mechanisms.frequency.projective import ProjectiveGeometry
from ldp.mechanisms.frequency.subset_selection import SubsetSelection
from ldp.mechanisms.frequency.table import ChannelTable
from ldp.mechanisms.frequency.unary import UnaryEncoding
from ldp.mechanisms.lasting.chains import KRRChain, UnaryChain
from ldp.mechanisms.lasting.dbitflip import DBitFlip
from ldp.mechanisms.lasting.loloha import LOLOHA
from ldp.mechanisms.lasting.rappor import RAPPOR
from ldp.mechanisms.numbers.gaussian import GaussianMechanism
from ldp.mechanisms.numbers.hybrid import HybridMechanism
from ldp.mechanisms.numbers.laplace import LaplaceMechanism
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.mechanisms.numbers.mean_table import MeanTable
from ldp.mechanisms.numbers.onebit import OneBitMean
from ldp.mechanisms.numbers.piecewise import PiecewiseMechanism
from ldp.mechanisms.numbers.square_wave import SquareWave
from ldp.mechanisms.policies.base import PolicyMechanism, PolicyTable
from ldp.mechanisms.policies.mean_table import PolicyMeanTable
from ldp.mechanisms.policies.subsets import PolicySubsets
from ldp.mechanisms.policies.unary import PolicyUnary
from ldp.mechanisms.ranges.waves import Waves
from ldp.mechanisms.sets.base import SetMechanism
from ldp.mechanisms.sets.choice import best_for_sets
from ldp.mechanisms.sets.set_bits import SetBits
from ldp.mechanisms.sets.set_selection import SetSelection
from ldp.mechanisms.strings.prefix_hashing import PrefixHashing

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
    "MeanTable",
    "OneBitMean",
    "OrderedExponential",
    "PiecewiseMechanism",
    "PolicyMeanTable",
    "PolicyMechanism",
    "PolicySubsets",
    "PolicyTable",
    "PolicyUnary",
    "PrefixHashing",
    "ProjectiveGeometry",
    "RandomizedResponse",
    "SetBits",
    "SetMechanism",
    "SetSelection",
    "SquareWave",
    "SubsetSelection",
    "SummingHistogram",
    "UnaryChain",
    "UnaryEncoding",
    "Waves",
    "best_for_sets",
    "build",
    "thresholding_histogram",
]

_SKETCH = 256
"""Hash functions of a sketch, and their buckets: a tally has the product of counts, and is
written with every commit."""

_ASKED = 8
"""The number of categories that dBitFlip asks each device about."""

FREQUENCIES: Mapping[str, Callable[[int, float], Categorical]] = {
    "krr": KRR,
    "oue": UnaryEncoding,
    "sue": UnaryEncoding.symmetric,
    "the": thresholding_histogram,
    "she": SummingHistogram,
    "olh": LocalHashing.optimised,
    "blh": LocalHashing.binary,
    "hrr": HRR,
    "hadamard": HadamardResponse,
    "subset": SubsetSelection,
    "projective": ProjectiveGeometry,
}
"""Constructors from (k, epsilon), by survey name, that `ldp.planning.choice.choose` compares."""

OTHER_FREQUENCIES: Mapping[str, Callable[[int, float], Categorical]] = {
    "cms": lambda k, epsilon: CountMeanSketch(k, epsilon, _SKETCH, _SKETCH),
    "hcms": lambda k, epsilon: HadamardCountMeanSketch(k, epsilon, _SKETCH, _SKETCH),
    "ordered": OrderedExponential,
    "dbitflip": lambda k, epsilon: DBitFlip(k, epsilon, min(k, _ASKED)),
}
"""Constructors from (k, epsilon) for special purposes, whose variances do not compare."""

CHAINS: Mapping[str, Callable[[int, float, float], Categorical]] = {
    "krr_chain": KRRChain.calibrate,
    "l_sue": UnaryChain.l_sue,
    "l_oue": UnaryChain.l_oue,
    "l_osue": UnaryChain.l_osue,
    "loloha": LOLOHA.calibrate,
}
"""Constructors from (k, epsilon of a report, epsilon of a memo), of memos with fresh noise."""

NUMBERS: Mapping[str, Callable[[float], MeanMechanism]] = {
    "onebit": OneBitMean,
    "piecewise": PiecewiseMechanism.optimal,
    "hybrid": HybridMechanism.optimal,
    "laplace": LaplaceMechanism,
    "square_wave": SquareWave,
}
"""Constructors from epsilon, of mechanisms for the mean of numbers in [-1, 1]."""

SETS: Mapping[str, Callable[[int, int, float], SetMechanism]] = {
    "set_selection": lambda items, most, epsilon: SetSelection(items, epsilon, most),
    "set_pairs": lambda items, most, epsilon: SetSelection.pairing(items, epsilon, most),
    "set_bits": lambda items, most, epsilon: SetBits(items, epsilon),
}
"""Constructors from (items, items of the largest set, epsilon), of mechanisms for sets of items."""


def _in_plans() -> dict[str, type[Mechanism]]:
    """Return the mechanisms that a plan may contain, by name: all but approximate ones."""
    found: dict[str, type[Mechanism]] = {}
    for kind in [globals().get(name) for name in __all__]:
        if not isinstance(kind, type) or not issubclass(kind, Mechanism):
            continue
        if "name" in vars(kind) and kind.guarantee != "approximate":
            found[kind.name] = kind
    return dict(sorted(found.items()))


IN_PLANS: Mapping[str, type[Mechanism]] = _in_plans()
"""Every mechanism that a plan may contain, by its name in a plan."""


def named(name: str) -> type[Mechanism]:
    """Return the mechanism of a name in a plan; raise `InvalidInput` for an unknown name."""
    if name not in IN_PLANS:
        raise InvalidInput(f"unknown mechanism {name!r}; this version knows {list(IN_PLANS)}")
    return IN_PLANS[name]


def build(name: str, epsilon: float, integers: Mapping[str, Sequence[int]]) -> Mechanism:
    """Build a mechanism from its name, epsilon and integers in a plan.

    Raises `InvalidInput` as `named`, and where the integers do not keep epsilon.
    """
    return named(name).from_integers(epsilon, integers)
