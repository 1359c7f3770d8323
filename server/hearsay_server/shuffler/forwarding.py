"""Forwarding: the records of a period leave together, in random order, once there are enough."""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from prometheus_client import Counter

from hearsay.plans import period
from hearsay.plans.plan import Plan
from hearsay.sealed.records import sealing_of
from hearsay.sending.transport import Calls, Unreachable
from hearsay.v1 import collector_pb2, shuffler_pb2
from hearsay_server.clock import Clock
from hearsay_server.elsewhere.plans import Plans
from hearsay_server.ingest.intake import GRACE
from hearsay_server.shuffler.pools import Pool, Pools
from hearsay_server.shuffler.service import dropped_at
from ldp.errors import HearsayError, InvalidInput

_log = logging.getLogger("hearsay.shuffler")

GROUP = 256
"""Records of one call to the collector."""

_CALLS = 4
"""Calls under way at once: the collector opens the records of one while another one waits for its
disk, and for ours."""

_TIMEOUT = 60.0
_DAY = 86_400

_REMEMBERED = timedelta(days=1)
"""How long after its last record the hashes of a period's records are kept: what was judged in time
may still wait for the disk."""

_FINAL = (
    collector_pb2.Result.STORED,
    collector_pb2.Result.DUPLICATE,
    collector_pb2.Result.REFUSED,
)


class Forwarding:
    """Moves pools to the collector.

    What the collector has acknowledged is deleted here, and counts there once.
    """

    def __init__(
        self, pools: Pools, plans: Plans[Plan], collector: Calls, clock: Clock, moved: Counter
    ) -> None:
        """Forward to `collector`; `moved` counts records by what became of them."""
        self._pools = pools
        self._plans = plans
        self._collector = collector
        self._clock = clock
        self._moved = moved
        self._mixed = random.SystemRandom()
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Begin no other call: what the collector has not acknowledged stays."""
        self._stopping.set()

    async def run(self, every: float) -> None:
        """Look at the pools every so many seconds, until cancelled."""
        await asyncio.to_thread(self.check)
        while True:
            try:
                await asyncio.to_thread(self.once)
            except HearsayError as error:
                _log.error("what waits is not forwarded now: %s", error)
            except Exception:
                _log.exception("what waits is not forwarded now")
            await asyncio.sleep(every)

    def check(self) -> None:
        """Log that the collector does not take our token, where it does not: the first records may
        leave a period later."""
        request = shuffler_pb2.SubmitSealedRequest()
        try:
            self._hand(request)
        except InvalidInput:  # no records: the token was looked at before
            pass
        except HearsayError as error:
            _log.error("nothing can be forwarded to the collector now: %s", error)

    def _hand(self, request: shuffler_pb2.SubmitSealedRequest) -> shuffler_pb2.SubmitSealedResponse:
        kind = shuffler_pb2.SubmitSealedResponse
        return self._collector.call("SealedCollector/SubmitSealed", request, kind, _TIMEOUT)

    def once(self) -> None:
        """Forward and drop what is due. Raises the last error of the pools that could not be
        forwarded, after all were tried: `Unreachable` where the collector is not there."""
        plans = {plan.survey: plan for plan in self._plans.known()}
        now = self._clock()
        for pool in self._pools.all():
            plan = plans[pool.survey]
            least = sealing_of(plan).least
            last = dropped_at(plan.period, pool.period) if plan.period else None
            if pool.gathering >= least and _is_over(plan, pool, now):
                self._pools.begin(pool.survey, pool.period, least)
            elif pool.gathering and last is not None and now >= last:
                self._drop(pool, f"fewer than {least} came", least)
            if last is not None and now >= last + _REMEMBERED:
                self._pools.forget(pool.survey, pool.period)
            if pool.leaving and last is not None and now >= last + GRACE:
                self._drop(pool, "the collector has closed their period", None)
        failed: Exception | None = None
        for pool in self._pools.all():
            try:
                if pool.leaving and not self._stopping.is_set():
                    self._forward(pool)
            except Exception as error:  # which may be of one pool's records alone
                failed = error
        if failed is not None:
            raise failed

    def _drop(self, pool: Pool, why: str, least: int | None) -> None:
        """Drop records that gather, if fewer than `least`; without it, those that are leaving."""
        dropped = self._pools.drop(pool.survey, pool.period, least)
        if dropped:
            self._moved.labels("dropped").inc(dropped)
            # Few people are nobody's fault; a collector that was away for 60 days is somebody's.
            level = logging.WARNING if least is None else logging.INFO
            where = (pool.survey, pool.period)
            _log.log(level, "dropped %d records of %s in %s: %s", dropped, *where, why)

    def _forward(self, pool: Pool) -> None:
        for mix, hashes in self._pools.leaving(pool.survey, pool.period).items():
            self._mixed.shuffle(hashes)
            groups = [hashes[first : first + GROUP] for first in range(0, len(hashes), GROUP)]
            failed = threading.Event()

            def hand_over(
                group: Sequence[bytes], mix: bytes = mix, failed: threading.Event = failed
            ) -> int:
                if failed.is_set() or self._stopping.is_set():
                    return len(group)
                try:
                    return self._hand_over(pool, mix, group)
                except BaseException:
                    failed.set()  # whoever asks to be left alone gets no other call
                    raise

            begin = time.monotonic()
            with ThreadPoolExecutor(_CALLS, "forwarding") as threads:
                later = sum(threads.map(hand_over, groups))
            _log.info(
                "forwarded %d records of %s in %s in %.1f s; %d are to come again",
                *(len(hashes) - later, pool.survey, pool.period, time.monotonic() - begin, later),
            )

    def _hand_over(self, pool: Pool, mix: bytes, hashes: Sequence[bytes]) -> int:
        """Hand a group over; return how many of it the collector wants to have later."""
        some = self._pools.read(pool.survey, pool.period, hashes)
        request = shuffler_pb2.SubmitSealedRequest(
            records=map(shuffler_pb2.SealedRecord.FromString, some), mix=mix
        )
        answer = self._hand(request)
        if len(answer.results) != len(hashes):
            raise Unreachable(
                f"the collector answered {len(hashes)} records with {len(answer.results)} results"
            )
        done = [h for h, r in zip(hashes, answer.results, strict=True) if r.status in _FINAL]
        if done:
            self._pools.forwarded(pool.survey, pool.period, done)
        refused = sum(each.status == collector_pb2.Result.REFUSED for each in answer.results)
        self._moved.labels("refused").inc(refused)
        self._moved.labels("forwarded").inc(len(done) - refused)
        return len(hashes) - len(done)


def _is_over(plan: Plan, pool: Pool, now: datetime) -> bool:
    """Tell whether a pool's period is over; without periods, the day of its first record."""
    if plan.period:
        return now >= period.end(plan.period, pool.period)
    return int(now.timestamp()) // _DAY > pool.day
