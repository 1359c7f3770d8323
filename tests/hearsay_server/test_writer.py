"""Group commit: what waits is bounded, answered, and never forgotten."""

import asyncio
import functools
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Concatenate, ParamSpec

import pytest
import stored

from hearsay.v1 import collector_pb2
from hearsay_server.ingest.intake import Limits, Reason, Refused
from hearsay_server.ingest.judge import Outcome
from hearsay_server.storage import writer
from hearsay_server.storage.store import Sent, Store
from hearsay_server.storage.writer import Overloaded, Writer

P = ParamSpec("P")
LIMITS = Limits()


class Slow:
    """A store that commits when the test lets it."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.groups: list[int] = []
        self.fails: Exception | None = None

    def add(
        self,
        sent: Sent,
        _now: datetime,
        _limits: Limits,
    ) -> list[Outcome]:
        self.free.wait(20)
        self.groups.append(len(sent))
        if self.fails:
            raise self.fails
        return [True] * len(sent)


def writing(test: Callable[Concatenate[Slow, Writer, P], Awaitable[None]]) -> Callable[P, None]:
    """Run a coroutine with a store and a writer to it, which is closed at the end."""

    @functools.wraps(test)
    def run(*given: P.args, **named: P.kwargs) -> None:
        async def all_of_it() -> None:
            store = Slow()
            feeding = Writer(store, LIMITS)  # type: ignore[arg-type]
            await test(store, feeding, *given, **named)
            await feeding.close()

        asyncio.run(all_of_it())

    whole = inspect.signature(test)
    others = list(whole.parameters.values())[2:]  # for which pytest has the values
    run.__signature__ = whole.replace(parameters=others)  # type: ignore[attr-defined]
    return run


def batches(count: int, size: int = 0) -> list[collector_pb2.Batch]:
    return [collector_pb2.Batch(id=bytes(16), revision=bytes(size)) for _ in range(count)]


@writing
async def test_what_arrives_during_a_commit_shares_the_next_one(
    store: Slow, feeding: Writer
) -> None:
    calls = [asyncio.create_task(feeding.add(batches(2))) for _ in range(50)]
    await asyncio.sleep(0.1)
    store.free.set()
    assert await asyncio.gather(*calls) == [[True, True]] * 50
    assert sum(store.groups) == 100
    assert len(store.groups) <= 3


@writing
async def test_callers_who_come_again_share_every_commit(
    store: Slow, feeding: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_LINGER", 60.0)
    store.free.set()

    async def call(number: int) -> None:
        for _ in range(10):
            await feeding.add(batches(1))
            await asyncio.sleep(0.001 * number)

    callers = [asyncio.create_task(call(number)) for number in range(8)]
    await callers[0]  # who is the first to come each time
    assert store.groups == [8] * 10
    await asyncio.gather(*callers)


@writing
async def test_callers_who_do_not_come_again_are_waited_for_a_moment(
    store: Slow, feeding: Writer
) -> None:
    gone = [asyncio.create_task(feeding.add(batches(1))) for _ in range(8)]
    await asyncio.sleep(0.05)
    stays = asyncio.create_task(feeding.add(batches(1)))
    await asyncio.sleep(0.05)
    store.free.set()
    await asyncio.gather(*gone)
    begin = time.monotonic()
    assert await asyncio.wait_for(stays, 10) == [True]
    assert time.monotonic() - begin > writer._LINGER / 2
    assert store.groups == [8, 1]


@writing
async def test_a_caller_who_is_alone_never_waits(
    store: Slow, feeding: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_LINGER", 60.0)
    store.free.set()
    for count in (1, 200, 1, 3):
        await asyncio.wait_for(feeding.add(batches(count)), 10)
    assert store.groups == [1, 200, 1, 3]


@writing
async def test_a_full_group_waits_for_nobody(
    store: Slow, feeding: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_LINGER", 60.0)
    gone = [asyncio.create_task(feeding.add(batches(1))) for _ in range(8)]
    await asyncio.sleep(0.05)
    stay = [asyncio.create_task(feeding.add(batches(256))) for _ in range(2)]
    await asyncio.sleep(0)
    store.free.set()
    await asyncio.wait_for(asyncio.gather(*gone, *stay), 10)
    assert store.groups == [8, 512]


@pytest.mark.parametrize(("count", "size"), [(256, 0), (4, 5 << 20)])
@writing
async def test_more_than_it_will_hold_is_refused_and_nothing_of_it_taken(
    store: Slow, feeding: Writer, count: int, size: int
) -> None:
    calls = []
    while True:
        calls.append(asyncio.create_task(feeding.add(batches(count, size))))
        await asyncio.sleep(0)
        if calls[-1].done():
            break
    with pytest.raises(Overloaded, match=r"batches of \d+ bytes wait already"):
        calls.pop().result()
    assert len(calls) * count <= writer._MAX_WAITING
    assert len(calls) * count * size <= writer._MAX_WAITING_BYTES
    store.free.set()
    await asyncio.gather(*calls)
    assert sum(store.groups) == len(calls) * count
    assert await feeding.add(batches(count, size)) == [True] * count  # there is room again


@writing
async def test_a_request_that_is_larger_than_all_that_may_wait_is_taken_alone(
    store: Slow, feeding: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_MAX_WAITING_BYTES", 1000)
    large = asyncio.create_task(feeding.add(batches(1, 5000)))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await feeding.add(batches(1, 5000))
    store.free.set()
    assert await large == [True]


@writing
async def test_a_failure_is_told_to_all_whom_it_concerns_and_to_nobody_else(
    store: Slow, feeding: Writer
) -> None:
    store.free.set()
    store.fails = OSError("disk full")
    answers = await asyncio.gather(
        feeding.add(batches(1)), feeding.add(batches(3)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [OSError, OSError]
    store.fails = None
    assert await feeding.add(batches(1)) == [True]


def test_what_one_request_breaks_is_not_visited_on_those_beside_it(where: Path | str) -> None:
    class Breaks(Store):
        def add(self, sent: Sent, now: datetime, limits: Limits) -> list[Outcome]:
            if any(batch.survey == "daily" for _, batch in sent):
                raise ZeroDivisionError("a fault of ours")
            return super().add(sent, now, limits)

    async def test() -> None:
        store = Breaks(where)
        stored.register(store)
        commits: list[str] = []
        feeding = Writer(
            store, LIMITS, committed=lambda seconds, error: commits.append(type(error).__name__)
        )
        batches = [stored.batch(number) for number in range(12)]
        batches[7] = stored.daily(7)
        calls = [feeding.add([batch]) for batch in batches]  # in one group
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(answers.pop(7), ZeroDivisionError)
        assert answers == [[True]] * 11
        assert sorted(commits) == ["NoneType"] * 11 + ["ZeroDivisionError"]
        assert sum(stored.remembered(store).values()) == 11
        await feeding.close()
        store.close()

    asyncio.run(test())


@writing
async def test_a_store_that_answers_nonsense_hangs_nobody(store: Slow, feeding: Writer) -> None:
    store.add = lambda sent, now, limits: [True]  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        await feeding.add(batches(3))
    assert await feeding.add(batches(1)) == [True]


@writing
async def test_a_caller_that_goes_away_leaves_its_batch_behind(
    store: Slow, feeding: Writer
) -> None:
    gone = asyncio.create_task(feeding.add(batches(1)))
    stays = asyncio.create_task(feeding.add(batches(1)))
    await asyncio.sleep(0.05)
    gone.cancel()
    store.free.set()
    assert await stays == [True]
    await feeding.close()
    assert sum(store.groups) == 2


@writing
async def test_closing_writes_what_waits(store: Slow, feeding: Writer) -> None:
    calls = [asyncio.create_task(feeding.add(batches(1))) for _ in range(10)]
    await asyncio.sleep(0.05)
    threading.Timer(0.2, store.free.set).start()
    await feeding.close()
    assert [await call for call in calls] == [[True]] * 10


def test_each_batch_of_a_group_is_stored_with_its_own_caller_and_answered() -> None:
    class Refusing(Slow):
        def add(self, sent: Sent, now: datetime, limits: Limits) -> list[Outcome]:
            given.extend((caller, batch.id) for caller, batch in sent)
            assert (now, limits) == (stored.NOW, LIMITS)
            why = Refused(Reason.OVER_QUOTA, "b has sent enough")
            return [why if caller == "b" else True for caller, _ in sent]

    given: list[tuple[str, bytes]] = []

    async def test() -> None:
        feeding = Writer(Refusing(), LIMITS, lambda: stored.NOW)  # type: ignore[arg-type]
        ids = [number.to_bytes(16, "big") for number in range(6)]
        batches = [collector_pb2.Batch(id=id_) for id_ in ids]
        calls = [feeding.add(batches[n : n + 2], caller="abc"[n // 2]) for n in (0, 2, 4)]
        outcomes = await asyncio.gather(*calls)
        await feeding.close()
        assert given == list(zip("aabbcc", ids, strict=True))
        assert [str(outcome) for two in outcomes for outcome in two] == [
            *["True"] * 2,
            *["b has sent enough"] * 2,
            *["True"] * 2,
        ]

    asyncio.run(test())


@writing
async def test_the_lag_is_how_long_the_first_of_what_waits_has_waited(
    store: Slow, feeding: Writer
) -> None:
    assert feeding.lag == 0
    begin = time.monotonic()
    first = asyncio.create_task(feeding.add(batches(1)))
    await asyncio.sleep(0.2)
    second = asyncio.create_task(feeding.add(batches(1)))
    await asyncio.sleep(0)
    assert 0.15 < feeding.lag <= time.monotonic() - begin
    store.free.set()
    await asyncio.gather(first, second)
    assert feeding.lag == 0


@writing
async def test_who_watches_hears_of_every_commit_and_why_one_failed(store: Slow, _: Writer) -> None:
    heard: list[Exception | None] = []
    store.free.set()
    feeding = Writer(store, LIMITS, committed=lambda _seconds, error: heard.append(error))
    await feeding.add([collector_pb2.Batch()])
    store.fails = OSError("the disk is full")
    with pytest.raises(OSError, match="the disk is full"):
        await feeding.add([collector_pb2.Batch()])
    await feeding.close()
    assert heard == [None, store.fails]
