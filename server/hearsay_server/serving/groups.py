"""What is read of public groups, once it is known that enough reports are in and out of them."""

from collections import Counter
from collections.abc import Sequence

from hearsay.plans.plan import Plan
from hearsay_server.answers import few, questions
from hearsay_server.answers.records import Key
from hearsay_server.serving.analyses import Run
from hearsay_server.serving.stored_rows import Page, Read, each_page
from hearsay_server.storage.packed import PackedTallies
from hearsay_server.storage.selection import Selected
from hearsay_server.storage.store import Store


async def tallies(
    store: Store, read: Read, plan: Plan, asked: Sequence[str], selected: Selected
) -> PackedTallies:
    """Return the tallies of questions; raise `NoReports` as `few.check`."""
    if selected.is_of_groups:
        found = await counts(store, read, plan, asked, selected)
        few.check(few.tables(plan, selected.by, found, selected.takes_cell))
    packed: PackedTallies = await read(lambda: store.tallies(plan.survey, asked, selected))
    return packed


async def counts(
    store: Store, read: Read, plan: Plan, asked: Sequence[str], selected: Selected
) -> few.Counts:
    """Return the reports of some questions in all panels and groups."""
    everybody = selected.of_all_groups
    return few.counts_of(await read(lambda: store.counts(plan.survey, asked, everybody)))


async def check_records(
    store: Store, read: Read, run: Run, plan: Plan, names: Sequence[str], selected: Selected
) -> None:
    """Raise `NoReports` as `few.check` for an answer from the stored records that report all of
    some questions."""
    if not selected.is_of_groups:
        return
    found = Counter[tuple[Key, few.Cell]]()

    async def count(pages: list[Page]) -> None:
        found.update(await run(questions.counted, names, selected.levels, pages))

    await each_page(store, read, plan, selected.of_all_groups, count)
    cells: dict[Key, dict[few.Cell, int]] = {}
    for (key, cell), n in found.items():
        cells.setdefault(key, {})[cell] = n
    by_place = [(few.place(chosen, day), each) for (day, chosen), each in cells.items()]
    few.check(few.tables(plan, selected.by, by_place, selected.takes_cell))
