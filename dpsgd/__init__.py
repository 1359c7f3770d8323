"""Gaussian accounting and private training.

`dpsgd.accounting` needs no torch, which is loaded when a name of training is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ldp.errors import HearsayError, InvalidInput, MissingExtra, needs
from ldp.version import __version__ as __version__

if TYPE_CHECKING:
    from dpsgd.accounting import BudgetExhausted
    from dpsgd.auditing import OneRunAudit, audit_one_run, choose_canaries, lira, membership
    from dpsgd.clipping.adaptive import QuantileClipping
    from dpsgd.clipping.policies import AutomaticClipping, FlatClipping, PerLayerClipping
    from dpsgd.clipping.schedules import Exponential, Linear
    from dpsgd.reports.channels import Cohort, Reports
    from dpsgd.reports.guarantees import Account, account
    from dpsgd.reports.labels import RRWithPrior, TwoStage, two_stage
    from dpsgd.reports.losses import backward_cross_entropy, forward_cross_entropy
    from dpsgd.reports.rows import Rows
    from dpsgd.training.engine import PrivacyEngine
    from dpsgd.training.fixing import fix
    from dpsgd.training.optimizers import AdamBC

_NAMES = {
    "accounting": "BudgetExhausted",
    "auditing": "OneRunAudit audit_one_run choose_canaries lira membership",
    "clipping.adaptive": "QuantileClipping",
    "clipping.policies": "AutomaticClipping FlatClipping PerLayerClipping",
    "clipping.schedules": "Exponential Linear",
    "reports.channels": "Cohort Reports",
    "reports.guarantees": "Account account",
    "reports.labels": "RRWithPrior TwoStage two_stage",
    "reports.losses": "backward_cross_entropy forward_cross_entropy",
    "reports.rows": "Rows",
    "training.engine": "PrivacyEngine",
    "training.fixing": "fix",
    "training.optimizers": "AdamBC",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = [
    "Account",
    "AdamBC",
    "AutomaticClipping",
    "BudgetExhausted",
    "Cohort",
    "Exponential",
    "FlatClipping",
    "HearsayError",
    "InvalidInput",
    "Linear",
    "MissingExtra",
    "OneRunAudit",
    "PerLayerClipping",
    "PrivacyEngine",
    "QuantileClipping",
    "RRWithPrior",
    "Reports",
    "Rows",
    "TwoStage",
    "account",
    "audit_one_run",
    "backward_cross_entropy",
    "choose_canaries",
    "fix",
    "forward_cross_entropy",
    "lira",
    "membership",
    "two_stage",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        with needs(f"dpsgd.{name}", "train"):
            return getattr(import_module(f"dpsgd.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
