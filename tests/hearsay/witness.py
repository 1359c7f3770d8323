"""Surveys in which every event is measured by itself, for devices that are killed and forked.

An event is one person's answer in one period. In "once" and "sampled" it has a category of its
own, and at this epsilon a code is its category (but for a chance of 1e-10): a count of 2 is an
event that was randomised or counted twice, one of 0 an event that was lost. "sampled" asks every
event of two attributes, of which a record draws one, over several days. In "memoised" a person
has a category of their own and a code is nearly uniform over all categories: where a day's counts
are not those of every other day, somebody drew another memo, or was counted twice or not at all.
"""

import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearsay import Client, Delivery, create_ledger
from hearsay_server.storage.store import Store

if TYPE_CHECKING:
    from support import Server  # not in the path of the processes that are killed

FIRST_DAY = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(20)
LEASE = timedelta(minutes=1)
"""By when a process that was killed has no batch to itself any more."""


@dataclass(frozen=True)
class Oracle:
    """So many events of one kind of survey: e is of person e % persons on day e // persons."""

    kind: str
    events: int

    @property
    def persons(self) -> int:
        return self.events if self.kind == "once" else self.events // 4

    @property
    def attributes(self) -> tuple[str, ...]:
        return ("which", "again") if self.kind == "sampled" else ("which",)

    @property
    def toml(self) -> str:
        memoised = self.kind == "memoised"
        lines = ['name = "oracle"', f"levels = {{ open = {0.1 if memoised else 32.0} }}"]
        lines += [] if self.kind == "once" else ['period = "P1D"']
        lines += ['budget = "sample"'] if self.kind == "sampled" else []
        for name in self.attributes:
            lines += ["[[attributes]]", f'name = "{name}"', 'mechanism = "krr"']
            lines += ["memo = 1"] if memoised else []
            values = [str(number) for number in range(self.events)]
            lines += ["[attributes.categorical]", f"values = {values}"]
        return "\n".join(lines)

    def prepare(self, server: "Server", file: Path) -> None:
        """Make the survey, and a ledger that has its plan and consent."""
        server.create(self.toml)
        create_ledger(file)
        with self.client(server.target, file, Clock(), consent=True) as client:
            assert client.wait_ready()

    def client(self, address: str, file: str | Path, clock: "Clock", **choices: Any) -> Client:
        if self.kind == "memoised":
            choices["may_tell_changes"] = ["which"]
        return Client(
            address, "oracle", level="open", epsilon=64.0, ledger=file, clock=clock, **choices
        )

    def record(self, client: Client, clock: "Clock", event: int) -> None:
        """Grant a person's consent, and record their answer."""
        day, number = divmod(event, self.persons)
        clock.day = day
        answer = number if self.kind == "memoised" else event
        person = client.person(str(number), level="open")
        person.grant()
        person.record(**dict.fromkeys(self.attributes, answer))

    def counts(self, server: "Server") -> list[list[int]]:
        """Return how often each category was counted, by day, by a server that is down."""
        store = Store(server.folder)
        days: dict[str, Counter[int]] = {}
        for name in self.attributes:
            for cohort, tally in store.tallies("oracle", name).items():
                days.setdefault(cohort.period, Counter()).update(
                    dict(enumerate(tally.counts.tolist()))
                )
        store.close()
        return [[counts[v] for v in range(self.events)] for _, counts in sorted(days.items())]

    def check_under_way(self, counts: list[list[int]], answers: int) -> None:
        """Check that no event is counted twice, and none that the ledger does not know of."""
        assert sum(map(sum, counts)) <= answers
        for day in counts:
            assert sum(day) <= self.persons
            assert self.kind == "memoised" or set(day) <= {0, 1}

    def check_all(self, counts: list[list[int]]) -> None:
        """Check that every event is counted once."""
        assert len(counts) == self.events // self.persons
        for number, day in enumerate(counts):
            if self.kind == "memoised":
                assert sum(day) == self.persons
                assert day == counts[0]
            else:
                assert day == [int(e // self.persons == number) for e in range(self.events)]


class Clock:
    """A clock of `FIRST_DAY` plus so many days, that goes on from there."""

    def __init__(self, ahead: timedelta = timedelta(0)) -> None:
        self.day = 0
        self._begin = time.monotonic()
        self._ahead = ahead

    def __call__(self) -> datetime:
        passed = timedelta(seconds=time.monotonic() - self._begin)
        return FIRST_DAY + timedelta(days=self.day) + passed + self._ahead


FAST = Delivery(batch_rows=16, batch_age=0.005, first_wait=0.01, longest_wait=0.05)
