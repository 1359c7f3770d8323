"""The mathematics of local differential privacy: mechanisms, tallies, estimates. No I/O."""

from typing import TYPE_CHECKING, Any

from ldp import mechanisms
from ldp.core.channel import Channel
from ldp.core.coins import Coins
from ldp.core.estimation import Cohorts, Estimate, estimate
from ldp.core.mechanism import FrequencyOracle, Mechanism
from ldp.core.policy import Policy
from ldp.core.tally import Tally
from ldp.errors import HearsayError, InvalidInput
from ldp.mechanisms import *  # noqa: F403
from ldp.version import __version__ as __version__

if TYPE_CHECKING:
    from ldp.mechanisms.vectors import SphereCodebook, build_vector

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
    "SphereCodebook",
    "Tally",
    "build_vector",
    "estimate",
]
__all__ += mechanisms.__all__


def __getattr__(name: str) -> Any:
    if name not in ("SphereCodebook", "build_vector"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ldp.mechanisms import vectors

    return getattr(vectors, name)


def __dir__() -> list[str]:
    return sorted(__all__)
