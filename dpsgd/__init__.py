"""Gaussian accounting and private training.

`dpsgd.accounting` needs no torch, which is loaded when a name of training is first asked for.
"""

from typing import TYPE_CHECKING

from ldp.lazy import lazy
from ldp.version import __version__ as __version__

if TYPE_CHECKING:  # the same names, for type checkers
    from dpsgd.accounting import BudgetExhausted as BudgetExhausted
    from dpsgd.auditing import OneRunAudit as OneRunAudit
    from dpsgd.auditing import audit_one_run as audit_one_run
    from dpsgd.auditing import choose_canaries as choose_canaries
    from dpsgd.auditing import lira as lira
    from dpsgd.auditing import membership as membership
    from dpsgd.clipping.adaptive import QuantileClipping as QuantileClipping
    from dpsgd.clipping.policies import AutomaticClipping as AutomaticClipping
    from dpsgd.clipping.policies import FlatClipping as FlatClipping
    from dpsgd.clipping.policies import PerLayerClipping as PerLayerClipping
    from dpsgd.clipping.schedules import Exponential as Exponential
    from dpsgd.clipping.schedules import Linear as Linear
    from dpsgd.reports.channels import Cohort as Cohort
    from dpsgd.reports.channels import Reports as Reports
    from dpsgd.reports.guarantees import Account as Account
    from dpsgd.reports.guarantees import account as account
    from dpsgd.reports.labels import RRWithPrior as RRWithPrior
    from dpsgd.reports.labels import TwoStage as TwoStage
    from dpsgd.reports.labels import two_stage as two_stage
    from dpsgd.reports.losses import backward_cross_entropy as backward_cross_entropy
    from dpsgd.reports.losses import forward_cross_entropy as forward_cross_entropy
    from dpsgd.reports.rows import Rows as Rows
    from dpsgd.training.engine import PrivacyEngine as PrivacyEngine
    from dpsgd.training.fixing import fix as fix
    from dpsgd.training.optimizers import AdamBC as AdamBC
    from ldp.errors import HearsayError as HearsayError
    from ldp.errors import InvalidInput as InvalidInput
    from ldp.errors import MissingExtra as MissingExtra

__all__, __dir__, __getattr__ = lazy(
    __name__,
    {
        "dpsgd.accounting": "BudgetExhausted",
        "dpsgd.auditing": "OneRunAudit audit_one_run choose_canaries lira membership",
        "dpsgd.clipping.adaptive": "QuantileClipping",
        "dpsgd.clipping.policies": "AutomaticClipping FlatClipping PerLayerClipping",
        "dpsgd.clipping.schedules": "Exponential Linear",
        "dpsgd.reports.channels": "Cohort Reports",
        "dpsgd.reports.guarantees": "Account account",
        "dpsgd.reports.labels": "RRWithPrior TwoStage two_stage",
        "dpsgd.reports.losses": "backward_cross_entropy forward_cross_entropy",
        "dpsgd.reports.rows": "Rows",
        "dpsgd.training.engine": "PrivacyEngine",
        "dpsgd.training.fixing": "fix",
        "dpsgd.training.optimizers": "AdamBC",
        "ldp.errors": "HearsayError InvalidInput MissingExtra",
    },
    extra="train",
)
