"""Leading two servers: hand shares over to the helper, agree on sets, and sum each once."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from google.protobuf.message import Message
from prometheus_client import Counter

from hearsay.plans.plan import Plan
from hearsay.plans.two_servers import MOST
from hearsay.sealed import shares
from hearsay.sending.transport import Answer, Calls
from hearsay.v1 import collector_pb2, two_servers_pb2
from hearsay_server.clock import Clock
from hearsay_server.storage import forgetting, sums
from hearsay_server.storage.database import Database
from hearsay_server.storage.sealing_keys import Keys
from hearsay_server.storage.store import MIXED
from ldp import InvalidInput
from ldp.errors import HearsayError, NotReady
from ldp.two_servers.shares import dtype, join, parse, sum_seeds

_log = logging.getLogger("hearsay.server")

_GROUP = 256
"""The most shares of one call."""

_GROUP_BYTES = 1 << 20
"""The most bytes of shares of one call: far below the largest message that a helper takes."""

_TIMEOUT = 60.0

_REFUSED = (InvalidInput, NotReady)
"""What a helper that is there answers to one request, and not to others."""

_KEPT = (collector_pb2.Result.STORED, collector_pb2.Result.DUPLICATE)


class Summing:
    """Moves records of surveys with two servers into sums.

    A process that dies at any moment leaves each record waiting, or in one set that is claimed,
    and asks the helper for that set's sum again.
    """

    def __init__(
        self,
        database: Database,
        plans: Callable[[], Sequence[Plan]],
        helper: Calls,
        clock: Clock,
        counted: Counter,
    ) -> None:
        """Sum the records of `plans` with `helper`; `counted` tells what became of them."""
        self._database = database
        self._plans = plans
        self._keys = Keys(database)
        self._helper = helper
        self._clock = clock
        self._counted = counted
        self._handed: dict[tuple[bytes, str], set[bytes]] = {}

    async def run(self, every: float) -> None:
        """Look at what waits every so many seconds, until cancelled."""
        while True:
            await asyncio.to_thread(self.once)
            await asyncio.sleep(every)

    def once(self) -> None:
        """Hand over and sum what is due; log what cannot be done now."""
        for plan in self._plans():
            if plan.two_servers is None:
                continue
            try:
                self._complete(plan)
                for period, count in sums.waiting(self._database, plan.survey).items():
                    try:
                        self._hand_over(plan, period)
                    except _REFUSED as error:  # the helper may have enough of them all the same
                        _log.error(
                            "not all records of %r in %r are handed over now: %s",
                            *(plan.survey, period, error),
                        )
                    if count >= plan.two_servers.least:
                        while self._sum(plan, period):
                            pass
                self._complete(plan)
            except HearsayError as error:
                _log.error("records of %r are not summed now: %s", plan.survey, error)
            except Exception:
                _log.exception("records of %r are not summed now", plan.survey)

    def _hand_over(self, plan: Plan, period: str) -> None:
        """Hand the helper its shares of what waits; drop what it can never open."""
        handed = self._handed.setdefault((plan.revision, period), set())
        here = sums.ids(self._database, plan.survey, period, 1 << 30)
        handed.intersection_update(here)  # what is summed or forgotten need not be remembered
        size = max(1, min(_GROUP, _GROUP_BYTES // shares.helper_bytes(plan)))
        for some in _groups([id_ for id_ in here if id_ not in handed], size):
            codes = sums.codes(self._database, plan.survey, period, some)
            request = two_servers_pb2.TakeSharesRequest(
                survey=plan.survey,
                revision=plan.revision,
                period=period,
                shares=[
                    two_servers_pb2.Share(id=id_, sealed=code[shares.LEADER_BYTES :])
                    for id_, code in codes.items()
                ],
            )
            if not codes:
                continue
            answer = self._call("TakeShares", request, two_servers_pb2.TakeSharesResponse)
            if len(answer.results) != len(codes):
                raise InvalidInput(
                    f"the helper answered {len(codes)} shares with {len(answer.results)} results"
                )
            each = list(zip(codes, answer.results, strict=True))
            handed.update(id_ for id_, result in each if result.status in _KEPT)
            refused = [id_ for id_, result in each if result.status == collector_pb2.Result.REFUSED]
            self._drop(plan, period, refused, "refused by the helper")
            late = [result for _, result in each if result.status == collector_pb2.Result.RETRY]
            if late:
                raise InvalidInput(f"the helper does not take shares yet: {late[0].detail}")

    def _sum(self, plan: Plan, period: str) -> bool:
        """Agree on a set and claim it; return whether that was done, and there may be another."""
        two = shares.of(plan)
        here = sums.ids(self._database, plan.survey, period, MOST)
        request = two_servers_pb2.AgreeRequest(
            survey=plan.survey, period=period, ids=b"".join(here)
        )
        answer = self._call("Agree", request, two_servers_pb2.AgreeResponse)
        size = shares.ID_BYTES
        both = {answer.ids[n : n + size] for n in range(0, len(answer.ids), size)}
        handed = self._handed.get((plan.revision, period), set())
        handed.difference_update(set(here) - both)  # it lost them: hand them over again
        agreed = [id_ for id_ in here if id_ in both]
        seeds, damaged = self._seeds(plan, period, agreed)
        self._drop(plan, period, damaged, "damaged")
        if len(seeds) < two.least:
            return False
        own = sum_seeds(seeds.values(), two.layout.dim, two.bits).tobytes()
        return sums.claim(self._database, plan, period, sorted(seeds), own)

    def _seeds(
        self, plan: Plan, period: str, some: Sequence[bytes]
    ) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Open our shares; return them by id, and the ids of those that do not open."""
        private = self._keys.of(plan)[0]
        seeds: dict[bytes, bytes] = {}
        damaged = []
        for group in _groups(some, _GROUP):
            codes = sums.codes(self._database, plan.survey, period, group)
            for id_, code in codes.items():
                mine = code[: shares.LEADER_BYTES]
                try:
                    seeds[id_] = shares.opened(plan, "leader", period, id_, mine, private)
                except InvalidInput:
                    damaged.append(id_)
        return seeds, damaged

    def _complete(self, plan: Plan) -> None:
        """Ask the helper for the sums of sets that are claimed, and store what both make.

        A set that the helper cannot sum stays claimed, and holds up no other.
        """
        for one in sums.claimed(self._database, plan.survey):
            records = len(one.ids) // shares.ID_BYTES
            try:
                total = self._total(plan, one)
            except _REFUSED as error:
                _log.error(
                    "a set of %d records of %r in %r has no sum of the helper's: %s",
                    *(records, plan.survey, one.period, error),
                )
                continue
            sums.complete(self._database, plan.survey, one, total)
            self._counted.labels("summed").inc(records)
            _log.info("summed %d records of %s in %s", records, plan.survey, one.period)

    def _total(self, plan: Plan, one: sums.Claimed) -> bytes:
        """Return the sum of a set that is claimed, of the helper's shares and ours."""
        two = shares.of(plan)
        request = two_servers_pb2.SumRequest(survey=plan.survey, period=one.period, ids=one.ids)
        answer = self._call("Sum", request, two_servers_pb2.SumResponse)
        theirs = parse(answer.sum, two.layout.dim, two.bits)
        mine = parse(one.own, two.layout.dim, two.bits)
        total = join(mine.astype(dtype(two.bits)), theirs.astype(dtype(two.bits)), two.bits)
        return total.astype("<i8").tobytes()

    def _drop(self, plan: Plan, period: str, some: Sequence[bytes], why: str) -> None:
        """Drop records that can be in no sum, as if they had been forgotten."""
        for group in _groups(some, _GROUP):
            forgetting.forget(self._database, plan, period, group, self._clock(), MIXED)
        if some:
            self._counted.labels(why).inc(len(some))
            _log.warning("dropped %d records of %s in %s: %s", len(some), plan.survey, period, why)

    def _call(self, method: str, request: Message, kind: type[Answer]) -> Answer:
        return self._helper.call(f"Helper/{method}", request, kind, _TIMEOUT)


def _groups(some: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    for first in range(0, len(some), size):
        yield some[first : first + size]
