"""Seal the two shares of a record, each to its server, and open them: HPKE, without padding.

Records of a survey have shares of one size each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hearsay.plans import period as periods
from hearsay.plans.plan import Plan
from hearsay.plans.two_servers import TwoServers
from hearsay.sealed import hpke
from hearsay.v1 import two_servers_pb2
from ldp import InvalidInput
from ldp.two_servers.shares import SEED_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

Role = Literal["leader", "helper"]

ID_BYTES = 16

_LABEL = b"hearsay/v1/share"


def check(plan: Plan) -> None:
    """Raise unless shares can be sealed to both servers of a plan.

    Raises `MissingExtra` where the package cryptography is missing, and `InvalidInput` for a plan
    that has no keys, or one that anybody could open shares of.
    """
    two = of(plan)
    if not two.leader_key:
        raise InvalidInput("this plan has no leader's key: its survey is not registered")
    for key in (two.leader_key, two.helper_key):
        hpke.encrypted(b"", key, b"")


def of(plan: Plan) -> TwoServers:
    """Return what a plan says of two servers; raise `InvalidInput` where it says nothing."""
    if plan.two_servers is None:
        raise InvalidInput(f"the records of {plan.survey!r} are not split between two servers")
    return plan.two_servers


def info(role: Role, survey: str, revision: bytes, period: str, id_: bytes) -> bytes:
    """Return what a share is bound to: HPKE's `info`."""
    return b"\0".join((_LABEL, role.encode(), survey.encode(), revision, period.encode(), id_))


def seal(
    plan: Plan, period: str, id_: bytes, seed: bytes, rest: bytes
) -> two_servers_pb2.SharedRecord:
    """Seal share A to the leader and share B to the helper.

    Guarantee: one server, without the other's private key, learns nothing of the other's share
    (RFC 9180, section 9.1), and its own is uniform (`ldp.two_servers.shares`).
    Raises `MissingExtra` without the package cryptography, and `InvalidInput` for a plan without
    keys.
    """
    two = of(plan)
    bound = (plan.survey, plan.revision, period, id_)
    return two_servers_pb2.SharedRecord(
        survey=plan.survey,
        revision=plan.revision,
        period=period,
        id=id_,
        leader=hpke.encrypted(seed, two.leader_key, info("leader", *bound)),
        helper=hpke.encrypted(rest, two.helper_key, info("helper", *bound)),
    )


def check_envelope(plan: Plan, record: two_servers_pb2.SharedRecord, *roles: Role) -> None:
    """Raise `InvalidInput` where the clear part of a record cannot be of a plan, or a share for one
    of `roles` has another size than those of the plan."""
    two = of(plan)
    if (record.survey, record.revision) != (plan.survey, plan.revision):
        raise InvalidInput(
            f"it is of revision {record.revision.hex()[:12]} of {record.survey!r}, and the plan is "
            f"{plan.revision.hex()[:12]} of {plan.survey!r}"
        )
    periods.start(plan.period, record.period)
    if len(record.id) != ID_BYTES:
        raise InvalidInput(f"an id has {ID_BYTES} bytes, got {len(record.id)}")
    sizes = {"leader": SEED_BYTES, "helper": two.rest_bytes}
    for role in roles:
        share, due = getattr(record, role), sizes[role] + hpke.OVERHEAD_BYTES
        if len(share) != due:
            raise InvalidInput(f"the {role}'s share has {due} bytes, got {len(share)}")


def opened(
    plan: Plan, record: two_servers_pb2.SharedRecord, role: Role, private: X25519PrivateKey
) -> bytes:
    """Return the share that a record has for a server: the leader's seed, or the rest.

    Raises `InvalidInput`, which does not say why a share cannot be opened, for a record that
    `seal` cannot have made for this plan, server, period and id.
    """
    check_envelope(plan, record, role)
    bound = info(role, record.survey, record.revision, record.period, record.id)
    share: bytes = record.leader if role == "leader" else record.helper
    return hpke.decrypted(share, private, bound)
