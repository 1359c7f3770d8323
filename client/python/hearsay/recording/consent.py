"""Each person's consent to one survey or training: in force at once, and noted in the ledger."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from hearsay.recording import outbox
from hearsay.recording.counters import Counters
from hearsay.recording.ledger import person_key
from hearsay.storage.store import Store
from hearsay.trouble import Trouble

_log = logging.getLogger("hearsay")


@dataclass(frozen=True)
class _Change:
    """A change that the ledger does not have yet: a revocation, then, where both, a grant."""

    revoke: bool = False
    forget: bool = False  # and the server is to be asked to forget
    grant: bool = False


class Drop(Protocol):
    """Drops what waits of a person, in a transaction; returns how much was dropped."""

    def __call__(
        self, connection: sqlite3.Connection, survey: str, person: bytes, at: float, *, forget: bool
    ) -> int: ...


class Consent:
    """The consent of each person to one survey, or to one training with its own `drop`.

    A change holds for this process at once. It is noted in the ledger now or, where the file
    cannot be written, by a later `catch_up`.
    """

    def __init__(
        self,
        store: Store,
        survey: str,
        clock: Callable[[], datetime],
        counters: Counters,
        drop: Drop = outbox.drop_person,
    ) -> None:
        self._drop = drop
        self._counters = counters
        self._store = store
        self._survey = survey
        self._clock = clock
        self._due: dict[str, _Change] = {}
        self._lock = threading.RLock()

    def after_fork(self) -> None:
        """Replace the lock in a forked child, which also notes the pending changes."""
        self._lock = threading.RLock()

    def grant(self, person: str) -> None:
        """Grant a person's consent; `catch_up` notes it in the ledger.

        A revocation that is pending stays so: the reports from before it are dropped first.
        """
        with self._lock:
            self._due[person] = replace(self._due.get(person, _Change()), grant=True)

    def revoke(self, person: str, *, forget: bool) -> None:
        """Revoke a person's consent, so that sending stops; `catch_up` notes it in the ledger."""
        with self._lock:
            forget = forget or self._due.get(person, _Change()).forget
            self._due[person] = _Change(revoke=True, forget=forget)

    def is_revoked(self, person: str) -> bool:
        """Tell whether a person's revocation is pending: the ledger still says consent."""
        return self._due.get(person, _Change()).revoke

    @property
    def may_send(self) -> bool:
        """Whether no revocation is pending: until it is noted, reports of that person may wait
        among the others."""
        return not any(change.revoke for change in list(self._due.values()))

    def has(self, person: str) -> bool:
        """Tell whether a person consents; raise `Trouble` where the ledger cannot tell."""
        if self.is_revoked(person):
            return False
        return self._is_noted(person)

    def catch_up(self) -> None:
        """Note pending grants and revocations in the ledger; raise `Trouble` where that fails."""
        if not self._due:
            return
        dropped = 0
        try:
            with self._lock:
                for person, change in list(self._due.items()):
                    if change.revoke:
                        dropped += self._note_revocation(person, forget=change.forget)
                        self._store.secure()  # a log that is lost must not bring consent back
                    if change.grant:
                        dropped += self._note_grant(person)
                    if self._due.get(person) is change:
                        del self._due[person]
        finally:
            # Not under the lock: a log or an app's function may wait for something else.
            if dropped:
                self._counters.tell("revoked", dropped)

    def catch_up_within(self, seconds: float) -> None:
        """Try `catch_up` for so long, where others hold the ledger; log where that fails."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return self.catch_up()
            except Trouble as trouble:
                if time.monotonic() >= deadline:
                    return _log.error("not noted yet, but nothing is sent: %s", trouble)
            time.sleep(0.02)

    def _note_grant(self, person: str) -> int:
        """Note a grant; return how many reports from before it are dropped."""
        if self._is_noted(person):
            return 0

        def work(connection: sqlite3.Connection) -> int:
            if self._consents(connection, person):  # another process was first, and may have
                return 0  # recorded since
            key = self._key(person)
            # Reports that still wait, if a revocation was cut short, were not consented to.
            at = self._clock().timestamp()
            dropped = self._drop(connection, self._survey, key, at, forget=False)
            self._set(connection, key, granted=True)
            return dropped

        return self._store.write(work)

    def _note_revocation(self, person: str, *, forget: bool) -> int:
        """Note a revocation; return how many waiting reports are dropped."""

        def work(connection: sqlite3.Connection) -> int:
            key = self._key(person)
            self._set(connection, key, granted=False)
            at = self._clock().timestamp()
            return self._drop(connection, self._survey, key, at, forget=forget)

        return self._store.write(work)

    def _is_noted(self, person: str) -> bool:
        return self._store.read(lambda connection: self._consents(connection, person))

    def _consents(self, connection: sqlite3.Connection, person: str) -> bool:
        found = connection.execute(
            "SELECT consent FROM people WHERE survey = ? AND person = ?",
            (self._survey, self._key(person)),
        ).fetchone()
        return bool(found and found[0])

    def _key(self, person: str) -> bytes:
        return person_key(person, self._store.salt)

    def _set(self, connection: sqlite3.Connection, key: bytes, *, granted: bool) -> None:
        connection.execute(
            "INSERT INTO people (survey, person, consent) VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET consent = excluded.consent",
            (self._survey, key, granted),
        )
