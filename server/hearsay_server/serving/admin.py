"""The Admin service: operators register, list, show, close and delete surveys and trainings."""

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial

import grpc

import hearsay.plans.plan
from hearsay.v1 import admin_pb2, survey_pb2
from hearsay_server.clock import Clock, system
from hearsay_server.ingest.intake import Cohort
from hearsay_server.serving import auth
from hearsay_server.serving.admin_trainings import TrainingsAdmin
from hearsay_server.serving.helping import Helping
from hearsay_server.serving.status import Ended, no_survey
from hearsay_server.serving.visits import Visits
from hearsay_server.storage import retention
from hearsay_server.storage.store import BeingDeleted, Store, StoredSurvey
from hearsay_server.storage.writer import Writer
from hearsay_server.surveys import sealing
from hearsay_server.surveys import survey as surveys
from ldp.errors import InvalidInput


class Admin(TrainingsAdmin):
    """The Admin service, for operators."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        clock: Clock = system,
        *,
        changed: Callable[[], None] = lambda: None,
        ended: Callable[[], None] = lambda: None,
        draw: Callable[[int], bytes] = os.urandom,
        visits: Visits | None = None,
        helper: Helping | None = None,
    ) -> None:
        """Serve; `changed`, `ended`, `draw` and `visits` are those of `TrainingsAdmin`, as
        `helper` is."""
        super().__init__(
            store.database,
            writer,
            clock,
            changed=changed,
            ended=ended,
            draw=draw,
            visits=visits,
            helper=helper,
        )
        self._store = store

    async def CreateSurvey(  # noqa: N802
        self, request: admin_pb2.CreateSurveyRequest, context: object
    ) -> admin_pb2.SurveyStatus:
        try:
            plan = await asyncio.to_thread(surveys.resolve, request.survey)
        except InvalidInput as error:
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        if request.survey.HasField("two_servers"):
            await asyncio.to_thread(self._check_survey_is_helped, request.survey.name)
        try:
            create = partial(self._create, plan, request.survey.page, auth.caller())
            return _status(await self._writer.run(create))
        except BeingDeleted as error:
            raise Ended(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
        except InvalidInput as error:
            raise Ended(grpc.StatusCode.ALREADY_EXISTS, str(error)) from None

    def _check_survey_is_helped(self, survey: str) -> None:
        if self._store.survey(survey) is None:
            self._check_helped(survey)

    def _create(self, plan: bytes, page: survey_pb2.Page, caller: str) -> StoredSurvey:
        made = sealing.with_keys(plan, int(self._clock().timestamp()))
        parsed = hearsay.plans.plan.parse(made.plan)
        return self._store.create_survey(
            parsed.survey, parsed.revision, made.plan, caller, page, made.privates
        )

    async def ListSurveys(  # noqa: N802
        self, request: admin_pb2.ListSurveysRequest, context: object
    ) -> admin_pb2.ListSurveysResponse:
        found = await asyncio.to_thread(self._store.surveys)
        return admin_pb2.ListSurveysResponse(surveys=map(_status, found))

    async def ShowSurvey(  # noqa: N802
        self, request: admin_pb2.ShowSurveyRequest, context: object
    ) -> admin_pb2.ShowSurveyResponse:
        found = await asyncio.to_thread(self._store.survey, request.survey)
        if found is None:
            raise no_survey(request.survey)
        reports = await asyncio.to_thread(self._store.reports, found)
        return _shown(found, reports)

    async def CloseSurvey(  # noqa: N802
        self, request: admin_pb2.CloseSurveyRequest, context: object
    ) -> admin_pb2.SurveyStatus:
        def close() -> StoredSurvey | None:
            retention.close_survey(database, request.survey, request.period, caller)
            return self._store.survey(request.survey)

        database, caller = self._store.database, auth.caller()
        try:
            stored = await self._writer.run(partial(database.retrying, close))
        except retention.NoSurvey as error:
            raise Ended(grpc.StatusCode.NOT_FOUND, str(error)) from None
        except InvalidInput as error:
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        if stored is None:  # deleted since
            raise no_survey(request.survey)
        return _status(stored)

    async def DeleteSurvey(  # noqa: N802
        self, request: admin_pb2.DeleteSurveyRequest, context: object
    ) -> admin_pb2.DeleteSurveyResponse:
        database = self._store.database
        mark = partial(retention.mark_deleted, database, request.survey, auth.caller())
        try:
            held = await self._writer.run(partial(database.retrying, mark))
        except retention.NoSurvey as error:
            raise Ended(grpc.StatusCode.NOT_FOUND, str(error)) from None
        self._store.plans.drop(request.survey)
        # If this is cut short, a sweep goes on with it.
        delete = partial(retention.delete_some, database)
        while await self._writer.run(partial(database.retrying, delete)):
            pass
        return admin_pb2.DeleteSurveyResponse(batches=held.batches, records=held.records)


def _shown(stored: StoredSurvey, reports: Mapping[Cohort, int]) -> admin_pb2.ShowSurveyResponse:
    plan = hearsay.plans.plan.parse(stored.plan)
    periods = sorted({cohort.period for cohort in reports})
    place = {period: n for n, period in enumerate(periods)}
    counts: dict[tuple[str, str, str], list[int]] = {}
    for cohort, n in reports.items():
        key = cohort.attribute, cohort.level, cohort.map
        mine = counts.setdefault(key, [0] * len(periods))
        mine[place[cohort.period]] += n  # over panels and groups
    return admin_pb2.ShowSurveyResponse(
        status=_status(stored),
        plan=stored.plan,
        periods=periods,
        page=stored.page if stored.page.public else None,
        reports=[
            admin_pb2.Reports(
                attribute=attribute,
                level=level,
                reports=counts[attribute, level, chosen],
                map=chosen,
            )
            for attribute in plan.questions
            for level in plan.levels
            for chosen in ("", *plan.maps(attribute))
            if (attribute, level, chosen) in counts
        ],
    )


def _status(stored: StoredSurvey) -> admin_pb2.SurveyStatus:
    return admin_pb2.SurveyStatus(
        survey=stored.survey,
        title=hearsay.plans.plan.parse(stored.plan).title,
        revision=stored.revision,
        batches=stored.batches,
        records=stored.records,
        closed=stored.closed,
    )
