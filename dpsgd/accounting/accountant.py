"""The base class of accountants: a history of releases, and its epsilon and delta."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from dpsgd.accounting.events import (
    Event,
    NoSampling,
    Relation,
    Sampling,
    Unsampled,
    check_delta,
    check_epsilon,
    event_of,
)
from ldp import InvalidInput

Events = Sequence[Event | Unsampled]


class Accountant(ABC):
    """Keep a history of releases and bound its epsilon and delta under one relation.

    Subclasses state their bounds; `is_guarantee` is False where the answer only approximates.
    Raises `InvalidInput` unless `relation` is a `Relation`.
    """

    name: ClassVar[str]
    is_guarantee: ClassVar[bool] = True

    def __init__(self, relation: Relation) -> None:
        if not isinstance(relation, Relation):
            raise InvalidInput(f"relation must be a Relation, got {relation!r}")
        self.relation = relation
        self._history: list[Event | Unsampled] = []

    @property
    def history(self) -> tuple[Event | Unsampled, ...]:
        """The releases, in order; runs of equal ones are one event."""
        return tuple(self._history)

    def step(self, *, noise_multiplier: float, sampling: Sampling, steps: int = 1) -> None:
        """Record `steps` releases of a clipped sum with Gaussian noise.

        `noise_multiplier` is the noise's standard deviation over max_grad_norm. Raises
        `InvalidInput`, and records nothing, for a bad number and for a sampling that has no
        guarantee under the relation or with this accountant.
        """
        self.record(Event(noise_multiplier, sampling, steps))

    def record(self, event: Event | Unsampled) -> None:
        """Record the releases of an event: `Pure`, `Laplace`, `Channel`, or an `Event` of steps.

        Call it before anything of the release is seen. Raises `InvalidInput`, and records
        nothing, for an event without a guarantee under the relation or with this accountant.
        """
        if not isinstance(event, Event | Unsampled):
            raise InvalidInput(f"an event of dpsgd.accounting is expected, got {event!r}")
        self._check(event)
        if event.steps == 0:
            return
        last = self._history[-1] if self._history else None
        if last and replace(last, steps=event.steps) == event:
            self._history[-1] = replace(event, steps=last.steps + event.steps)
        else:
            self._history.append(event)

    def get_epsilon(self, delta: float) -> float:
        """Return an epsilon that the history keeps at `delta`; exactly 0 for an empty one.

        Infinite where this accountant has no bound. Raises `InvalidInput` unless 0 < delta < 1.
        """
        check_delta(delta)
        events = self._pooled()
        return max(0.0, self._epsilon(events, delta)) if events else 0.0

    def get_delta(self, epsilon: float) -> float:
        """Return a delta that the history keeps at `epsilon`; exactly 0 for an empty one.

        Raises `InvalidInput` unless epsilon is finite and >= 0.
        """
        check_epsilon(epsilon)
        events = self._pooled()
        return min(1.0, max(0.0, self._delta(events, epsilon))) if events else 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return the history as JSON values, for a checkpoint."""
        return {
            "accountant": self.name,
            "relation": self.relation.value,
            "history": [event.to_dict() for event in self._history],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the history by the one of a checkpoint.

        Raises `InvalidInput`, and changes nothing, where the checkpoint is another accountant's
        or relation's, or is malformed.
        """
        if not isinstance(state, dict):
            raise InvalidInput(f"the state must be a dict, got {state!r}")
        for key, ours in (("accountant", self.name), ("relation", self.relation.value)):
            theirs = state.get(key)
            if theirs != ours:
                raise InvalidInput(f"the state's {key} is {theirs!r}, this one's {ours!r}")
        history = state.get("history")
        if not isinstance(history, list):
            raise InvalidInput(f"the state's history must be a list, got {history!r}")
        events = [event_of(document) for document in history]
        for event in events:
            self._check(event)
        self._history = events

    def _check(self, event: Event | Unsampled) -> None:
        """Raise `InvalidInput` for an event that this accountant cannot bound."""
        event.check_relation(self.relation)

    def _pooled(self) -> list[Event | Unsampled]:
        """Return the events that depend on the data, with equal steps merged."""
        steps: dict[Event | Unsampled, int] = {}
        for event in self._history:
            if not event.silent:
                kind = replace(event, steps=1)
                if isinstance(kind, Event) and event.sampling.rate == 1:
                    # A batch that always holds every record is no sampling.
                    kind = replace(kind, sampling=NoSampling())
                steps[kind] = steps.get(kind, 0) + event.steps
        return [replace(kind, steps=count) for kind, count in steps.items()]

    @abstractmethod
    def _epsilon(self, events: Events, delta: float) -> float: ...

    @abstractmethod
    def _delta(self, events: Events, epsilon: float) -> float: ...


def check_guarantee(accountant: Accountant) -> None:
    """Raise `InvalidInput` for an accountant whose figures are no guarantees."""
    if not accountant.is_guarantee:
        raise InvalidInput(
            f"{accountant.name} only approximates, by no known amount: take RDPAccountant or "
            "PLDAccountant"
        )
