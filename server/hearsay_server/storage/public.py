"""The surveys that everybody may see, as their operator declared."""

from dataclasses import dataclass

import sqlalchemy as sa

import hearsay.plans.plan
from hearsay.plans.plan import Plan
from hearsay.v1 import survey_pb2
from hearsay_server.ingest.intake import NEVER
from hearsay_server.storage.database import Database
from hearsay_server.storage.plans import PRESENT
from hearsay_server.storage.schema import surveys


@dataclass(frozen=True)
class PublicSurvey:
    """A survey with a public page: its plan, in the frozen bytes too, and what the page may do."""

    plan: Plan
    data: bytes
    page: survey_pb2.Page
    closed: bool


def public(database: Database) -> dict[str, PublicSurvey]:
    """Return the surveys whose page is public, by name in order."""
    wanted = (surveys.c.plan, surveys.c.page, surveys.c.closed_before)
    query = sa.select(*wanted).where(PRESENT, surveys.c.page.is_not(None))
    with database.reading() as connection:
        rows = connection.execute(query.order_by(surveys.c.survey)).all()
    found = {}
    for row in rows:
        page = survey_pb2.Page.FromString(row.page)
        if page.public:
            plan = hearsay.plans.plan.parse(row.plan)
            closed = row.closed_before >= NEVER
            found[plan.survey] = PublicSurvey(plan, row.plan, page, closed)
    return found
