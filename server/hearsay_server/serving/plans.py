"""The plans of the registered surveys, and the decoding of batches by them."""

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta

import hearsay.plan
from hearsay.plan import Plan
from hearsay.v1 import collector_pb2
from hearsay_server.clock import Clock, system
from hearsay_server.config import Config
from hearsay_server.ingest.intake import GRACE, Cohort, Reason, Refused, decode
from hearsay_server.storage.database import is_away
from hearsay_server.storage.store import Store, StoredSurvey
from ldp import Tally

_log = logging.getLogger("hearsay.server")


class Plans:
    """The plans of the registered surveys, by name: what every batch is checked against.

    Other processes may register and delete surveys too, so `find` asks the database which plan
    a survey has now. `recall` does so only where what is known here is not what is asked for.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._plans: dict[str, tuple[bytes, Plan]] = {}
        for stored in store.surveys():
            self._keep(stored)

    def find(self, survey: str) -> Plan | None:
        """Return a survey's plan, or None. May wait for the database."""
        found = self._look(survey)
        return None if found is None else found[1]

    def frozen(self, survey: str) -> bytes | None:
        """Return the bytes of a survey's plan, or None. May wait for the database."""
        found = self._look(survey)
        return None if found is None else found[0]

    def recall(self, survey: str, revision: bytes) -> Plan | None:
        """Return a survey's plan, or None; of the given revision it may have been deleted since."""
        known = self._plans.get(survey)
        if known is not None and known[1].revision == revision:
            return known[1]
        return self.find(survey)

    def _look(self, survey: str) -> tuple[bytes, Plan] | None:
        known = self._plans.get(survey)
        revision = self._store.revision(survey)
        if known is not None and known[1].revision == revision:
            return known
        stored = None if revision is None else self._store.survey(survey)
        if stored is None:
            self._plans.pop(survey, None)
            return None
        return self._keep(stored)

    def create(self, plan: bytes) -> StoredSurvey:
        """Register a plan; raise `InvalidInput` where its survey has another one."""
        parsed = hearsay.plan.parse(plan)
        stored = self._store.create_survey(parsed.survey, parsed.revision, plan)
        self._keep(stored)
        return stored

    def _keep(self, stored: StoredSurvey) -> tuple[bytes, Plan]:
        kept = self._plans[stored.survey] = (stored.plan, hearsay.plan.parse(stored.plan))
        return kept


def decoder(
    plans: Plans,
    clock: Clock = system,
    max_rows: int = Config.max_batch_rows,
    grace: timedelta = GRACE,
) -> Callable[[collector_pb2.Batch], Mapping[Cohort, Tally]]:
    """Return what turns a batch into tallies, or raises `Refused`, or why the database is away."""

    def decode_one(batch: collector_pb2.Batch) -> Mapping[Cohort, Tally]:
        if batch.rows > max_rows:
            detail = f"a batch holds at most {max_rows} rows here, got {batch.rows}"
            raise Refused(Reason.BAD_ROWS, detail)
        try:
            return decode(batch, lambda name: plans.recall(name, batch.revision), clock(), grace)
        except Refused:
            raise
        except Exception as error:
            if is_away(error):  # nothing is wrong with the batch: `Store.add` tries again, or fails
                raise
            # A fault of ours: it must neither lose the batch nor hold up those beside it.
            _log.exception("a batch could not be decoded")
            detail = "the server failed to decode it"
            raise Refused(Reason.REASON_UNSPECIFIED, detail, final=False) from error

    return decode_one
