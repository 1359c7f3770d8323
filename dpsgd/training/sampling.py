"""Samplers that draw batches of records by the sampling that the accountant assumes.

A sampler draws logical batches, one for each step of the optimizer, with coins of the operating
system; the loader may hand one out in several physical ones, which fit in memory.
"""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from dpsgd.accounting import FixedSizeSampling, NoSampling, PoissonSampling, Relation, Sampling
from dpsgd.training.distributed import Ranks
from ldp import Coins, InvalidInput
from ldp.core.exact import ONE

Records = NDArray[np.intp]


@dataclass(frozen=True)
class BatchSampler(ABC):
    """Draw batches of about `batch` out of `dataset` records. `batch` is public."""

    dataset: int
    batch: int
    relation: ClassVar[Relation]
    """The neighboring relation under which the accountant's epsilon holds."""

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= self.dataset:
            raise InvalidInput(
                f"the batch size must be >= 1 and at most the data set's, got {self.batch}"
            )

    @property
    def steps(self) -> int:
        """The number of batches in an epoch."""
        return -(-self.dataset // self.batch)

    def parts(self, most: int) -> int:
        """Return how many parts of at most `most` records an epoch is handed out in."""
        return self.steps * -(-self.batch // most)

    @property
    @abstractmethod
    def sampling(self) -> Sampling:
        """The sampling that the accountant records for a batch that counts."""

    @abstractmethod
    def epoch(self, coins: Coins) -> Iterator[Records]:
        """Yield the records of each batch of an epoch."""

    def counts(self, step: int) -> bool:
        """Tell whether batch `step` of an epoch adds an accounting event of its own."""
        return True


@dataclass(frozen=True)
class PoissonBatches(BatchSampler):
    """Take every record with probability batch / dataset, independently, for each batch.

    Batches vary in size and may be empty. The guarantee is for one record more or less; the rate
    is rounded down to a multiple of 2**-64. Of several processes each draws from every
    `processes`-th record, from `rank` on: together, a Poisson sample of the whole data set, of
    expected size `batch`.
    """

    rank: int = 0
    processes: int = 1
    relation = Relation.ADD_REMOVE

    @property
    def sampling(self) -> Sampling:
        return PoissonSampling(self.batch / self.dataset)

    def parts(self, most: int) -> int:
        # By Bernstein's inequality an epoch has more records with probability at most 1e-9.
        expected, t = self.steps * self.batch / self.processes, math.log(1e9)
        records = expected + t / 3 + math.sqrt(2 * t * expected + t * t / 9)
        return min(self.steps * -(-self.dataset // most), self.steps + math.ceil(records / most))

    def epoch(self, coins: Coins) -> Iterator[Records]:
        threshold = ONE * self.batch // self.dataset
        share = len(range(self.rank, self.dataset, self.processes))
        for _ in range(self.steps):
            drawn = np.flatnonzero(coins.bernoulli_many(threshold, share))
            yield self.rank + self.processes * drawn


@dataclass(frozen=True)
class FixedSizeBatches(BatchSampler):
    """Take `batch` records, uniformly without replacement, afresh for each batch.

    The guarantee is for one record exchanged for any other.
    """

    relation = Relation.REPLACE_ONE

    @property
    def sampling(self) -> Sampling:
        return FixedSizeSampling(self.batch, self.dataset)

    def epoch(self, coins: Coins) -> Iterator[Records]:
        return (coins.permutation(self.dataset)[: self.batch] for _ in range(self.steps))


@dataclass(frozen=True)
class ShuffledBatches(BatchSampler):
    """Cut a random order of the records into batches, each epoch anew.

    Proved: a record is in one batch of an epoch, and an adversary may know the others in it; so an
    epoch is one Gaussian release of it, without amplification by sampling. The guarantee is for one
    record exchanged for a blank. Claiming the epsilon of Poisson batches here understates the leak
    up to four times (arXiv 2403.17673, 2411.10614).
    """

    relation = Relation.REPLACE_SPECIAL

    @property
    def sampling(self) -> Sampling:
        return NoSampling()

    def epoch(self, coins: Coins) -> Iterator[Records]:
        order = coins.permutation(self.dataset)
        return (order[i : i + self.batch] for i in range(0, self.dataset, self.batch))

    def counts(self, step: int) -> bool:
        return step == 0


SAMPLERS: dict[str, Callable[[int, int], BatchSampler]] = {
    "poisson": PoissonBatches,
    "fixed": FixedSizeBatches,
    "shuffle": ShuffledBatches,
}


@dataclass(frozen=True)
class Physical:
    """A part of a logical batch, as the loader hands it out: of size 0 as record 0.

    Models and collate functions may fail on nothing; what that record yields is dropped.
    """

    size: int
    is_first: bool
    is_last: bool
    counts: bool
    """Whether the batch adds an accounting event; in a shuffled epoch only the first does."""


_KEPT = (
    *("num_workers", "prefetch_factor", "persistent_workers", "multiprocessing_context"),
    *("collate_fn", "pin_memory", "timeout", "worker_init_fn", "generator"),
)
"""Options of a loader that its private one has, too."""


class PrivateDataLoader(DataLoader[Any]):
    """Load batches of at most `most` records that a sampler draws; `drawn` is called for each.

    `len` counts physical batches: where Poisson batches come in fewer parts than that, the last one
    of an epoch has some without records.
    """

    _is_accelerate_prepared = True
    """Accelerate's `prepare` would draw batches by itself, and leaves this loader as it is."""

    def __init__(
        self,
        loader: DataLoader[Any],
        sampler: BatchSampler,
        drawn: Callable[[Physical], None],
        *,
        most: int | None = None,
        coins: Coins | None = None,
    ) -> None:
        self._draws = _Draws(sampler, most or sampler.dataset, coins or Coins())
        self._drawn = drawn
        kept = {name: getattr(loader, name) for name in _KEPT}
        super().__init__(loader.dataset, batch_sampler=self._draws, **kept)

    def __iter__(self) -> Any:
        batches = super().__iter__()
        # Workers load ahead; a batch counts when it is handed out. The queue is this
        # epoch's own, so that one that was broken off leaves nothing behind.
        waiting = self._draws.waiting
        for batch in batches:
            if waiting is not self._draws.waiting:
                raise InvalidInput(
                    "another iterator over this loader was begun since: batches of two cannot be "
                    "told apart; for two batches in one step, draw them one after the other"
                )
            self._drawn(waiting.popleft())
            yield batch


class _Draws(Sampler[list[int]]):
    def __init__(self, sampler: BatchSampler, most: int, coins: Coins) -> None:
        self.sampler = sampler
        self.most = most
        self.coins = coins
        self.waiting: deque[Physical] = deque()

    def __len__(self) -> int:
        return self.sampler.parts(self.most)

    def __iter__(self) -> Iterator[list[int]]:
        self.waiting = deque()
        return self._epoch(self.waiting)

    def _epoch(self, waiting: deque[Physical]) -> Iterator[list[int]]:
        left = len(self)
        for step, records in enumerate(self.sampler.epoch(self.coins)):
            parts = -(-len(records) // self.most) or 1
            if step == self.sampler.steps - 1:
                parts = max(parts, left)
            left -= parts
            for i in range(parts):
                part = records[i * self.most : (i + 1) * self.most].tolist()
                counts = self.sampler.counts(step)
                waiting.append(Physical(len(part), i == 0, i == parts - 1, counts))
                yield part or [0]


def sampler_for(loader: DataLoader[Any], sampling: str, ranks: Ranks | None = None) -> BatchSampler:
    """Return the sampler that takes the place of a loader's own.

    Each of several processes has a loader of the whole data set, with the size of its own part of
    a batch. Raises `InvalidInput` for a loader whose own sampling would be lost, and so have
    another rate than its owner thinks.
    """
    if sampling not in SAMPLERS:
        raise InvalidInput(f"sampling must be one of {', '.join(SAMPLERS)}, got {sampling!r}")
    if isinstance(loader.dataset, IterableDataset):
        raise InvalidInput("records of an IterableDataset cannot be sampled: give them an index")
    if isinstance(loader, PrivateDataLoader):
        raise InvalidInput("the data loader is private already")
    if loader.batch_size is None:
        raise InvalidInput(
            "the data loader must have a batch_size, not a batch_sampler or None, and be as it was "
            "before accelerate prepared it"
        )
    own = loader.sampler
    ranks = ranks or Ranks()
    if ranks.size > 1 and sampling != "poisson":
        raise InvalidInput(f'several processes sample by "poisson", got {sampling!r}')
    if ranks.size == 1 and (isinstance(own, DistributedSampler) or Ranks.started() > 1):
        raise InvalidInput(
            "several processes were started, or there is a DistributedSampler: wrap the module in "
            "DistributedDataParallel before make_private, or each process would train apart"
        )
    plain = isinstance(own, DistributedSampler | SequentialSampler) or (
        isinstance(own, RandomSampler)
        and not own.replacement
        and own.num_samples == len(loader.dataset)  # type: ignore[arg-type]
    )
    if not plain:
        raise InvalidInput(
            f"{type(own).__name__} draws records with a rate that no accountant here knows: use "
            "shuffle=True or no sampler; batches are then drawn as `sampling` says"
        )
    dataset, batch = len(loader.dataset), loader.batch_size  # type: ignore[arg-type]
    if ranks.size == 1:
        return SAMPLERS[sampling](dataset, batch)
    ranks.total(0, dataset_size=dataset, batch_size=batch)
    return PoissonBatches(dataset, batch * ranks.size, ranks.rank, ranks.size)
