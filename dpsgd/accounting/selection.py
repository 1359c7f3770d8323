"""The event of several private runs of which only the best is released."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dpsgd.accounting.accountant import Events
from dpsgd.accounting.events import Event, Relation, Unsampled, event_of
from dpsgd.accounting.rdp import least
from dpsgd.accounting.renyi import divergence
from ldp import InvalidInput
from ldp.core.losses import Losses


@dataclass(frozen=True)
class BestOf(Unsampled):
    """The release of the best of `mean` runs on average, whose number is geometric and secret.

    Each run releases the events of one of `runs`, which a fair die chooses, under `relation`; the
    best is any that outputs of runs name, such as a score among them. The number K of runs has
    Pr[K = k] = (1 - 1 / mean)**(k - 1) / mean, and is not released. Of runs with divergences D(a)
    of order a (the largest of `runs`), the divergence of order a is at most
    D(a) + ln(mean) / (a - 1) + 2 min over b of ((1 - 1 / b) D(b) + ln(mean) / b).
    Raises `InvalidInput` unless mean is an integer >= 1, there are runs, and their events have a
    guarantee under the relation. For `RDPAccountant` and `PLDAccountant`, which bounds by
    Rényi divergences where there is such an event.
    Source: Papernot and Steinke, "Hyperparameter tuning with Rényi differential privacy", ICLR
    2022, theorem 2 with eta = 1.
    """

    kind = "best_of"
    runs: Iterable[Events]
    relation: Relation
    mean: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.mean, bool) or not isinstance(self.mean, int) or self.mean < 1:
            raise InvalidInput(f"the mean number of runs must be an integer >= 1: {self.mean!r}")
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
        if relation is not self.relation:
            raise InvalidInput(
                f"these runs were accounted for under {self.relation.name}, not {relation.name}"
            )

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
