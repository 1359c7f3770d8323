"""What the server that leads asks its helper: to take shares, to agree on a set, for its sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from hearsay.plans.two_servers import Splitting
from hearsay.sealed import shares
from hearsay.sending.transport import Answer, Calls
from hearsay.v1 import collector_pb2, two_servers_pb2
from ldp import InvalidInput
from ldp.two_servers.shares import dtype, join, parse

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

_GROUP = 256
"""The most shares of one call."""

_GROUP_BYTES = 1 << 20
"""The most bytes of shares of one call that has several."""

_TIMEOUT = 60.0

KEPT = (collector_pb2.Result.STORED, collector_pb2.Result.DUPLICATE)
"""What a helper answers for a share that it has."""


@dataclass(frozen=True)
class Part:
    """The records of a survey's period, or the updates to a training's round."""

    by: Splitting
    period: str = ""
    round: int = 0

    @property
    def bound(self) -> str:
        """What shares are bound to in the place of a period."""
        return shares.round_name(self.round) if self.round else self.period


class Helping:
    """The calls to a helper."""

    def __init__(self, helper: Calls) -> None:
        self._helper = helper

    def take(
        self, part: Part, some: Sequence[tuple[bytes, bytes]]
    ) -> list[tuple[bytes, collector_pb2.Result]]:
        """Hand some ids and sealed shares over; return what became of each.

        Raises `InvalidInput` where the answer is none, and what `Calls.call` raises.
        """
        request = two_servers_pb2.TakeSharesRequest(
            survey=part.by.name,
            revision=part.by.revision,
            period=part.period,
            round=part.round,
            shares=[two_servers_pb2.Share(id=id_, sealed=sealed) for id_, sealed in some],
        )
        answer = self._call("TakeShares", request, two_servers_pb2.TakeSharesResponse)
        if len(answer.results) != len(some):
            raise InvalidInput(
                f"the helper answered {len(some)} shares with {len(answer.results)} results"
            )
        return [(id_, found) for (id_, _), found in zip(some, answer.results, strict=True)]

    def check_free(self, name: str, *, is_training: bool = False) -> None:
        """Raise `InvalidInput` or `NotReady`, with the helper's words, where it keeps a plan, or a
        training, of that name already, as of one that was deleted: it would sum nothing of a new
        one."""
        request = two_servers_pb2.TakeSharesRequest(survey=name, round=int(is_training))
        self._call("TakeShares", request, two_servers_pb2.TakeSharesResponse)

    def agree(self, part: Part, ids: Sequence[bytes]) -> set[bytes]:
        """Return which of some ids the helper can still sum."""
        request = two_servers_pb2.AgreeRequest(
            survey=part.by.name, period=part.period, round=part.round, ids=b"".join(ids)
        )
        answer = self._call("Agree", request, two_servers_pb2.AgreeResponse)
        return set(split(answer.ids))

    def total(self, part: Part, ids: bytes, own: bytes) -> NDArray[np.int64]:
        """Return the sum of a set that is claimed, of the helper's shares and ours."""
        by = part.by
        request = two_servers_pb2.SumRequest(
            survey=by.name, period=part.period, round=part.round, ids=ids
        )
        answer = self._call("Sum", request, two_servers_pb2.SumResponse)
        theirs, mine = parse(answer.sum, by.dim, by.bits), parse(own, by.dim, by.bits)
        return join(mine.astype(dtype(by.bits)), theirs.astype(dtype(by.bits)), by.bits)

    def _call(self, method: str, request: Message, kind: type[Answer]) -> Answer:
        return self._helper.call(f"Helper/{method}", request, kind, _TIMEOUT)


def own_seed(part: Part, id_: bytes, code: bytes, private: X25519PrivateKey) -> bytes | None:
    """Return our share of a record or an update; None where it does not open."""
    try:
        mine = code[: shares.LEADER_BYTES]
        return shares.opened(part.by, "leader", part.bound, id_, mine, private)
    except InvalidInput:
        return None


def handed_over_at_once(by: Splitting) -> int:
    """Return how many shares one call has at most."""
    return max(1, min(_GROUP, _GROUP_BYTES // shares.helper_bytes(by)))


def groups(some: Sequence[bytes], size: int = _GROUP) -> Iterator[Sequence[bytes]]:
    """Yield ids in groups of a size."""
    for first in range(0, len(some), size):
        yield some[first : first + size]


def split(ids: bytes) -> list[bytes]:
    """Return the ids that stand one after the other."""
    return [ids[n : n + shares.ID_BYTES] for n in range(0, len(ids), shares.ID_BYTES)]
