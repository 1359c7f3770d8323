"""Exports of stored rows: period by period, in an order of their own, and told in the audit log."""

import hashlib
from collections.abc import AsyncIterator
from functools import partial

from google.protobuf.json_format import MessageToDict

from hearsay.plans import period
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import questions
from hearsay_server.serving.analyses import Analyses
from hearsay_server.serving.stored_rows import Read
from hearsay_server.storage import audit
from hearsay_server.storage.selection import Selected, resolve
from hearsay_server.storage.shards import Counted
from hearsay_server.storage.store import Store
from ldp import InvalidInput

ExportedPeriod = analyst_pb2.ExportedPeriod


class Exporting:
    """Gives the stored rows of a survey, mixed within each page, in a process of their own."""

    def __init__(self, store: Store, exports: Analyses, read: Read) -> None:
        self._store = store
        self._exports = exports
        self._read = read

    async def rows(
        self, frozen: bytes, plan: Plan, request: analyst_pb2.ExportRowsRequest, caller: str
    ) -> AsyncIterator[bytes]:
        """Yield an export's messages: the plan, the rows, and what was exported of each period."""
        selected = resolve(plan, request.selection)
        if selected.is_of_groups:
            raise InvalidInput(
                "rows are exported of all devices together, without their panels and "
                "properties: leave these out of the selection"
            )
        before = _exported(plan, request.since)
        async with self._exports.process() as run:
            await self._read(lambda: self._record_export(request, caller))
            yield analyst_pb2.ExportRowsResponse(plan=frozen).SerializeToString()
            counted = await self._read(lambda: self._store.counted(plan.survey, selected))
            # A survey that was deleted and created again may lack periods it had before.
            gone = {name: Counted() for name in before if selected.has(name)}
            for name, counts in sorted((gone | counted).items()):
                known = before.get(name)
                now = ExportedPeriod(period=name, dropped=counts.dropped)
                if known and counts.dropped > known.dropped:
                    pass
                elif known and await self._digest(plan.survey, name) == known.digest:
                    now = known
                else:
                    digest = _digest()
                    pages = self._store.batches_of(plan.survey, name)
                    while counts.stored and (page := await self._read(partial(next, pages, None))):
                        for batch in page:
                            digest.update(batch.id)
                        for message in await run(questions.mixed, frozen, page, selected.levels):
                            yield message
                    now.digest = digest.digest()
                    if known:  # rows that are dropped meanwhile are in the earlier export
                        now.dropped = await self._dropped(plan.survey, name)
                if request.HasField("since"):
                    yield analyst_pb2.ExportRowsResponse(exported=now).SerializeToString()

    def _record_export(self, request: analyst_pb2.ExportRowsRequest, caller: str) -> None:
        """Write who exports which rows into the audit log, before the first of them leaves."""
        database = self._store.database
        selected = MessageToDict(request.selection, preserving_proto_field_name=True)

        def record() -> None:
            with database.beside() as connection:
                audit.record(
                    connection, "export rows", token=caller, survey=request.survey, detail=selected
                )

        database.retrying(record)

    async def _dropped(self, survey: str, name: str) -> int:
        """Return how many batches of a period the retention has dropped."""
        selected = Selected(periods=(name,))
        found: dict[str, Counted]
        found = await self._read(lambda: self._store.counted(survey, selected))
        return found.get(name, Counted()).dropped

    async def _digest(self, survey: str, period: str) -> bytes:
        """Return the digest of the ids of a period's stored batches."""
        digest = _digest()
        pages = self._store.ids(survey, period)
        while ids := await self._read(partial(next, pages, None)):
            for id_ in ids:
                digest.update(id_)
        return digest.digest()


_digest = partial(hashlib.blake2b, digest_size=16)
"""A new digest of the ids of a period's batches."""


def _exported(plan: Plan, exported: analyst_pb2.Exported) -> dict[str, ExportedPeriod]:
    """Return by name the periods exported before; raise `InvalidInput` where one is no period."""
    for each in exported.periods:
        period.start(plan.period, each.period)
    return {each.period: each for each in exported.periods}
