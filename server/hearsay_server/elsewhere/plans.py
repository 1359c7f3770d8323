"""The plans that a shuffler or a helper goes by: the first, or that which its operator names."""

import asyncio
import time
from collections.abc import Callable, Mapping

from hearsay.plans.plan import Plan, parse
from hearsay.sending.transport import Calls, Unreachable
from hearsay.v1 import collector_pb2
from hearsay_server.elsewhere.own_file import OwnFile
from hearsay_server.ingest.intake import Reason, Refused
from ldp import InvalidInput

_AGAIN = 30.0
"""Seconds before the collector is asked again for a survey that it does not have."""

_TIMEOUT = 10.0

_MOST_UNKNOWN = 1000
"""Names of surveys that are remembered as unknown."""


class Plans:
    """The plans of surveys, from the file or from the collector.

    A collector that gives some devices another plan, with keys of their own, does not reach its
    goal: all records of a survey go by the one plan that is here, and others are refused.
    """

    def __init__(
        self,
        file: OwnFile,
        collector: Calls,
        pinned: Mapping[str, bytes],
        check: Callable[[Plan], None],
        owner: str,
    ) -> None:
        """Take plans from a file, or fetch them once; `pinned` has the only revisions to take, and
        `check` raises `InvalidInput` for a plan that the `owner` cannot serve."""
        self._file = file
        self._check_served = check
        self._owner = owner
        self._collector = collector
        self._pinned = pinned
        self._plans = {name: parse(data) for name, data in file.plans().items()}
        self._unknown: dict[str, tuple[float, Refused]] = {}
        self._lock = asyncio.Lock()

    def known(self) -> list[Plan]:
        """Return the plans that are here."""
        return list(self._plans.values())

    async def find(self, survey: str) -> Plan:
        """Return the plan of a survey; raise `Refused` where there is none to go by."""
        if (plan := self._plans.get(survey)) is not None:
            return plan
        async with self._lock:
            if (plan := self._plans.get(survey)) is not None:
                return plan
            at, refused = self._unknown.get(survey, (0.0, None))
            if refused is not None and time.monotonic() - at < _AGAIN:
                raise refused
            try:
                plan = await asyncio.to_thread(self._fetch, survey)
            except Refused as error:
                if len(self._unknown) >= _MOST_UNKNOWN:
                    self._unknown.clear()
                self._unknown[survey] = (time.monotonic(), error)
                raise
            self._plans[survey] = plan
            return plan

    def _fetch(self, survey: str) -> Plan:
        if self._pinned and survey not in self._pinned:
            detail = f"this {self._owner} takes no records of {survey!r}"
            raise Refused(Reason.UNKNOWN_SURVEY, detail, final=False)
        request = collector_pb2.GetPlanRequest(survey=survey)
        try:
            answer = self._collector.call(
                "Collector/GetPlan", request, collector_pb2.GetPlanResponse, _TIMEOUT
            )
        except Unreachable as error:
            detail = f"the collector cannot be asked for the plan now: {error}"
            raise Refused(Reason.UNKNOWN_SURVEY, detail, final=False) from None
        except InvalidInput:
            detail = f"the collector has no survey {survey!r}"
            raise Refused(Reason.UNKNOWN_SURVEY, detail, final=False) from None
        self._check(survey, answer.plan)
        return parse(self._file.keep_plan(survey, answer.plan))

    def _check(self, survey: str, data: bytes) -> None:
        try:
            plan = parse(data)
            self._check_served(plan)
        except InvalidInput as error:
            detail = f"{survey!r} cannot be collected through a {self._owner}: {error}"
            raise Refused(Reason.UNKNOWN_SURVEY, detail, final=False) from None
        pinned = self._pinned.get(survey, plan.revision)
        if plan.survey != survey or plan.revision != pinned:
            detail = (
                f"this {self._owner} takes revision {pinned.hex()[:12]} of {survey!r}, and the "
                f"collector has {plan.revision.hex()[:12]} of {plan.survey!r}"
            )
            raise Refused(Reason.UNKNOWN_REVISION, detail, final=False)
