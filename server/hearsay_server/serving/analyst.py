"""The Answers service: reads tallies in threads, and answers in processes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

import hearsay.plans.plan
from hearsay.asking.answer import Note
from hearsay.asking.columns import NO_MAP, NOT_GIVEN
from hearsay.plans import period
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2, analyst_pb2_grpc
from hearsay_server.answers import changes, few, forecasts, mixing, questions
from hearsay_server.answers import pairs as paired
from hearsay_server.answers import words as worded
from hearsay_server.answers.queries import NoReports, Tallies
from hearsay_server.clock import Clock, system
from hearsay_server.serving import auth, groups
from hearsay_server.serving.analyses import Analyses, Run
from hearsay_server.serving.exporting import Exporting
from hearsay_server.serving.feeds import Feeds
from hearsay_server.serving.kept_answers import KeptAnswers, Messages, key_of
from hearsay_server.serving.status import Ended, no_survey
from hearsay_server.serving.stored_rows import MOST_BYTES, Page, each_page
from hearsay_server.serving.together import Together
from hearsay_server.storage import mixes
from hearsay_server.storage import sums as stored_sums
from hearsay_server.storage.packed import PackedTallies
from hearsay_server.storage.selection import Apart, Selected, resolve
from hearsay_server.storage.store import Store
from ldp import InvalidInput

_INTERVAL = 1.0
_LEAST_INTERVAL = 0.1
"""Seconds between two answers of `Watch`: by default, and at least."""

_NONE = PackedTallies({})

_READERS = 4
"""Threads that read tallies and rows from the database for analysts."""

_WATCHED = 64
"""Different questions that may be watched at once."""

_NUMBERS = 2_000_000
"""Numbers of one answer, at most."""

_COLUMNS = 8
"""Numbers of a row, with its labels, unless more are asked for."""

_Value = TypeVar("_Value")
_Asked = TypeVar("_Asked", bound=Message)

Question = (
    analyst_pb2.EstimateRequest
    | analyst_pb2.DistributionRequest
    | analyst_pb2.SuspicionsRequest
    | analyst_pb2.PairsRequest
    | analyst_pb2.WordsRequest
    | analyst_pb2.ChangeRequest
)
"""Questions about one selection of the reports."""

OfRows = analyst_pb2.SuspicionsRequest | analyst_pb2.PairsRequest | analyst_pb2.WordsRequest
"""Questions about one attribute that are answered from stored rows."""

By = analyst_pb2.EstimateByRequest


class Analyst(analyst_pb2_grpc.AnswersServicer):
    """The Answers service: reads in threads, computes in processes (`Analyses`)."""

    def __init__(
        self,
        store: Store,
        analyses: Analyses,
        exports: Analyses,
        watched: Analyses,
        clock: Clock = system,
    ) -> None:
        """Answer from a store.

        Exports, which last as long as their readers, run in `exports`, and answers that are
        watched, which come again and again, in `watched`: neither keeps a question waiting.
        """
        self._store = store
        self._analyses = analyses
        self._watched = watched
        self._clock = clock
        self._readers = ThreadPoolExecutor(_READERS, "hearsay-analyst")
        self._answers = KeptAnswers()
        self._feeds = Feeds(_WATCHED)
        self._together = Together(store, analyses, self._read)
        self._exports = Exporting(store, exports, self._read)

    def close(self) -> None:
        """Wait for the threads that read the store."""
        self._readers.shutdown()

    def stop_watching(self) -> None:
        """Let those who watch an estimate go: they would outlast any grace."""
        self._feeds.end()

    async def Estimate(  # noqa: N802
        self, request: analyst_pb2.EstimateRequest, context: object
    ) -> bytes:
        with _telling():
            frozen, plan = await self._plan(request, of_sums=True)
            if plan.two_servers:
                return questions.of_sums(frozen, request, await self._sums(plan, request))
            tallies = await self._tallies(plan, request)
            (message,) = await self._answer(frozen, request, tallies, questions.estimate)
            return message

    async def EstimateBy(  # noqa: N802
        self, request: analyst_pb2.EstimateByRequest, context: object
    ) -> bytes:
        question = request.question
        with _telling():
            frozen, plan = await self._plan(question)
            if request.by not in (By.LEVEL, By.PERIOD, By.MAP, By.PROPERTY):
                raise InvalidInput(f"by must be LEVEL, PERIOD, MAP or PROPERTY, got {request.by}")
            left_out: Note | None = None
            if request.by == By.PROPERTY:
                apart, left_out = await self._by_property(plan, question, request.property)
            else:
                tallies = await self._tallies(plan, question)
                apart = _grouped(plan, question.attribute, tallies, request.by)
            _check_size(plan, question, len(apart))
            by = request.property or By.By.Name(request.by).lower()
            return await self._analyses.run(
                partial(questions.by, frozen, question, apart, by, left_out)
            )

    async def Compare(  # noqa: N802
        self, request: analyst_pb2.CompareRequest, context: object
    ) -> bytes:
        with _telling():
            frozen, plan = await self._plan(request)
            first, second = [
                await self._selected(plan, request.attribute, selection, ("panel", "group"))
                for selection in (request.first, request.second)
            ]
            for cohort in first:
                if cohort in second:
                    raise InvalidInput(
                        "the two parts must have no reports in common: both have the level "
                        f"{cohort.level!r} of the period {cohort.period!r}"
                        + (f", by the map {cohort.map!r}" if cohort.map else "")
                        + (f", of the panel {cohort.panel}" if cohort.panel else "")
                        + (f", of the group {cohort.group}" if cohort.group else "")
                    )
            work = partial(questions.comparison, first=frozenset(first))
            both = PackedTallies({**first.packed, **second.packed})
            (message,) = await self._answer(frozen, request, both, work)
            return message

    async def Change(  # noqa: N802
        self, request: analyst_pb2.ChangeRequest, context: object
    ) -> bytes:
        with _telling():
            frozen, plan = await self._plan(request)
            changes.check(plan, request)
            tallies = await self._tallies(plan, request, apart=("panel",))
            now = self._clock()
            names = sorted({cohort.period for cohort in tallies})
            unfinished = [name for name in names if period.end(plan.period, name) > now]
            work = partial(questions.change, unfinished=unfinished)
            (message,) = await self._answer(frozen, request, tallies, work, also=unfinished)
            return message

    async def Forecast(  # noqa: N802
        self, request: analyst_pb2.ForecastRequest, context: object
    ) -> bytes:
        question = request.question
        with _telling():
            frozen, plan = await self._plan(question, of_sums=True)
            forecasts.check(request)
            arrived = await self._arrivals(plan, question.attribute)
            if plan.two_servers:
                found = await self._sums(plan, question)
                (message,) = questions.forecast(frozen, request, found, arrived)
                return message
            tallies = await self._tallies(plan, question)
            work = partial(questions.forecast, arrived=arrived)
            (message,) = await self._answer(frozen, request, tallies, work, also=[repr(arrived)])
            return message

    async def Watch(  # noqa: N802
        self, request: analyst_pb2.WatchRequest, context: object
    ) -> AsyncIterator[bytes]:
        question = request.question
        with _telling():
            frozen, plan = await self._plan(question)
            interval = request.interval or _INTERVAL
            if not _LEAST_INTERVAL <= interval < float("inf"):
                raise InvalidInput(
                    f"the interval must be at least {_LEAST_INTERVAL} seconds, got {interval:g}"
                )
            if not await self._tallies(plan, question, none=True):
                await self._watched.run(partial(questions.rehearse, frozen, question), begun=True)

            async def answered(tallies: PackedTallies) -> Messages:
                return await self._answer(
                    frozen, question, tallies, questions.estimate, watched=True
                )

            read = partial(self._tallies, plan, question, none=True)
            answers = self._feeds.watch(key_of(question, _NONE), interval, read, answered)
            async with contextlib.aclosing(answers):  # type: ignore[type-var]
                async for (message,) in answers:
                    yield message

    async def Distribution(  # noqa: N802
        self, request: analyst_pb2.DistributionRequest, context: object
    ) -> bytes:
        with _telling():
            frozen, plan = await self._plan(request)
            if request.other:
                if request.margins:
                    raise InvalidInput("margins weight one number: leave out the other one")
                tallies = await self._of_both(plan, request)
            else:
                tallies = await self._tallies(plan, request)
            (message,) = await self._answer(frozen, request, tallies, questions.distribution)
            return message

    async def Suspicions(  # noqa: N802
        self, request: analyst_pb2.SuspicionsRequest, context: object
    ) -> bytes:
        with _telling():
            frozen, plan = await self._plan(request)
            tallies = await self._tallies(plan, request)
            levels = list(dict.fromkeys(cohort.level for cohort in tallies))
            async with self._analyses.process() as run:
                await self._check_rows(run, plan, request)
                targets = await run(questions.targets, frozen, request, tallies)
                count = partial(questions.supports, frozen, request.attribute, levels, targets)
                found = await self._counted(plan, request.selection, partial(run, count))
                return await run(questions.suspicions, frozen, request.attribute, targets, found)

    async def Pairs(  # noqa: N802
        self, request: analyst_pb2.PairsRequest, context: object
    ) -> bytes:
        with _telling():
            frozen, plan = await self._plan(request)
            paired.domain_of(plan, request.attribute)
            tallies = await self._tallies(plan, request)
            levels = list(dict.fromkeys(cohort.level for cohort in tallies))
            async with self._analyses.process() as run:
                await self._check_rows(run, plan, request)
                count = partial(questions.set_pair_counts, frozen, request.attribute, levels)
                found = await self._counted(plan, request.selection, partial(run, count))
                return await run(questions.set_pairs, frozen, request, tallies, found)

    async def Words(  # noqa: N802
        self, request: analyst_pb2.WordsRequest, context: object
    ) -> bytes:
        with _telling():
            frozen, plan = await self._plan(request)
            selected = resolve(plan, request.selection, request.attribute)
            parts: list[Mapping[str, bytes]] = []
            size = dropped = 0
            async with self._analyses.process() as run:
                await run(questions.check_words, frozen, request)
                tallies = await self._tallies(plan, request)

                async def keep(pages: list[Page]) -> None:
                    nonlocal size
                    codes = await run(
                        questions.word_codes, frozen, request.attribute, selected, pages
                    )
                    size += sum(map(len, codes.values()))
                    if size > MOST_BYTES:
                        raise InvalidInput(
                            f"these reports take more than {MOST_BYTES >> 20} MiB: ask for fewer "
                            "periods"
                        )
                    parts.append(codes)

                if not worded.from_tallies(plan, request.attribute):
                    await self._check_rows(run, plan, request)
                    dropped = await each_page(self._store, self._read, plan, selected, keep)
                return await run(questions.words, frozen, request, tallies, parts, dropped)

    async def Crosstab(  # noqa: N802
        self, request: analyst_pb2.CrosstabRequest, context: object
    ) -> bytes:
        with _telling():
            frozen, plan = await self._frozen(request.survey)
            return await self._together.tabled(frozen, plan, request)

    async def CompareGroups(  # noqa: N802
        self, request: analyst_pb2.CompareGroupsRequest, context: object
    ) -> bytes:
        with _telling():
            frozen, plan = await self._frozen(request.survey)
            return await self._together.tabled(frozen, plan, request)

    async def Fit(self, request: analyst_pb2.FitRequest, context: object) -> bytes:  # noqa: N802
        with _telling():
            frozen, plan = await self._frozen(request.survey)
            return await self._together.fit(frozen, plan, request)

    async def Mixing(  # noqa: N802
        self, request: analyst_pb2.MixingRequest, context: object
    ) -> bytes:
        with _telling():
            frozen, plan = await self._frozen(request.survey)
            selected = resolve(plan, request.selection)
            if selected.is_of_groups:
                raise InvalidInput("mixing is of levels and periods: leave out where and panels")
            mixing.check(plan, request)
            found = await self._read(
                lambda: list(mixes.read(self._store.database, plan.survey, selected))
            )
            if not found:
                raise NoReports("no records have come from a shuffler yet")
            return await self._analyses.run(partial(questions.of_mixes, frozen, request, found))

    async def ExportRows(  # noqa: N802
        self, request: analyst_pb2.ExportRowsRequest, context: object
    ) -> AsyncIterator[bytes]:
        with _telling():
            frozen, plan = await self._frozen(request.survey)
            messages = self._exports.rows(frozen, plan, request, auth.caller())
            async with contextlib.aclosing(messages):  # type: ignore[type-var]
                async for message in messages:
                    yield message

    async def _counted(
        self,
        plan: Plan,
        selection: analyst_pb2.Selection,
        count: Callable[[list[Page]], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any]:
        """Return what is counted by level in all selected rows, page by page."""
        pages = self._store.batches(plan.survey, resolve(plan, selection))
        found = await count([])
        while page := await self._read(lambda: next(pages, None)):
            for name, seen in (await count([page])).items():
                found[name] = found[name] + seen if name in found else seen
        return found

    async def _check_rows(self, run: Run, plan: Plan, request: OfRows) -> None:
        """Raise `NoReports` where the rows of some groups that the retention left are too few."""
        selected = resolve(plan, request.selection)
        for name in plan.questions_of(plan.parts(request.attribute)):
            await groups.check_records(self._store, self._read, run, plan, [name], selected)

    async def _read(self, read: Callable[[], _Value]) -> _Value:
        return await asyncio.get_running_loop().run_in_executor(self._readers, read)

    async def _frozen(self, survey: str, *, of_sums: bool = False) -> tuple[bytes, Plan]:
        """Return a plan; unless the question is one `of_sums`, raise `InvalidInput` for a survey of
        which nothing but sums is known."""
        frozen = await self._read(lambda: self._store.plans.frozen(survey))
        if frozen is None:
            raise no_survey(survey)
        plan = hearsay.plans.plan.parse(frozen)
        if plan.two_servers and not of_sums:
            raise InvalidInput(
                f"the records of {survey!r} are summed by two servers, which tell shares and means "
                "of its attributes alone, over all periods or those that you choose"
            )
        return frozen, plan

    async def _sums(
        self, plan: Plan, request: analyst_pb2.EstimateRequest
    ) -> Sequence[stored_sums.Sum]:
        selected = resolve(plan, request.selection, request.attribute)
        database = self._store.database
        return await self._read(lambda: stored_sums.read(database, plan.survey, selected.has))

    async def _arrivals(self, plan: Plan, attribute: str) -> forecasts.Arrivals:
        stored = await self._read(lambda: self._store.survey(plan.survey))
        if stored is None:  # deleted since
            raise no_survey(plan.survey)
        reports = await self._read(lambda: self._store.reports(stored))
        return forecasts.arrivals(plan, attribute, reports, stored.closed, self._clock())

    async def _plan(
        self, question: Question | analyst_pb2.CompareRequest, *, of_sums: bool = False
    ) -> tuple[bytes, Plan]:
        frozen, plan = await self._frozen(question.survey, of_sums=of_sums)
        try:
            plan.asked(question.attribute)
        except InvalidInput as error:
            raise Ended(grpc.StatusCode.NOT_FOUND, str(error)) from None
        return frozen, plan

    async def _of_both(self, plan: Plan, request: analyst_pb2.DistributionRequest) -> PackedTallies:
        """Return the tallies of the views that ask two attributes together."""
        asked = plan.questions_of([request.attribute, request.other])
        if not asked:
            raise InvalidInput(
                f"no view asks {request.attribute!r} and {request.other!r} together: there is no "
                "report that tells of both"
            )
        return await self._enough(plan, asked, resolve(plan, request.selection))

    async def _tallies(
        self,
        plan: Plan,
        question: Question,
        *,
        none: bool = False,
        apart: Sequence[Apart] = (),
    ) -> PackedTallies:
        """Return the tallies asked for; raise `NoReports` where there are none, or too few of the
        panels and groups asked for, unless `none`.

        `apart` is as of `resolve`; groups are apart where margins weight them.
        """
        could = analyst_pb2.EstimateRequest | analyst_pb2.DistributionRequest
        if isinstance(question, could) and question.margins:
            apart = (*apart, "group")
        try:
            tallies = await self._selected(plan, question.attribute, question.selection, apart)
        except NoReports:
            if not none:
                raise
            tallies = _NONE
        if not tallies and not none:
            raise NoReports(f"there are no such reports of {question.attribute!r} yet")
        return tallies

    async def _by_property(
        self, plan: Plan, question: analyst_pb2.EstimateRequest, name: str
    ) -> tuple[dict[str, PackedTallies], Note | None]:
        """Return the tallies of each value of a property, in its order, and then of none given, and
        a note of the values that are left out because too few reports have them."""
        try:
            values = plan.properties.named(name).values
        except InvalidInput as error:
            raise InvalidInput(
                f"answers are by level, period, map or a property, and {error}"
            ) from None
        apart = await self._selected(plan, question.attribute, question.selection, ("group",))
        if not apart:
            raise NoReports(f"there are no such reports of {question.attribute!r} yet")

        def value_of(group: str) -> str:
            return plan.properties.values_of(group)[name]

        each = apart.grouped(lambda cohort: value_of(cohort.group))
        summed = not question.margins  # which weight the groups of each value
        found = {
            value or NOT_GIVEN: each[value].summed(panels=True, groups=summed)
            for value in (*values, "")
            if value in each
        }
        asked = plan.questions_of(plan.parts(question.attribute))
        selected = resolve(plan, question.selection, question.attribute)
        counts = await groups.counts(self._store, self._read, plan, asked, selected)
        by = tuple(dict.fromkeys((*selected.by, name)))

        def of(value: str) -> list[few.Table]:
            def takes(cell: few.Cell) -> bool:
                return selected.takes_cell(cell) and value_of(cell[1]) == value

            return few.tables(plan, by, counts, takes)

        kept, left_out = few.without_small(
            {value or NOT_GIVEN: of(value) for value in (*values, "") if value in each}
        )
        return {value: found[value] for value in kept}, left_out

    async def _selected(
        self,
        plan: Plan,
        attribute: str,
        selection: analyst_pb2.Selection,
        apart: Sequence[Apart] = (),
    ) -> PackedTallies:
        asked = plan.questions_of(plan.parts(attribute))
        return await self._enough(plan, asked, resolve(plan, selection, attribute, apart))

    async def _enough(self, plan: Plan, asked: Sequence[str], selected: Selected) -> PackedTallies:
        """Return the tallies of questions; raise `NoReports` where groups have too few reports, or
        leave too few."""
        return await groups.tallies(self._store, self._read, plan, asked, selected)

    async def _answer(
        self,
        frozen: bytes,
        question: _Asked,
        tallies: PackedTallies,
        work: Callable[[bytes, _Asked, Tallies], Messages],
        *,
        watched: bool = False,
        also: Sequence[str] = (),
    ) -> Messages:
        """Return the answer that is kept for these tallies, or compute it.

        `also` are words that the answer depends on besides its question and tallies.
        """
        key = await self._read(lambda: key_of(question, tallies, also))
        known = self._answers.get(key)
        if known is not None:
            return known
        computed = partial(work, frozen, question, tallies)
        analyses = self._watched if watched else self._analyses
        answer = await analyses.run(computed, begun=watched)
        self._answers.keep(key, answer)
        return answer


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    """End the call with the status of an error that the caller can mend."""
    try:
        yield
    except NoReports as error:
        raise Ended(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
    except InvalidInput as error:
        raise Ended(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None


def _check_size(plan: Plan, question: analyst_pb2.EstimateRequest, groups: int) -> None:
    """Raise `InvalidInput` where an answer by group would have more than `_NUMBERS` numbers."""
    domain = plan.asked(question.attribute).domain
    rows = len(domain.labels)
    if question.sizes:
        rows = len(domain.sizes) + 1
    elif question.values:
        rows = len(set(question.values))
    elif question.top:
        rows = min(question.top, rows)
    rows += len(question.sums)
    columns = _COLUMNS + 3  # who rated, or the pooled estimate and its interval
    columns += bool(question.consistency or question.HasField("recover"))
    columns += 2 * (question.HasField("forged") + bool(question.margins))
    if groups * rows * columns > _NUMBERS:
        raise InvalidInput(
            f"an answer has at most {_NUMBERS:,} numbers, and {groups:,} groups of {rows:,} rows "
            "would have more: select periods or levels, or ask for the top rows"
        )


def _grouped(
    plan: Plan, attribute: str, tallies: PackedTallies, by: By.By
) -> dict[str, PackedTallies]:
    """Return the tallies of each level, in the plan's order, of each map, in the names' order and
    then of no map, or of each period, in time's."""
    if by == By.LEVEL:
        levels = tallies.grouped(lambda cohort: cohort.level)
        return {name: levels[name] for name in plan.levels if name in levels}
    if by == By.MAP:
        maps = tallies.grouped(lambda cohort: cohort.map)
        names = (*plan.maps(attribute), "")
        return {name or NO_MAP: maps[name] for name in names if name in maps}
    return dict(sorted(tallies.grouped(lambda cohort: cohort.period).items()))
