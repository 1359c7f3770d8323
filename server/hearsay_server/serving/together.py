"""Questions about attributes that records report together: reads pages, counts in a process.

What a page tells is counted in the question's process before the next page is read, and is small
beside the rows, but for regressions, which need the codes of every record.
"""

from collections.abc import Sequence

import grpc

from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import fits, questions
from hearsay_server.answers.records import Complete, Pairs
from hearsay_server.serving import groups
from hearsay_server.serving.analyses import Analyses
from hearsay_server.serving.status import Ended
from hearsay_server.serving.stored_rows import MOST_BYTES, Page, Read, each_page
from hearsay_server.storage.selection import resolve
from hearsay_server.storage.store import Store
from ldp import InvalidInput

_MOST_PRODUCTS = 1 << 23
"""Sums of products that one table may be from: they wait in the server's memory."""

Table = analyst_pb2.CrosstabRequest | analyst_pb2.CompareGroupsRequest


def attributes_of(question: Table) -> tuple[str, str]:
    """Return the two attributes of a question, in the order of its pair tallies."""
    if isinstance(question, analyst_pb2.CrosstabRequest):
        return question.attribute, question.other
    return question.attribute, question.by


class Together:
    """Answers questions about several attributes from the stored rows.

    Attributes that a view asks together are one question, whose tallies tell as much.
    """

    def __init__(self, store: Store, analyses: Analyses, read: Read) -> None:
        self._store = store
        self._analyses = analyses
        self._read = read

    async def tabled(self, frozen: bytes, plan: Plan, question: Table) -> bytes:
        """Answer a `Crosstab` or a `CompareGroups` in one message."""
        names = attributes_of(question)
        _check_attributes(plan, names)
        selected = resolve(plan, question.selection)
        found = Pairs({}, {})
        async with self._analyses.process() as run:
            await run(questions.check_together, frozen, question, selected.levels)
            if asked := plan.questions_of(names):
                tallies = await groups.tallies(self._store, self._read, plan, asked, selected)
                if isinstance(question, analyst_pb2.CrosstabRequest):
                    return await run(questions.crosstab_of_views, frozen, question, tallies)
                return await run(questions.groups_of_views, frozen, question, tallies)

            await groups.check_records(self._store, self._read, run, plan, names, selected)

            async def count(pages: list[Page]) -> None:
                nonlocal found
                found += await run(questions.pairs, frozen, names, selected.levels, pages)
                if found.products > _MOST_PRODUCTS:
                    raise InvalidInput(
                        "the records of these attributes are of too many combinations of levels to "
                        "be counted together: ask for some levels"
                    )

            dropped = await each_page(self._store, self._read, plan, selected, count)
            if isinstance(question, analyst_pb2.CrosstabRequest):
                return await run(questions.crosstab, frozen, question, found, dropped)
            return await run(questions.compare_groups, frozen, question, found, dropped)

    async def fit(self, frozen: bytes, plan: Plan, question: analyst_pb2.FitRequest) -> bytes:
        """Answer a `Fit` in one message."""
        names = fits.attributes_of(question)
        _check_attributes(plan, names)
        selected = resolve(plan, question.selection)
        parts: list[Complete] = []
        async with self._analyses.process() as run:
            await run(questions.check_together, frozen, question, selected.levels)
            await groups.check_records(self._store, self._read, run, plan, names, selected)
            size = 0

            async def keep(pages: list[Page]) -> None:
                nonlocal size
                found = await run(questions.complete, frozen, names, selected.levels, pages)
                size += found.bytes
                if size > MOST_BYTES:
                    raise InvalidInput(
                        f"the records of this model take more than {MOST_BYTES >> 20} MiB: ask "
                        "for fewer periods, or for fewer attributes"
                    )
                parts.append(found)

            dropped = await each_page(self._store, self._read, plan, selected, keep)
            return await run(questions.fit, frozen, question, parts, dropped)


def _check_attributes(plan: Plan, names: Sequence[str]) -> None:
    """End the call where the survey lacks one; raise `InvalidInput` for one given twice."""
    for name in names:
        if name not in plan.attributes:
            detail = (
                f"{plan.survey!r} has no attribute {name!r}; it has {', '.join(plan.attributes)}"
            )
            raise Ended(grpc.StatusCode.NOT_FOUND, detail)
    if len(set(names)) < len(names):
        raise InvalidInput(f"a question about two attributes names two, got {names[0]!r} twice")
