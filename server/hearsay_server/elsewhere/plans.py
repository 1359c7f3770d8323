"""What a shuffler or a helper goes by: the first plan, or that which its operator names."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from hearsay.federated.parsing import parse as parse_training
from hearsay.plans.plan import parse
from hearsay.sending.transport import Calls, Unreachable
from hearsay.v1 import collector_pb2, trainer_pb2
from hearsay_server.elsewhere.own_file import OwnFile, What
from hearsay_server.ingest.intake import Reason, Refused
from ldp import InvalidInput

_AGAIN = 30.0
"""Seconds before the collector is asked again for a survey that it does not have."""

_TIMEOUT = 10.0

_MOST_UNKNOWN = 1000
"""Names of surveys that are remembered as unknown."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Source(Generic[_T]):
    """How what is declared is fetched from the collector, and read."""

    what: What
    fetch: Callable[[Calls, str], bytes]
    parse: Callable[[bytes], _T]
    known_as: Callable[[_T], tuple[str, bytes]]
    """Its name and revision."""


def _plan(collector: Calls, survey: str) -> bytes:
    request = collector_pb2.GetPlanRequest(survey=survey)
    kind = collector_pb2.GetPlanResponse
    return collector.call("Collector/GetPlan", request, kind, _TIMEOUT).plan


def _training(collector: Calls, training: str) -> bytes:
    request = trainer_pb2.GetTrainingRequest(training=training)
    kind = trainer_pb2.GetTrainingResponse
    return collector.call("Trainer/GetTraining", request, kind, _TIMEOUT).training


SURVEYS = Source("survey", _plan, parse, lambda plan: (plan.survey, plan.revision))
TRAININGS = Source(
    "training", _training, parse_training, lambda training: (training.name, training.revision)
)


class Plans(Generic[_T]):
    """The plans of surveys, or the trainings, from the file or from the collector.

    A collector that gives some devices another plan, with keys of their own, does not reach its
    goal: all records of a survey go by the one plan that is here, and others are refused.
    """

    def __init__(
        self,
        source: Source[_T],
        file: OwnFile,
        collector: Calls,
        pinned: Mapping[str, bytes],
        check: Callable[[_T], None],
        owner: str,
    ) -> None:
        """Take plans from a file, or fetch them once; `pinned` has the only revisions to take, and
        `check` raises `InvalidInput` for a plan that the `owner` cannot serve.

        Raises `InvalidInput` where the file has another revision than `pinned`, which was taken
        before the operator named one.
        """
        self._source = source
        self._file = file
        self._check_served = check
        self._owner = owner
        self._collector = collector
        self._pinned = pinned
        self._known = {n: source.parse(data) for n, data in file.declared(source.what).items()}
        for name, known in self._known.items():
            revision = source.known_as(known)[1]
            if pinned.get(name, revision) != revision:
                raise InvalidInput(
                    f"the first {source.what} {name!r} that was taken here has revision "
                    f"{revision.hex()}, and --revisions names {pinned[name].hex()}: with another "
                    f"revision the {owner} needs another folder"
                )
        self._unknown: dict[str, tuple[float, Refused]] = {}
        self._lock = asyncio.Lock()

    def known(self) -> list[_T]:
        """Return the plans that are here."""
        return list(self._known.values())

    def kept(self, name: str) -> _T | None:
        """Return what is here by a name, without asking the collector; None where nothing is."""
        return self._known.get(name)

    async def find(self, name: str) -> _T:
        """Return a survey's plan, or a training; raise `Refused` where there is none to go by."""
        if self._pinned and name not in self._pinned:
            detail = f"this {self._owner} takes no records of {name!r}"
            raise Refused(Reason.UNKNOWN_SURVEY, detail, final=False)
        if (plan := self._known.get(name)) is not None:
            return plan
        async with self._lock:
            if (plan := self._known.get(name)) is not None:
                return plan
            at, refused = self._unknown.get(name, (0.0, None))
            if refused is not None and time.monotonic() - at < _AGAIN:
                raise refused
            try:
                plan = await asyncio.to_thread(self._fetch, name)
            except Refused as error:
                if len(self._unknown) >= _MOST_UNKNOWN:
                    self._unknown.clear()
                self._unknown[name] = (time.monotonic(), error)
                raise
            self._known[name] = plan
            return plan

    def _fetch(self, name: str) -> _T:
        source = self._source
        try:
            data = source.fetch(self._collector, name)
        except Unreachable as error:
            detail = f"the collector cannot be asked for the {source.what} now: {error}"
            raise Refused(Reason.UNKNOWN_SURVEY, detail, final=False) from None
        except InvalidInput:
            detail = f"the collector has no {source.what} {name!r}"
            raise Refused(Reason.UNKNOWN_SURVEY, detail, final=False) from None
        self._check(name, data)
        return source.parse(self._file.keep(source.what, name, data))

    def _check(self, name: str, data: bytes) -> None:
        try:
            plan = self._source.parse(data)
            self._check_served(plan)
        except InvalidInput as error:
            detail = f"{name!r} cannot be collected through a {self._owner}: {error}"
            raise Refused(Reason.UNKNOWN_SURVEY, detail, final=False) from None
        found, revision = self._source.known_as(plan)
        pinned = self._pinned.get(name, revision)
        if found != name or revision != pinned:
            detail = (
                f"this {self._owner} takes revision {pinned.hex()[:12]} of {name!r}, and the "
                f"collector has {revision.hex()[:12]} of {found!r}"
            )
            raise Refused(Reason.UNKNOWN_REVISION, detail, final=False)
