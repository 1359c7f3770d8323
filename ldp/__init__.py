"""The mathematics of local differential privacy: mechanisms, tallies, estimates. No I/O."""

from typing import TYPE_CHECKING

from ldp import mechanisms
from ldp.core.channel import Channel
from ldp.core.coins import Coins
from ldp.core.estimation import Cohorts, Estimate, estimate
from ldp.core.mechanism import FrequencyOracle, Mechanism
from ldp.core.policy import Policy
from ldp.core.tally import Tally
from ldp.errors import HearsayError, InvalidInput
from ldp.lazy import lazy
from ldp.mechanisms import *  # noqa: F403
from ldp.version import __version__ as __version__

if TYPE_CHECKING:
    from ldp.mechanisms.vectors import SphereCodebook as SphereCodebook
    from ldp.mechanisms.vectors import build_vector as build_vector

__all__ = [
    "Channel",
    "Cohorts",
    "Coins",
    "Estimate",
    "FrequencyOracle",
    "HearsayError",
    "InvalidInput",
    "Mechanism",
    "Policy",
    "Tally",
    "estimate",
]
__all__ += mechanisms.__all__
__all__, __dir__, __getattr__ = lazy(
    __name__, {"ldp.mechanisms.vectors": "SphereCodebook build_vector"}, eager=__all__
)
