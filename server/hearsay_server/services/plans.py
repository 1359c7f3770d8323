"""The plans of the registered surveys, and the decoding of batches by them."""

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import hearsay.plan
from hearsay.plan import Plan
from hearsay.v1 import collector_pb2
from hearsay_server.config import Config
from hearsay_server.intake import Cohort, Reason, Refused, decode
from hearsay_server.services.answers import Clock
from hearsay_server.store import Store, StoredSurvey
from ldp import Tally

_log = logging.getLogger("hearsay.server")


class Plans:
    """The plans of the registered surveys, by name: what every batch is checked against."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._plans: dict[str, tuple[bytes, Plan]] = {}
        for stored in store.surveys():
            self._keep(stored)

    def find(self, survey: str) -> Plan | None:
        """Return a survey's plan, or None."""
        return self._plans[survey][1] if survey in self._plans else None

    def frozen(self, survey: str) -> bytes | None:
        """Return the bytes of a survey's plan, or None."""
        return self._plans[survey][0] if survey in self._plans else None

    def create(self, plan: bytes) -> StoredSurvey:
        """Register a plan; raise `InvalidInput` where its survey has another one."""
        parsed = hearsay.plan.parse(plan)
        stored = self._store.create_survey(parsed.survey, parsed.revision, plan)
        self._keep(stored)
        return stored

    def _keep(self, stored: StoredSurvey) -> None:
        self._plans[stored.survey] = (stored.plan, hearsay.plan.parse(stored.plan))


def decoder(
    plans: Plans,
    clock: Clock = lambda: datetime.now(UTC),
    max_rows: int = Config.max_batch_rows,
) -> Callable[[collector_pb2.Batch], Mapping[Cohort, Tally]]:
    """Return what turns a batch into tallies, or raises `Refused` and nothing else."""

    def decode_one(batch: collector_pb2.Batch) -> Mapping[Cohort, Tally]:
        if batch.rows > max_rows:
            detail = f"a batch holds at most {max_rows} rows here, got {batch.rows}"
            raise Refused(Reason.BAD_ROWS, detail)
        try:
            return decode(batch, plans.find, clock())
        except Refused:
            raise
        except Exception as error:
            # A fault of ours: it must neither lose the batch nor hold up those beside it.
            _log.exception("a batch could not be decoded")
            detail = "the server failed to decode it"
            raise Refused(Reason.REASON_UNSPECIFIED, detail, final=False) from error

    return decode_one
