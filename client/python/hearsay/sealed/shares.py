"""Seal the two shares of a record, each to its server, and open them: HPKE, without padding.

Both are the code of the record's one column: the leader's sealed share, then the helper's. All
records of a survey have codes of one size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hearsay.plans.plan import Plan
from hearsay.plans.two_servers import TwoServers
from hearsay.sealed import hpke
from ldp import InvalidInput
from ldp.two_servers.shares import SEED_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

Role = Literal["leader", "helper"]

ID_BYTES = 16

LEADER_BYTES = SEED_BYTES + hpke.OVERHEAD_BYTES
"""Bytes of the leader's sealed share."""

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


def info(role: Role, plan: Plan, period: str, id_: bytes) -> bytes:
    """Return what a share is bound to: HPKE's `info`."""
    return b"\0".join(
        (_LABEL, role.encode(), plan.survey.encode(), plan.revision, period.encode(), id_)
    )


def seal(plan: Plan, period: str, id_: bytes, seed: bytes, rest: bytes) -> bytes:
    """Seal share A to the leader and share B to the helper; return both, as a column's code.

    `id_` is that of the record's batch: under another one the shares do not open.
    Guarantee: one server, without the other's private key, learns nothing of the other's share
    (RFC 9180, section 9.1), and its own is uniform (`ldp.two_servers.shares`).
    Raises `MissingExtra` without the package cryptography, and `InvalidInput` for a plan without
    keys.
    """
    two = of(plan)
    return hpke.encrypted(seed, two.leader_key, info("leader", plan, period, id_)) + hpke.encrypted(
        rest, two.helper_key, info("helper", plan, period, id_)
    )


def helper_bytes(plan: Plan) -> int:
    """Return the bytes of a helper's sealed share."""
    return of(plan).rest_bytes + hpke.OVERHEAD_BYTES


def opened(
    plan: Plan, role: Role, period: str, id_: bytes, sealed: bytes, private: X25519PrivateKey
) -> bytes:
    """Return a server's share: the leader's seed, or the helper's rest.

    Raises `InvalidInput`, which does not say why, for what `seal` cannot have made for this plan,
    server, period and id, and for another size.
    """
    size = LEADER_BYTES if role == "leader" else helper_bytes(plan)
    if len(sealed) != size:
        raise InvalidInput(f"the {role}'s share has {size} bytes, got {len(sealed)}")
    return hpke.decrypted(sealed, private, info(role, plan, period, id_))
