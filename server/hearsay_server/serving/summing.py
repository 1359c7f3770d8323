"""Leading two servers: hand shares over to the helper, agree on sets, and sum each once."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise

from prometheus_client import Counter

from hearsay.plans import period as periods
from hearsay.plans.plan import Plan
from hearsay.plans.two_servers import MOST
from hearsay.sealed import shares
from hearsay.v1 import collector_pb2
from hearsay_server.clock import Clock
from hearsay_server.serving.helping import (
    KEPT,
    Helping,
    Part,
    groups,
    handed_over_at_once,
    own_seed,
)
from hearsay_server.storage import forgetting, sums
from hearsay_server.storage.database import Database
from hearsay_server.storage.sealing_keys import Keys
from hearsay_server.storage.store import MIXED
from ldp import InvalidInput
from ldp.errors import HearsayError, NotReady
from ldp.two_servers.shares import sum_seeds

_log = logging.getLogger("hearsay.server")

_REFUSED = (InvalidInput, NotReady)
"""What a helper that is there answers to one request, and not to others."""


class Summing:
    """Moves records of surveys with two servers into sums.

    A process that dies at any moment leaves each record waiting, or in one set that is claimed,
    and asks the helper for that set's sum again.
    """

    def __init__(
        self,
        database: Database,
        plans: Callable[[], Sequence[Plan]],
        helper: Helping,
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
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Hand nothing more over: what the helper has not taken stays."""
        self._stopping.set()

    async def run(self, every: float) -> None:
        """Look at what waits every so many seconds, until cancelled."""
        while True:
            await asyncio.to_thread(self.once)
            await asyncio.sleep(every)

    def once(self) -> None:
        """Hand over and sum what is due; log what cannot be done now."""
        for plan in self._plans():
            if plan.two_servers is None or self._stopping.is_set():
                continue
            try:
                self._complete(plan)
                for period, count in sums.waiting(self._database, plan.survey).items():
                    self._hand_over(plan, period)
                    if count >= plan.two_servers.least and is_over(plan, period, self._clock()):
                        self._sum(plan, period)
                self._complete(plan)
            except HearsayError as error:
                _log.error("records of %r are not summed now: %s", plan.survey, error)
            except Exception:
                _log.exception("records of %r are not summed now", plan.survey)

    def _hand_over(self, plan: Plan, period: str) -> None:
        """Hand the helper its shares of what waits; log what it does not take now."""
        try:
            self._offer(plan, period)
        except _REFUSED as error:  # the helper may have enough of them all the same
            _log.error(
                "not all records of %r in %r are handed over now: %s",
                *(plan.survey, period, error),
            )

    def _offer(self, plan: Plan, period: str) -> None:
        """Offer the helper its shares of what waits; drop what it can never open."""
        handed = self._handed.setdefault((plan.revision, period), set())
        here = sums.ids(self._database, plan.survey, period, 1 << 30)
        handed.intersection_update(here)  # what is summed or forgotten need not be remembered
        part = Part(shares.splitting(plan), period)
        size = handed_over_at_once(part.by)
        for some in groups([id_ for id_ in here if id_ not in handed], size):
            codes = sums.codes(self._database, plan.survey, period, some)
            if not codes or self._stopping.is_set():
                continue
            theirs = [(id_, code[shares.LEADER_BYTES :]) for id_, code in codes.items()]
            each = self._helper.take(part, theirs)
            handed.update(id_ for id_, result in each if result.status in KEPT)
            refused = [id_ for id_, result in each if result.status == collector_pb2.Result.REFUSED]
            self._drop(plan, period, refused, "refused by the helper")
            late = [result for _, result in each if result.status == collector_pb2.Result.RETRY]
            if late:
                raise InvalidInput(f"the helper does not take shares now: {late[0].detail}")

    def _sum(self, plan: Plan, period: str) -> None:
        """Agree on what both servers have, and claim it, in as few sets as may be."""
        part = Part(shares.splitting(plan), period)
        agreed, lost = self._agreed(part)
        if lost:  # by the helper: nobody's record is left out for that
            self._handed.get((plan.revision, period), set()).difference_update(lost)
            self._hand_over(plan, period)
            agreed, _ = self._agreed(part)
        for some in in_sets(agreed, part.by.least):
            seeds, damaged = self._seeds(plan, part, some)
            self._drop(plan, period, damaged, "damaged")
            if len(seeds) >= part.by.least:  # else the next look finds other sets
                own = sum_seeds(seeds.values(), part.by.dim, part.by.bits).tobytes()
                sums.claim(self._database, plan, period, sorted(seeds), own)

    def _agreed(self, part: Part) -> tuple[list[bytes], set[bytes]]:
        """Return the ids, rising, of what waits here and at the helper, and those of what waits
        here alone."""
        here = sums.ids(self._database, part.by.name, part.period, 1 << 30)
        both = {id_ for some in groups(here, MOST) for id_ in self._helper.agree(part, some)}
        return [id_ for id_ in here if id_ in both], set(here) - both

    def _seeds(
        self, plan: Plan, part: Part, some: Sequence[bytes]
    ) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Open our shares; return them by id, and the ids of those that do not open."""
        private = self._keys.of(plan)[0]
        seeds: dict[bytes, bytes] = {}
        damaged = []
        for group in groups(some):
            codes = sums.codes(self._database, plan.survey, part.period, group)
            for id_, code in codes.items():
                seed = own_seed(part, id_, code, private)
                if seed is None:
                    damaged.append(id_)
                else:
                    seeds[id_] = seed
        return seeds, damaged

    def _complete(self, plan: Plan) -> None:
        """Ask the helper for the sums of sets that are claimed, and store what both make.

        A set that the helper cannot sum stays claimed, and holds up no other.
        """
        for one in sums.claimed(self._database, plan.survey):
            records = len(one.ids) // shares.ID_BYTES
            try:
                part = Part(shares.splitting(plan), one.period)
                total = self._helper.total(part, one.ids, one.own)
            except _REFUSED as error:
                _log.error(
                    "a set of %d records of %r in %r has no sum of the helper's: %s",
                    *(records, plan.survey, one.period, error),
                )
                continue
            sums.complete(self._database, plan.survey, one, total.astype("<i8").tobytes())
            self._counted.labels("summed").inc(records)
            _log.info("summed %d records of %s in %s", records, plan.survey, one.period)

    def _drop(self, plan: Plan, period: str, some: Sequence[bytes], why: str) -> None:
        """Drop records that can be in no sum, as if they had been forgotten."""
        for group in groups(some):
            forgetting.forget(self._database, plan, period, group, self._clock(), MIXED)
        if some:
            self._counted.labels(why).inc(len(some))
            _log.info("dropped %d records of %s in %s: %s", len(some), plan.survey, period, why)


def is_over(plan: Plan, period: str, now: datetime) -> bool:
    """Tell whether a period's records may be summed: it is over. A survey without periods has one
    that never is, and sums whatever has gathered."""
    return not plan.period or now >= periods.end(plan.period, period)


def in_sets(ids: Sequence[bytes], least: int) -> list[Sequence[bytes]]:
    """Return ids in as few sets as may be, each of `least` to `MOST`, as equal as they can be.

    Where that many cannot be divided so, as 100,000 by 60,000, full sets are made, and the others
    wait: their period may still get late records.
    """
    count = -(-len(ids) // MOST)
    if count * least <= len(ids):
        bounds = [len(ids) * n // count for n in range(count + 1)] if count else [0]
    else:
        bounds = [MOST * n for n in range(count)]
    return [ids[first:last] for first, last in pairwise(bounds)]
