"""Rows that a server streams, checked message by message against the plan they begin
with."""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from hearsay.checking.plans import check_selected, plan_of
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2 as wire
from ldp.errors import InvalidInput

_DIGEST = 16
"""Bytes of the digest of a period's batches."""

Check = Callable[[Any], None]


def checker(request: Message) -> Check:
    """Return the check of the messages of a stream, which is called with each in turn.

    It raises `InvalidInput` for a message that an honest server does not send there.
    """
    assert isinstance(request, wire.ExportRowsRequest)
    return _Rows(request).check


class _Streamed:
    """The plan of a stream, which the first message has, alone."""

    def __init__(self, request: wire.ExportRowsRequest) -> None:
        self._request = request
        self._selection = request.selection
        self._periods = frozenset(request.selection.periods)
        self.plan: Plan | None = None

    def begins(self, message: wire.ExportRowsResponse) -> bool:
        """Return whether a message is the first, once it is checked."""
        if self.plan is not None:
            if message.plan:
                raise InvalidInput("plan: it comes twice")
            return False
        self.plan = plan_of(message.plan, self._request.survey)
        if len(message.ListFields()) > 1:
            raise InvalidInput("the first message has more than a plan")
        return True

    def check_period(self, name: str) -> None:
        """Raise `InvalidInput` for what is no period, or none that was asked for."""
        assert self.plan is not None  # as `begins` was called
        check_selected(self.plan, name, self._selection, self._periods)

    def check_cell(self, attribute: str, level: str, chosen: str) -> None:
        """Raise `InvalidInput` for what the plan does not ask at this level and map."""
        assert self.plan is not None
        by_map = self.plan.level(level).by_map.get(attribute, {})
        if attribute not in self.plan.questions or chosen not in by_map:
            raise InvalidInput(f"the plan has no {attribute!r} by {chosen!r} at {level!r}")
        if self._selection.levels and level not in self._selection.levels:
            raise InvalidInput(f"the level {level!r} was not asked for")


class _Rows(_Streamed):
    """The rows of periods in order, each followed by what was exported if `since` is asked."""

    def __init__(self, request: wire.ExportRowsRequest) -> None:
        super().__init__(request)
        self._since = {each.period: each for each in request.since.periods}
        self._tells = request.HasField("since")
        self._period = ""
        self._over = True
        """Whether no more rows of the period may come."""

    def check(self, message: wire.ExportRowsResponse) -> None:
        if self.begins(message):
            return
        told = message.HasField("exported")
        name = message.exported.period if told else message.period
        self.check_period(name)
        if name < self._period or (name == self._period and self._over):
            raise InvalidInput(f"period: {name!r} comes after {self._period!r}")
        if name != self._period and self._tells and not self._over:
            raise InvalidInput(f"exported: nothing is told of {self._period!r}")
        self._period, self._over = name, told
        if not told:
            self._check_rows(message)
            return
        digest, before = message.exported.digest, self._since.get(name)
        dropped = before is not None and message.exported.dropped > before.dropped
        if not self._tells or len(message.ListFields()) > 1:
            raise InvalidInput("exported: it was not asked for, or has rows with it")
        if len(digest) != _DIGEST and not (dropped and not digest):
            raise InvalidInput(f"exported: a digest has {_DIGEST} bytes, got {len(digest)}")

    def _check_rows(self, message: wire.ExportRowsResponse) -> None:
        """Check what arrays are made of; `rows.decode` checks the codes themselves."""
        # Each row has a code, of a bit at least: `rows` is a number to make arrays of.
        if not 0 < message.rows <= 8 * message.ByteSize():
            raise InvalidInput(f"rows: {message.rows:,} in {message.ByteSize():,} bytes")
        for column in message.columns:
            self.check_cell(column.attribute, column.level, column.map)
