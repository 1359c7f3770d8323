"""Privacy accounting: upper bounds on epsilon and delta of a private training run.

`docs/accounting.md` says which accountant to take. `PLDAccountant` is in `dpsgd.accounting.pld`,
which loads dp-accounting; composition of plain guarantees is in `dpsgd.accounting.composition`.
"""

from dpsgd.accounting.accountant import Accountant, BudgetExhausted
from dpsgd.accounting.calibration import (
    calibrate_noise_multiplier,
    calibrate_sampling_rate,
    calibrate_steps,
)
from dpsgd.accounting.events import (
    Channel,
    Event,
    FixedSizeSampling,
    Laplace,
    NoSampling,
    PoissonSampling,
    Pure,
    Relation,
    Sampling,
)
from dpsgd.accounting.gaussian import (
    analytic_noise,
    combined_noise_multiplier,
    gaussian_delta,
    gaussian_epsilon,
)
from dpsgd.accounting.gdp import CentralLimitApproximation, GDPAccountant
from dpsgd.accounting.moments import MomentsAccountant
from dpsgd.accounting.rdp import RDPAccountant
from dpsgd.accounting.selection import BestOf
from dpsgd.accounting.zcdp import ZCDPAccountant

__all__ = [
    "Accountant",
    "BestOf",
    "BudgetExhausted",
    "CentralLimitApproximation",
    "Channel",
    "Event",
    "FixedSizeSampling",
    "GDPAccountant",
    "Laplace",
    "MomentsAccountant",
    "NoSampling",
    "PoissonSampling",
    "Pure",
    "RDPAccountant",
    "Relation",
    "Sampling",
    "ZCDPAccountant",
    "analytic_noise",
    "calibrate_noise_multiplier",
    "calibrate_sampling_rate",
    "calibrate_steps",
    "combined_noise_multiplier",
    "gaussian_delta",
    "gaussian_epsilon",
]


def __dir__() -> list[str]:
    return sorted(__all__)
