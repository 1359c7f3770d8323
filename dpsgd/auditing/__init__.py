"""Audits: what an attack on a training, or on a collection, proves about its epsilon.

`one_run` guesses the coins of canaries of one run, `membership` which records a model was trained
on. Neither needs torch.
"""

from dpsgd.auditing.membership import Membership, PointOnCurve, lira, membership, most_found
from dpsgd.auditing.one_run import (
    OneRunAudit,
    audit_by_likelihood,
    audit_one_run,
    choose_canaries,
    one_run_lower_bound,
    one_run_p_value,
)

__all__ = [
    "Membership",
    "OneRunAudit",
    "PointOnCurve",
    "audit_by_likelihood",
    "audit_one_run",
    "choose_canaries",
    "lira",
    "membership",
    "most_found",
    "one_run_lower_bound",
    "one_run_p_value",
]
