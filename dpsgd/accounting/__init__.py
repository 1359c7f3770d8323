"""What a private training run reveals, bounded.

    accountant = RDPAccountant(Relation.ADD_REMOVE)
    accountant.step(noise_multiplier=1.1, sampling=PoissonSampling(256 / 60_000))
    accountant.get_epsilon(1e-5)

`docs/accounting.md` says which accountant to take, and what each promises.
"""

from dpsgd.accounting.accountant import Accountant
from dpsgd.accounting.events import (
    Event,
    FixedSizeSampling,
    NoSampling,
    PoissonSampling,
    Relation,
    Sampling,
)
from dpsgd.accounting.rdp import RDPAccountant

__all__ = [
    "Accountant",
    "Event",
    "FixedSizeSampling",
    "NoSampling",
    "PoissonSampling",
    "RDPAccountant",
    "Relation",
    "Sampling",
]
