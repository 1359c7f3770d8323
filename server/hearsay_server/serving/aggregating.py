"""Closing rounds at their deadlines, and making models of closed ones.

A model is made on a thread of its own: numpy lets other threads run meanwhile, and the thread of
the event loop waits for nothing. What it stores goes through the thread that writes, between the
commits of reports.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hearsay.federated import encoding
from hearsay.federated.declaration import SplitNoise, Training
from hearsay_server.clock import Clock, system
from hearsay_server.serving.helping import Helping
from hearsay_server.serving.metrics import Metrics
from hearsay_server.serving.split_rounds import SplitRounds
from hearsay_server.storage import rounds, trainings
from hearsay_server.storage.database import Database
from hearsay_server.storage.writer import Writer
from hearsay_server.trainings import aggregation
from hearsay_server.trainings.aggregation import Vector
from ldp.errors import StorageFailed

_log = logging.getLogger("hearsay.server")

_EVERY = 5.0
"""Most seconds between two looks: another process may have closed a round and died."""

_AGAIN = 60.0
"""Seconds after which a round that could not be aggregated is tried again."""


class _Stopping(Exception):
    """The server stops: the round is left as it is."""


class Rounds:
    """The rounds of all trainings of a database, as far as this process moves them on."""

    def __init__(
        self,
        database: Database,
        writer: Writer,
        metrics: Metrics,
        clock: Clock = system,
        helper: Helping | None = None,
    ) -> None:
        """Move rounds on; `helper` sums updates that are split between it and this server."""
        self._split = SplitRounds(database, helper)
        self._database = database
        self._writer = writer
        self._metrics = metrics
        self._clock = clock
        self._changed = asyncio.Event()
        self._stopping = threading.Event()
        self._thread = ThreadPoolExecutor(1, "hearsay-rounds")
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}  # of trainings that failed, on the steady clock
        self._noises = aggregation.Noises()  # used by the thread alone
        self._running: frozenset[str] = frozenset()  # at the last look
        self._to_wipe = True  # what a process before this one deleted
        metrics.trainings_failing.set_function(lambda: len(self._not_before))

    def changed(self) -> None:
        """Look at the rounds now: an update was counted, or a training created."""
        self._changed.set()

    def ended(self) -> None:
        """Wipe what a training left behind that was closed or deleted just now."""
        self._to_wipe = True
        self.changed()

    @contextlib.asynccontextmanager
    async def moving(self) -> AsyncIterator[None]:
        """Move rounds on while the context lasts."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._stopping.set()
            tasks = [task, *self._under_way.values()]
            for each in tasks:
                each.cancel()
            await asyncio.wait(tasks)
            await asyncio.to_thread(self._thread.shutdown)

    async def _run(self) -> None:
        # In Python 3.11 `wait_for` may swallow the cancellation where the event is set just then.
        while not self._stopping.is_set():
            wait = _EVERY
            try:
                wait = await self._turn()
            except Exception:
                _log.exception("the rounds of trainings could not be looked at")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait)
            self._changed.clear()

    async def _turn(self) -> float:
        """Do what is due; return the seconds until something may be."""
        now = self._clock()
        due = await asyncio.to_thread(rounds.due, self._database, now)
        self._thread.submit(self._noises.keep, due.running)
        if self._running - due.running:  # ended by another server, or by a command
            self._to_wipe = True
        self._running = due.running
        for training, number in due.to_close:
            await self._close(training, number)
        for training, number in due.to_aggregate:
            name = training.name
            if name in self._under_way or time.monotonic() < self._not_before.get(name, 0.0):
                continue
            task = asyncio.create_task(self._aggregate(training, number))
            self._under_way[name] = task
            task.add_done_callback(partial(self._done, name))
        running = {training.name for training, _ in due.to_aggregate}
        self._not_before = {n: at for n, at in self._not_before.items() if n in running}
        if self._to_wipe:
            self._to_wipe = not await self._wiped()
        if due.to_close:
            return 0.0
        until = due.next_deadline
        left = _EVERY if until is None else until - self._clock().timestamp()
        return min(max(left, 0.05), 1.0 if self._to_wipe else _EVERY)

    async def _wiped(self) -> bool:
        """Delete what is left of rounds that are over; return whether all of it is gone."""
        # The key first: what it opened may be much, and goes piece by piece.
        if not await self._writer.run(self._database.wipe):
            return False
        some = False
        while await self._writer.write(trainings.delete_some_updates):
            some = True
        return not some or await self._writer.run(self._database.wipe)

    def _done(self, name: str, _: object) -> None:
        del self._under_way[name]
        self._changed.set()

    async def _close(self, training: Training, number: int) -> None:
        became = await self._writer.write(rounds.close, training, number, self._clock())
        if became == "dropped":
            self._metrics.rounds.labels("dropped").inc()
            _log.info(
                "round %d of %r had fewer than %d updates and is dropped",
                *(number, training.name, training.min_updates),
            )
        self._to_wipe = True

    async def _aggregate(self, training: Training, number: int) -> None:
        """Make a closed round's model and store it; tell, where it fails, why."""
        name = training.name
        try:
            work = await asyncio.to_thread(rounds.work, self._database, training, number)
            if work is None:
                return
            with self._metrics.aggregation_seconds.time():
                total = None
                if isinstance(training.protection, SplitNoise):
                    # Not on the thread of models, which others need while the helper is asked.
                    total = await asyncio.to_thread(self._split.total, work, self._go_on)
                    if total is None:
                        await self._drop(training, number)
                        return
                make = partial(self._make, work, total)
                file, optimizer = await asyncio.get_running_loop().run_in_executor(
                    self._thread, make
                )
            if await self._writer.write(rounds.store, work, file, optimizer, self._clock()):
                self._metrics.rounds.labels("aggregated").inc()
                _log.info("round %d of %r made a model of %d updates", number, name, work.updates)
            self._not_before.pop(name, None)
            self._to_wipe = True
        except _Stopping:
            return
        except Exception as error:
            if not await self._is_closed(training, number):
                return  # another process was faster, and its updates are gone
            _log.exception("round %d of %r could not be aggregated", number, name)
            self._metrics.aggregation_failures.inc()
            self._not_before[name] = time.monotonic() + _AGAIN
            why = f"round {number}: {error or type(error).__name__}"
            with contextlib.suppress(Exception):  # the database may be what failed
                await self._writer.write(rounds.failed, training, why)

    async def _drop(self, training: Training, number: int) -> None:
        """Drop a closed round of which too few updates can be summed."""
        if await self._writer.write(rounds.drop, training, number, self._clock()):
            self._metrics.rounds.labels("dropped").inc()
            _log.info(
                "of round %d of %r fewer than %d updates can be summed, and it is dropped",
                *(number, training.name, training.min_updates),
            )
        self._to_wipe = True

    def _go_on(self) -> None:
        if self._stopping.is_set():
            raise _Stopping

    async def _is_closed(self, training: Training, number: int) -> bool:
        try:
            newest = await asyncio.to_thread(rounds.newest, self._database, training.name)
        except Exception:
            return True
        return newest is not None and (newest.round, newest.state) == (number, "closed")

    def _make(
        self, work: rounds.Work, total: NDArray[np.float64] | None
    ) -> tuple[bytes, bytes | None]:
        """Make the model of a closed round, on the thread of models; `total` is the sum of its
        updates where two servers made it."""
        return aggregation.next_model(
            work.training,
            work.round,
            work.file,
            self._vectors(work) if total is None else total,
            since=work.since,
            noise=self._noises.of(work.training, work.seed),
            state=work.optimizer,
        )

    def _vectors(self, work: rounds.Work) -> Iterator[Vector]:
        """Yield the updates of a round one at a time, as many as were counted."""
        found = 0
        for payload in rounds.payloads(self._database, work.training, work.round):
            self._go_on()
            found += 1
            yield encoding.decode(work.training, payload)
        if found != work.updates:
            raise StorageFailed(f"{work.updates} updates were counted, {found} are stored")
