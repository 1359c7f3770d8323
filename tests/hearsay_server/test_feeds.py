"""Those who watch one question share its poll and answer, and none of them slows another down."""

import asyncio
from collections.abc import Callable

import pytest

from hearsay_server.limits import TooMany
from hearsay_server.serving.feeds import Feeds
from ldp.errors import StorageFailed


class Watched:
    """A question whose answer is the number that a test sets; `polls` counts how often it was."""

    def __init__(self) -> None:
        self.number = 1
        self.polls = 0

    async def read(self) -> int:
        self.polls += 1
        return self.number

    async def answer(self, seen: int) -> int:
        return seen

    async def watch(self, feeds: Feeds, interval: float, seen: list[int]) -> None:
        async for answer in feeds.watch(b"question", interval, self.read, self.answer):
            seen.append(answer)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


def test_a_watcher_who_wants_few_answers_keeps_none_from_another() -> None:
    async def test() -> None:
        question, feeds = Watched(), Feeds(1)
        seldom, often, later = list[int](), list[int](), list[int]()
        patient = asyncio.create_task(question.watch(feeds, 1e9, seldom))
        await until(lambda: seldom == [1])
        eager = asyncio.create_task(question.watch(feeds, 0.01, often))
        await until(lambda: often == [1])
        question.number = 2
        await until(lambda: often == [1, 2])
        patient.cancel()
        question.number = 3
        await until(lambda: often == [1, 2, 3])
        late = asyncio.create_task(question.watch(feeds, 0.01, later))
        await until(lambda: later == [3])
        assert seldom == [1]
        feeds.end()
        await asyncio.gather(eager, late)

    asyncio.run(test())


def test_many_who_come_and_go_cause_no_more_polls() -> None:
    async def test() -> None:
        question, feeds = Watched(), Feeds(1)
        first = asyncio.create_task(question.watch(feeds, 1e9, []))
        await until(lambda: question.polls)
        for _ in range(50):
            task = asyncio.create_task(question.watch(feeds, 60.0, []))
            await asyncio.sleep(0.001)
            task.cancel()
        assert question.polls == 1
        first.cancel()
        feeds.end()

    asyncio.run(test())


def test_only_so_many_questions_are_watched_and_each_by_any_number() -> None:
    async def test() -> None:
        question, feeds = Watched(), Feeds(1)
        seen = list[int]()
        tasks = [asyncio.create_task(question.watch(feeds, 0.01, seen)) for _ in range(5)]
        await until(lambda: len(seen) == 5)
        with pytest.raises(TooMany, match="1 other questions are watched already"):
            async for _ in feeds.watch(b"another", 0.01, question.read, question.answer):
                pass
        feeds.end()
        await asyncio.gather(*tasks)

    asyncio.run(test())


def test_a_fault_ends_every_watcher_of_the_question() -> None:
    async def test() -> None:
        question, feeds = Watched(), Feeds(1)

        async def fails(_: int) -> int:
            raise StorageFailed("no process for a question can be started")

        async def watch() -> None:
            async for _ in feeds.watch(b"question", 0.01, question.read, fails):
                pass

        tasks = [asyncio.create_task(watch()) for _ in range(3)]
        ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert [type(error) for error in ended] == [StorageFailed] * 3

    asyncio.run(test())
