"""The mathematics of local differential privacy: mechanisms, tallies, estimates. No I/O.

The mechanisms of `ldp.mechanisms` can be imported from here too.
"""

from typing import TYPE_CHECKING, Any

from ldp import mechanisms
from ldp.channel import Channel
from ldp.coins import Coins
from ldp.errors import InvalidInput
from ldp.estimation import Estimate, estimate
from ldp.mechanism import FrequencyOracle, Mechanism
from ldp.mechanisms import build
from ldp.policy import Policy
from ldp.tally import Tally

if TYPE_CHECKING:
    from ldp.mechanisms import *  # noqa: F403

__all__ = [
    "Channel",
    "Coins",
    "Estimate",
    "FrequencyOracle",
    "InvalidInput",
    "Mechanism",
    "Policy",
    "Tally",
    "build",
    "estimate",
]


def __getattr__(name: str) -> Any:
    return getattr(mechanisms, name)
