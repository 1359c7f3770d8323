"""What a server counted in each minute of the last day, kept in its memory alone.

The counts are those of one process since it started: another server of the same database keeps
its own. They are sums over all callers, as the metrics that they are taken from.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from hearsay_server.serving.metrics import Metrics

KEPT = 24 * 60
"""Minutes that are kept."""

_MINUTE = 60


@dataclass(frozen=True)
class Sample:
    """Totals since the process started, at a moment in seconds since 1970."""

    at: float
    rows: int
    """Records that were stored."""
    commits: tuple[float, ...]
    """Commits that took at most as long as each of the bounds of `Minutes.bounds`."""


class Minutes:
    """The totals at the end of each minute of the last day."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.time) -> None:
        self._metrics = metrics
        self._clock = clock
        self.bounds: tuple[float, ...] = ()
        """Upper bounds of a commit's seconds, ascending; the last one is infinite."""
        self.began = self.now()
        self._samples: deque[Sample] = deque([self.began], KEPT + 1)

    @contextlib.asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        """Take the totals at the end of each minute, while the context lasts."""
        task = asyncio.create_task(self._count())
        try:
            yield
        finally:
            task.cancel()

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(_MINUTE - time.time() % _MINUTE)
            self._samples.append(self.now())

    def samples(self) -> Sequence[Sample]:
        """Return the totals from a day ago on, those of this moment last."""
        return [*self._samples, self.now()]

    def now(self) -> Sample:
        """Return the totals of this moment."""
        found = {
            float(sample.labels["le"]): sample.value
            for sample in next(iter(self._metrics.commit.collect())).samples
            if sample.name.endswith("_bucket")
        }
        self.bounds = tuple(sorted(found))
        rows = next(iter(self._metrics.rows.collect())).samples[0].value
        commits = tuple(found[bound] for bound in self.bounds)
        return Sample(self._clock(), int(rows), commits)
