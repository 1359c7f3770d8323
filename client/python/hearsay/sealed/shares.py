"""Seal the two shares of a record or an update, each to its server, and open them: HPKE, without
padding.

Both are the code of a record's one column, and the payload of an update: the leader's sealed share,
then the helper's. All of a survey or a training have one size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hearsay.plans.plan import Plan
from hearsay.plans.two_servers import Splitting, TwoServers
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


def of(plan: Plan) -> TwoServers:
    """Return what a plan says of two servers; raise `InvalidInput` where it says nothing."""
    if plan.two_servers is None:
        raise InvalidInput(f"the records of {plan.survey!r} are not split between two servers")
    return plan.two_servers


def splitting(plan: Plan) -> Splitting:
    """Return by what a plan's records are split; raise as `of`."""
    return of(plan).splitting(plan.survey, plan.revision)


def check(by: Splitting) -> None:
    """Raise unless shares can be sealed to both servers.

    Raises `MissingExtra` where the package cryptography is missing, and `InvalidInput` where a key
    is missing, or is one that anybody could open shares of.
    """
    if not by.leader_key:
        raise InvalidInput(f"{by.name!r} has no leader's key: it is not registered")
    for key in (by.leader_key, by.helper_key):
        hpke.encrypted(b"", key, b"")


def info(role: Role, by: Splitting, period: str, id_: bytes) -> bytes:
    """Return what a share is bound to: HPKE's `info`. Of an update the period is `round_name`."""
    return b"\0".join((_LABEL, role.encode(), by.name.encode(), by.revision, period.encode(), id_))


def round_name(number: int) -> str:
    """Return what stands for a round of a training where records of surveys have a period."""
    return f"round {number}"


def seal(by: Splitting, period: str, id_: bytes, seed: bytes, rest: bytes) -> bytes:
    """Seal share A to the leader and share B to the helper; return both, as a column's code.

    `id_` is that of the record's batch, or of the update: under another one the shares do not open.
    Guarantee: one server, without the other's private key, learns nothing of the other's share
    (RFC 9180, section 9.1), and its own is uniform (`ldp.two_servers.shares`).
    Raises `MissingExtra` without the package cryptography, and `InvalidInput` without keys.
    """
    return hpke.encrypted(seed, by.leader_key, info("leader", by, period, id_)) + hpke.encrypted(
        rest, by.helper_key, info("helper", by, period, id_)
    )


def helper_bytes(by: Splitting) -> int:
    """Return the bytes of a helper's sealed share."""
    return by.rest_bytes + hpke.OVERHEAD_BYTES


def size(by: Splitting) -> int:
    """Return the bytes of both sealed shares."""
    return LEADER_BYTES + helper_bytes(by)


def opened(
    by: Splitting, role: Role, period: str, id_: bytes, sealed: bytes, private: X25519PrivateKey
) -> bytes:
    """Return a server's share: the leader's seed, or the helper's rest.

    Raises `InvalidInput`, which does not say why, for what `seal` cannot have made for this survey
    or training, server, period and id, and for another size.
    """
    size = LEADER_BYTES if role == "leader" else helper_bytes(by)
    if len(sealed) != size:
        raise InvalidInput(f"the {role}'s share has {size} bytes, got {len(sealed)}")
    return hpke.decrypted(sealed, private, info(role, by, period, id_))
