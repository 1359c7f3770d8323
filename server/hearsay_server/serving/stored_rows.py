"""Stored rows, read page by page in threads, for questions that are counted in a process."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hearsay.plans.plan import Plan
from hearsay.v1 import collector_pb2
from hearsay_server.storage.selection import Selected
from hearsay_server.storage.store import Store

Page = Sequence[collector_pb2.Batch]
Read = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function that reads the store in a thread."""

MOST_BYTES = 256 << 20
"""Bytes of codes that one question may be from: they wait in the server's memory."""

_TOGETHER = 1 << 16
"""Rows of pages that are counted by one call of the process."""


async def each_page(
    store: Store,
    read: Read,
    plan: Plan,
    selected: Selected,
    work: Callable[[list[Page]], Awaitable[None]],
) -> int:
    """Give all selected pages to `work`; return how many batches the retention had dropped."""
    counted = await read(lambda: store.counted(plan.survey, selected))
    pages = store.batches(plan.survey, selected)
    held: list[Page] = []
    rows = 0
    while page := await read(lambda: next(pages, None)):
        held.append(page)
        rows += sum(batch.rows for batch in page)
        if rows >= _TOGETHER:
            await work(held)
            held, rows = [], 0
    if held:
        await work(held)
    return sum(counts.dropped for counts in counted.values())
