"""The base class of accountants: a history of releases, and its epsilon and delta."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

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
from ldp.errors import HearsayError, InvalidInput

Events = Sequence[Event | Unsampled]


class BudgetExhausted(HearsayError):
    """A release would exceed the accountant's budget: it was neither recorded nor made."""


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
        self._budget: tuple[float, float, float] | None = None  # with the excess of its order

    @property
    def history(self) -> tuple[Event | Unsampled, ...]:
        """The releases, in order; runs of equal ones are one event."""
        return tuple(self._history)

    def step(self, *, noise_multiplier: float, sampling: Sampling, steps: int = 1) -> None:
        """Record the releases of an `Event`."""
        self.record(Event(noise_multiplier, sampling, steps))

    def record(self, event: Event | Unsampled) -> None:
        """Record the releases of an event, before anything of them is seen.

        Records nothing, and raises, where the event has no guarantee under the relation or with
        this accountant (`InvalidInput`), or would exceed a budget (`BudgetExhausted`).
        """
        if not isinstance(event, Event | Unsampled):
            raise InvalidInput(f"an event of dpsgd.accounting is expected, got {event!r}")
        self._check(event)
        if event.steps == 0:
            return
        if self._budget is not None and self._affordable(event, *self._budget) < event.steps:
            epsilon, delta, _ = self._budget
            raise BudgetExhausted(
                f"the release would exceed the budget of epsilon {epsilon:g} at delta {delta:g}: "
                "it was not made"
            )
        last = self._history[-1] if self._history else None
        if last and replace(last, steps=event.steps) == event:
            self._history[-1] = replace(event, steps=last.steps + event.steps)
        else:
            self._history.append(event)

    def set_budget(self, epsilon: float, delta: float, plan: Event) -> None:
        """Refuse from now on what would exceed (epsilon, delta); see `RDPAccountant`."""
        raise InvalidInput(
            f"{self.name} cannot stop at a budget: it adds up what was fixed in advance, and a "
            "budget stops a run that changes as it goes. Take RDPAccountant"
        )

    def remaining(self, event: Event | Unsampled) -> tuple[float, int]:
        """Return the epsilon left of the budget, and how often the event still fits."""
        if self._budget is None:
            raise InvalidInput("there is no budget: give make_private one")
        left = self._budget[0] - self.get_epsilon(self._budget[1])
        return max(0.0, left), self._affordable(event, *self._budget)

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
        state = {
            "accountant": self.name,
            "relation": self.relation.value,
            "history": [event.to_dict() for event in self._history],
        }
        return state if self._budget is None else state | {"budget": list(self._budget)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the history of a checkpoint, and its budget where it has one.

        Raises `InvalidInput`, and changes nothing, where this accountant has a history, and where
        the checkpoint is another accountant's, relation's or budget's, or is malformed.
        """
        if self._history:
            raise InvalidInput(
                "this accountant has recorded releases, which the state would make forgotten: "
                "load it into a new one"
            )
        if not isinstance(state, dict) or not isinstance(history := state.get("history"), list):
            raise InvalidInput(f"the state must be a dict with a history, a list, got {state!r}")
        for key, ours in (("accountant", self.name), ("relation", self.relation.value)):
            if state.get(key) != ours:
                raise InvalidInput(f"the state's {key} is {state.get(key)!r}, this one's {ours!r}")
        budget = state.get("budget")
        events = [event_of(document) for document in history]
        for event in events:
            self._check(event)
        if budget is not None:
            known = isinstance(budget, list) and len(budget) == 3
            known = known and all(isinstance(value, float | int) and value > 0 for value in budget)
            if not known or (self._budget and list(self._budget[:2]) != budget[:2]):
                raise InvalidInput(f"the state's budget is {budget!r}, this one's {self._budget!r}")
            self._budget = tuple(budget)
        self._history = events

    def after(self, event: Event | Unsampled) -> Self:
        """Return a copy, without a budget, whose history goes on with the event."""
        other = copy.copy(self)
        other._budget, other._history = None, self._history.copy()
        other.record(event)
        return other

    def _affordable(
        self, event: Event | Unsampled, epsilon: float, delta: float, excess: float
    ) -> int:
        """Return how often the event still fits into a budget."""
        raise NotImplementedError

    def _check(self, event: Event | Unsampled) -> None:
        """Raise `InvalidInput` for an event that this accountant cannot bound."""
        event.check_relation(self.relation)

    def _pooled(self) -> list[Event | Unsampled]:
        """Return the events that depend on the data, with equal steps merged."""
        steps: dict[Event | Unsampled, int] = {}
        for event in self._history:
            if event.steps and event.sampling.rate:
                kind = replace(event, steps=1)
                if isinstance(kind, Event) and event.sampling.rate == 1:
                    kind = replace(kind, sampling=NoSampling())
                steps[kind] = steps.get(kind, 0) + event.steps
        return [replace(kind, steps=count) for kind, count in steps.items()]

    @abstractmethod
    def _epsilon(self, events: Events, delta: float) -> float: ...

    @abstractmethod
    def _delta(self, events: Events, epsilon: float) -> float: ...


def check_guarantee(accountant: Accountant) -> None:
    """Raise `InvalidInput` for what is no accountant, or one whose figures are no guarantees."""
    if not isinstance(accountant, Accountant):
        raise InvalidInput(f"an accountant of dpsgd.accounting is expected, got {accountant!r}")
    if not accountant.is_guarantee:
        raise InvalidInput(
            f"{accountant.name} only approximates, by no known amount: take RDPAccountant or "
            "PLDAccountant"
        )


def enter(accountant: Accountant, event: Event | Unsampled) -> None:
    """Record a release, which may follow from here on.

    Raises `InvalidInput` as `check_guarantee` and `Accountant.record`.
    """
    check_guarantee(accountant)
    accountant.record(event)
