"""What one server sees of a training's devices in a round: why nobody comes, or too few."""

from collections import Counter
from dataclasses import dataclass, field

from hearsay.v1 import admin_pb2, trainer_pb2


@dataclass
class _Round:
    number: int
    asked: int = 0
    last_asked: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class Visits:
    """Counts of each training's newest round, in memory alone: a restart begins anew.

    Call it from one thread. It holds one entry for each training that devices asked for.
    """

    def __init__(self) -> None:
        self._rounds: dict[str, _Round] = {}

    def asked(self, training: str, number: int, now: int) -> None:
        """Count a device that asked for the newest round; `now` in seconds since 1970."""
        here = self._rounds.get(training)
        if here is None or here.number != number:
            here = self._rounds[training] = _Round(number)
        here.asked += 1
        here.last_asked = now

    def refused(self, training: str, why: trainer_pb2.Refusal) -> None:
        """Count an update that was refused; of a training that nobody asked for it counts none."""
        if (here := self._rounds.get(training)) is not None:
            here.refused[trainer_pb2.Refusal.Name(why)] += 1

    def of(self, training: str, number: int) -> admin_pb2.TrainingVisits:
        """Return what was seen in a round; zeros where no device asked for it."""
        here = self._rounds.get(training)
        if here is None or here.number != number:
            return admin_pb2.TrainingVisits()
        return admin_pb2.TrainingVisits(
            asked=here.asked, last_asked=here.last_asked, refused=here.refused
        )
