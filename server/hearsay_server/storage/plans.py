"""The plans of the registered surveys, as this process remembers them."""

import time
from collections import defaultdict
from collections.abc import Iterable

import sqlalchemy as sa

import hearsay.plans.plan
from hearsay.plans.plan import Plan
from hearsay.v1 import collector_pb2
from hearsay_server.ingest.intake import Refused, failed
from hearsay_server.storage.database import Database, is_away
from hearsay_server.storage.schema import surveys

PRESENT = sa.not_(surveys.c.deleted)

_FRESH = 1.0
"""Seconds for which a plan is served without another look at the database. A plan never changes;
another process may have deleted its survey."""


class Plans:
    """The plans of the registered surveys, by name, against which every batch is checked.

    Other processes may register and delete surveys too, so `find` asks the database which plan
    a survey has now. `needed` does so only where batches have another revision than is known here.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._plans: dict[str, tuple[bytes, Plan]] = {}
        self._looked: dict[str, float] = {}  # when, on the steady clock

    def load(self) -> None:
        """Remember the plans of all surveys; raise where this version cannot read one."""
        with self._database.reading() as connection:
            for plan in connection.scalars(sa.select(surveys.c.plan).where(PRESENT)).all():
                self.keep(plan)

    def known(self) -> list[Plan]:
        """Return the plans that are remembered here."""
        return [plan for _, plan in [*self._plans.values()]]

    def keep(self, plan: bytes) -> tuple[bytes, Plan]:
        """Remember a plan that is stored."""
        parsed = hearsay.plans.plan.parse(plan)
        kept = self._plans[parsed.survey] = (plan, parsed)
        return kept

    def find(self, survey: str) -> Plan | None:
        """Return a survey's plan, or None. May wait for the database."""
        found = self._look(survey)
        return None if found is None else found[1]

    def fresh(self, survey: str) -> bytes | None:
        """Return the bytes of a plan looked up in the last second, or None. Never waits."""
        looked = self._looked.get(survey)
        if looked is None or time.monotonic() - looked >= _FRESH:
            return None
        known = self._plans.get(survey)
        return None if known is None else known[0]

    def frozen(self, survey: str) -> bytes | None:
        """Return the bytes of a survey's plan, or None. May wait for the database."""
        found = self._look(survey)
        return None if found is None else found[0]

    def drop(self, survey: str) -> None:
        """Forget the plan of a survey that was deleted."""
        self._plans.pop(survey, None)
        self._looked.pop(survey, None)

    def needed(self, batches: Iterable[collector_pb2.Batch]) -> dict[str, Plan | Refused]:
        """Return the plans of the batches' surveys, or a `Refused` where one cannot be read now.

        A plan of the revision that all its batches have may have been deleted since. Raises the
        database's error where it is away: nothing is wrong with the batches then.
        """
        revisions: defaultdict[str, set[bytes]] = defaultdict(set)
        for batch in batches:
            revisions[batch.survey].add(batch.revision)
        plans: dict[str, Plan | Refused] = {}
        for survey, sent in revisions.items():
            known = self._plans.get(survey)
            try:
                if known is not None and sent == {known[1].revision}:
                    plans[survey] = known[1]
                elif (plan := self.find(survey)) is not None:
                    plans[survey] = plan
            except Exception as error:
                if is_away(error):
                    raise
                plans[survey] = failed()
        return plans

    def _look(self, survey: str) -> tuple[bytes, Plan] | None:
        known = self._plans.get(survey)
        begin = time.monotonic()
        revision = self._stored(surveys.c.revision, survey)
        if known is None or known[1].revision != revision:
            plan = None if revision is None else self._stored(surveys.c.plan, survey)
            known = None if plan is None else self.keep(plan)
        if known is None:
            self.drop(survey)
        else:
            self._looked[survey] = begin
        return known

    def _stored(self, column: sa.Column[bytes], survey: str) -> bytes | None:
        query = sa.select(column).where(surveys.c.survey == survey, PRESENT)
        with self._database.reading() as connection:
            return connection.execute(query).scalar_one_or_none()
