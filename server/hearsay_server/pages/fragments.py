"""Parts of pages that are asked for again and again, made once for all who look at them."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

_MOST = 256
"""Fragments that are kept; the one that was made first goes first."""


@dataclass(frozen=True)
class Fragment:
    """A part of a page, and a tag that tells it from others of its address."""

    html: str
    tag: str


class Fragments:
    """The fragments of a site, by key: an address with its options, and the role of the caller.

    A key must say everything that the fragment depends on: whoever has the key gets the fragment.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[str, ...], tuple[float, asyncio.Task[Fragment]]]
        self._made = OrderedDict()

    async def get(
        self, key: tuple[str, ...], seconds: float, make: Callable[[], Awaitable[str]]
    ) -> Fragment:
        """Return a fragment that was made at most so many seconds ago; make it once for all.

        An error of `make` is raised for all who wait, and is not kept.
        """
        now = time.monotonic()
        found = self._made.get(key)
        if found is None or (found[1].done() and now - found[0] >= seconds):
            task = asyncio.create_task(_made(make))
            self._made[key] = found = (now, task)
            self._made.move_to_end(key)
            while len(self._made) > _MOST:
                self._made.popitem(last=False)
        try:
            # The one who came first may leave: the others wait on.
            return await asyncio.shield(found[1])
        except Exception:
            if self._made.get(key) is found:
                del self._made[key]
            raise


async def _made(make: Callable[[], Awaitable[str]]) -> Fragment:
    html = await make()
    return Fragment(html, hashlib.sha256(html.encode()).hexdigest()[:16])
