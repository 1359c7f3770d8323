"""The event of several private runs of which only the best is released."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dpsgd.accounting.accountant import Events
from dpsgd.accounting.events import Event, Relation, Unsampled, check_integer, event_of
from dpsgd.accounting.rdp import least
from dpsgd.accounting.renyi import divergence
from ldp import InvalidInput
from ldp.core.losses import Losses


@dataclass(frozen=True)
class BestOf(Unsampled):
    """The release of the best of `mean` runs on average, whose number is geometric and secret.

    Each run releases the events of one of `runs`, which a fair die chooses, under `relation`; the
    best is any that outputs of runs name, such as a score among them. The number K of runs has
    Pr[K = k] = (1 - 1 / mean)**(k - 1) / mean, and is not released. With D(a) the largest
    divergence of order a among `runs`, that of the choice is at most
    D(a) + ln(mean) / (a - 1) + 2 min over b of ((1 - 1 / b) D(b) + ln(mean) / b).
    For `RDPAccountant`, and for `PLDAccountant` as its Rényi bound. Raises `InvalidInput` unless
    mean is an integer >= 1, there are runs, and their events have a guarantee under the relation.
    Source: Papernot and Steinke, "Hyperparameter tuning with Rényi differential privacy", ICLR
    2022, theorem 2 with eta = 1.
    """

    kind = "best_of"
    runs: Iterable[Events]
    relation: Relation
    mean: int

    def __post_init__(self) -> None:
        super().__post_init__()
        mean = check_integer("the mean number of runs", self.mean, 1)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "relation", Relation(self.relation))
        made = (
            tuple(e if isinstance(e, Event | Unsampled) else event_of(e) for e in run)
            for run in self.runs
        )
        runs = tuple(dict.fromkeys(made))
        if not runs:
            raise InvalidInput("a choice needs the events of at least one run")
        for event in (event for run in runs for event in run):
            event.check_relation(self.relation)
        object.__setattr__(self, "runs", runs)

    def check_relation(self, relation: Relation) -> None:
        relation.expect("BestOf", self.relation, why=": its runs were")

    def dominating(self) -> Losses:
        raise InvalidInput(
            "no privacy losses are known that dominate the best of several runs: use RDPAccountant "
            "or PLDAccountant"
        )

    def divergence(self, excess: float) -> float:
        return self._of_a_run(excess) + math.log(self.mean) / excess + _chosen(self)

    def to_dict(self) -> dict[str, Any]:
        runs = [[event.to_dict() for event in run] for run in self.runs]
        return super().to_dict() | {"runs": runs, "relation": self.relation.value}

    def _of_a_run(self, excess: float) -> float:
        return max(
            math.fsum(e.steps * divergence(e, self.relation, excess) for e in run)
            for run in self.runs
        )


@lru_cache(maxsize=64)
def _chosen(event: BestOf) -> float:
    """Return the part of the divergence that is the same for every order."""

    def at(excess: float) -> float:
        return (excess * event._of_a_run(excess) + math.log(event.mean)) / (1 + excess)

    return 2 * least(at)
