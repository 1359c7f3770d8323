"""Counters of recorded and dropped answers, by reason, saved to the ledger now and then."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime

from hearsay.interrupts import is_from_handler
from hearsay.recording import outbox
from hearsay.storage.store import Store
from hearsay.trouble import Trouble

_log = logging.getLogger("hearsay")

LOST = "lost"
"""Reports were dropped because the ledger that they waited in is an old one, or was in memory."""

_NO_DROPS = frozenset({"recorded", "stored", "duplicate", "idle"})
"""Counters that are no drops: an idle attribute was not drawn for the record, as the survey
wants it."""

_NO_LOSS = frozenset({"invalid"})
"""Counters with a warning but no loss: a report of a random value took the answer's place."""

_MEANS = {
    "no_consent": "this person has not consented: call grant()",
    "spent": "an attribute was answered in this period already, or a cap is used up",
    "unknown": "the survey has no such attribute",
    "withheld": "the app withholds the attribute",
    "overflow": "more waited than the queue holds",
    "revoked": "this person took back the consent",
    "invalid": "an answer was outside its domain: a random value is reported in its place",
    "failed": "an error of the SDK's own",
}
"""The meaning of each reason, for the warning where no detail is given."""

OnDrop = Callable[[str, int], None]
"""Callback for drops: takes the reason, and the number of answers, reports or batches."""


class Counters:
    """The counters of one survey. The first drop of each reason is a warning of the logger
    "hearsay", which Python shows on stderr where logging was not configured."""

    def __init__(self, store: Store, survey: str, on_drop: OnDrop | None) -> None:
        self._store = store
        self._survey = survey
        self._on_drop = on_drop
        self._new: Counter[str] = Counter()  # not in the file yet
        self._kept = time.monotonic()  # when the file was up to date
        self._warned: set[str] = set()
        self._told: datetime | None = None  # since when the ledger counts whose loss was told
        self._lock = threading.RLock()  # guards the numbers
        self._keeping = threading.RLock()  # one writer at a time; taken first

    def after_fork(self) -> None:
        """Reset locks and unsaved counts in a forked child: the parent saves its counts."""
        self._lock, self._keeping = threading.RLock(), threading.RLock()
        self._new = Counter()

    def add(self, name: str, number: int = 1, detail: str = "") -> None:
        """Add `number` to a counter, and tell of a drop; `detail` must not contain an answer."""
        with self._lock:
            self._new[name] += number
        if name not in _NO_DROPS:
            self.tell(name, number, detail)

    def tell(self, name: str, number: int, detail: str = "") -> None:
        """Warn at a reason's first drop and call `on_drop`, without counting."""
        if name not in self._warned:
            self._warned.add(name)
            what = "replaces an answer" if name in _NO_LOSS else "drops answers"
            why = detail or _MEANS.get(str(name), "see client.status()")
            _log.warning("hearsay: %r %s (%s): %s", self._survey, what, str(name), why)
        if self._on_drop is not None and name not in _NO_LOSS:
            try:
                self._on_drop(name, number)
            except Exception as error:  # the app's own function
                if is_from_handler(error):
                    raise
                _log.error("on_drop raised %s", type(error).__name__)

    def keep(self, age: float = 0.0) -> None:
        """Save new counts to the ledger, unless that was done within `age` seconds; and tell of
        reports that were dropped because the ledger was lost.

        Raises `Trouble` where the ledger cannot be used.
        """
        if self._store.lost and self._told != self._store.created:
            created = self._store.created
            if lost := outbox.newly_lost(self._store, self._survey):
                self.tell(LOST, lost, self._store.lost)
            self._told = created
        if not self._new or time.monotonic() - self._kept < age:
            return
        self._kept = time.monotonic()
        with self._keeping:
            with self._lock:
                new = Counter(self._new)
            outbox.count(self._store, self._survey, new)
            with self._lock:
                self._new -= new

    def read(self) -> Mapping[str, int]:
        """Return all counts ever; only the unsaved ones where the ledger cannot be read."""
        with self._keeping:
            try:
                kept = outbox.counters(self._store, self._survey)
            except Trouble:
                kept = {}
            with self._lock:
                return dict(Counter(kept) + self._new)
