"""A part of a page is made once for all who look at it."""

import asyncio

import pytest

from hearsay_server.pages.fragments import Fragments, Lately


def test_a_fragment_is_made_once_for_all_who_ask_at_once_and_kept() -> None:
    made = []

    async def make() -> str:
        await asyncio.sleep(0)
        made.append(1)
        return f"<p>{len(made)}</p>"

    async def ask() -> None:
        fragments = Fragments(Lately())
        found = await asyncio.gather(*(fragments.get(("a",), 60, make) for _ in range(100)))
        assert {each.html for each in found} == {"<p>1</p>"} and len(made) == 1
        assert (await fragments.get(("b",), 60, make)).tag != found[0].tag
        assert (await fragments.get(("a",), 0, make)).html == "<p>3</p>"

    asyncio.run(ask())


def test_an_error_is_told_to_all_who_wait_and_not_kept() -> None:
    async def fail() -> str:
        raise ValueError("no")

    async def make() -> str:
        return "yes"

    async def ask() -> None:
        lately = Lately()
        found = await asyncio.gather(
            *(lately.get(("a",), 60, fail) for _ in range(3)), return_exceptions=True
        )
        assert [type(each) for each in found] == [ValueError] * 3
        assert await lately.get(("a",), 60, make) == "yes"

    asyncio.run(ask())


def test_one_who_leaves_takes_nothing_from_the_others() -> None:
    async def ask() -> None:
        lately, goes_on = Lately(), asyncio.Event()

        async def make() -> str:
            await goes_on.wait()
            return "made"

        first = asyncio.create_task(lately.get(("a",), 60, make))
        other = asyncio.create_task(lately.get(("a",), 60, make))
        await asyncio.sleep(0)
        first.cancel()
        goes_on.set()
        assert await other == "made"
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(ask())


def test_few_fragments_are_kept() -> None:
    async def make() -> str:
        return ""

    async def ask() -> None:
        lately = Lately()
        for number in range(300):
            await lately.get((str(number),), 60, make)
        assert len(lately._made) == 256

    asyncio.run(ask())
