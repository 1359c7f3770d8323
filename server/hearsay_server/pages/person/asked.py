"""The public surveys as the site remembers them for a moment, whoever asks how often."""

import asyncio
import time
from collections.abc import Mapping

from hearsay_server.storage.database import Database
from hearsay_server.storage.public import PublicSurvey, public

_FRESH = 2.0
"""Seconds for which the surveys are remembered: a page that was closed is open for as long."""


class Asked:
    """The public surveys, read again after `_FRESH` seconds and once for all who wait.

    A name that is not among them costs no look into the database, and takes as long as any other:
    nobody learns by asking which surveys there are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._read: tuple[float, asyncio.Task[Mapping[str, PublicSurvey]]] | None = None

    async def all(self) -> Mapping[str, PublicSurvey]:
        """Return the public surveys by name."""
        now = time.monotonic()
        read = self._read
        if read is None or (read[1].done() and now - read[0] >= _FRESH):
            task = asyncio.create_task(asyncio.to_thread(public, self._database))
            self._read = read = (now, task)
        try:
            return await asyncio.shield(read[1])
        except Exception:
            if self._read is read:
                self._read = None
            raise
