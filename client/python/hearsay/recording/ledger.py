"""Accounts of people in a store: spend, memo and report in one transaction."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b

from hearsay.choices import Caps
from hearsay.plans import period
from hearsay.plans.kinds import Value
from hearsay.recording import outbox
from hearsay.recording.account import AHEAD, Account
from hearsay.recording.randomize import randomize
from hearsay.recording.splitting import split
from hearsay.recording.terms import Terms
from hearsay.storage.store import Store
from hearsay.trouble import Reason, Trouble
from hearsay.v1 import collector_pb2
from ldp import Coins, InvalidInput


@dataclass(frozen=True)
class Recorded:
    """The outcome of each answer of one `record`, by attribute name.

    `taken` are queued; `dropped` maps the others to the reason: "idle", "spent", "withheld",
    "unknown", or one of `hearsay.Reason` that kept the client from taking any. `invalid` are the
    names in `taken` whose answer was outside the domain: a random value was reported in its
    place, so that no report tells it. True where anything was taken.
    """

    taken: tuple[str, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)
    invalid: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.taken)


@dataclass(frozen=True)
class Spending:
    """The epsilon spent on one attribute, and the epsilon that its caps leave.

    `epsilon` is the cost of one report, or for a memoised attribute of each new memo; `reports`
    how often it was spent; `life` the sum ever spent, which the caps count; `left` the epsilon
    that the lowest cap for life still allows (None: no cap). `answered` tells whether this
    period's report was made. `composed` is a smaller figure for the same reports, for events of
    a probability above one in a million: together they are (`composed`, 1e-6)-LDP, if the times
    and levels of reports do not depend on the codes of earlier ones. It is `life` where nothing
    less is known, as of memos and of reports by an earlier version of the SDK.

    A record that is split between two servers counts with its level's epsilon for each attribute,
    in `life` and in what the caps leave. `split` is the part of `life` that such records spent, and
    `delta` the sum of their deltas: together they are (`split`, `delta`)-DP, of sums, against
    either server, if the other one is honest (docs/two-servers.md). `composed` is of the other
    reports alone, which hold against everybody: 0 where there are none.

    A report of a view counts for each attribute in it, with all of its epsilon, so that the sum
    over attributes may be more than was spent; `epsilon` is then the most that one record spends
    on the attribute, in all views.

    `maps` are the maps that reports were made by so far, "" standing for none, where the attribute
    has maps: of several reports only the values that all of these maps protect stay protected.
    `protected` are those values, as the maps were when the reports were made: a later revision may
    have a map of the same name with other values.
    """

    attribute: str
    epsilon: float
    reports: int
    life: float
    left: float | None
    answered: bool
    composed: float
    split: float = 0.0
    delta: float = 0.0
    maps: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()


@dataclass(frozen=True)
class Moment:
    """A moment: by the device's clock, and by the server's in Unix time (None: not known)."""

    now: datetime
    server_time: float | None


class Ledger:
    """The privacy accounts in a store. The epsilons of one person's reports add up, over
    attributes, periods and surveys (sequential composition), in exact arithmetic."""

    def __init__(self, store: Store, survey: str) -> None:
        self._store = store
        self._survey = survey

    def record(
        self,
        person: str,
        terms: Terms,
        values: Mapping[str, Value | None],
        *,
        moment: Moment,
        caps: Caps,
        limits: tuple[int, int],
        coins: Coins,
    ) -> tuple[list[str], dict[str, str], tuple[int, int, int]]:
        """Randomise the answers that the account and caps allow, and queue them as one report.

        `values` are as mechanisms take them; None stands for an answer outside the domain. `caps`
        are the app's. `limits` are the reports and bytes that may wait; the oldest are dropped
        beyond them. Returns the names that were taken, the reasons why others were not, and how
        many reports wait now, how many bytes, and how many were dropped (0 where nothing was
        added). All of it is one transaction: either the epsilon is spent, the memo kept and the
        report queued, or none of it.

        Guarantee: whether and in which form a report is queued depends on the plan and on the
        calls, never on the values: where there is no value, or no epsilon left for its memo, a
        value drawn uniformly from the domain is reported in its place, and an absent one where a
        record is split between two servers.

        Raises `Trouble`, with nothing changed, where no answer may be taken now.
        """

        def work(
            connection: sqlite3.Connection,
        ) -> tuple[list[str], dict[str, str], tuple[int, int, int]]:
            key = self.key(person)
            account, all_caps = self._account(connection, key, terms, caps)
            label = account.enter(terms, moment.now, moment.server_time, coins)
            self._check_vouched(terms, label, all_caps)
            report = collector_pb2.Batch(
                survey=self._survey,
                revision=terms.plan.revision,
                period=label,
                rows=1,
                panel=account.panel_of(terms.plan),
                properties=terms.properties,
            )
            if terms.plan.two_servers:
                taken, dropped = split(report, values, terms, account, all_caps, coins)
            else:
                where = connection, self._store.salt, key
                taken, dropped = randomize(report, values, terms, account, all_caps, where, coins)
            connection.execute(
                "INSERT INTO accounts (person, account) VALUES (?, ?)"
                " ON CONFLICT DO UPDATE SET account = excluded.account",
                (key, account.dump()),
            )
            waiting = 0, 0, 0
            if taken:
                waiting = outbox.add(
                    connection,
                    self._survey,
                    key,
                    report.SerializeToString(),
                    moment.now.timestamp(),
                    limits,
                )
            return taken, dropped, waiting

        return self._store.write(work)

    def check(self, person: str, terms: Terms, *, moment: Moment, caps: Caps) -> datetime | None:
        """Raise `Trouble` where `record` would, without writing; return the time from which the
        pace of a cap allows answers, as `Account.resumes` does."""

        def work(connection: sqlite3.Connection) -> datetime | None:
            account, all_caps = self._account(connection, self.key(person), terms, caps)
            label, _ = account.check(terms, moment.now, moment.server_time)
            self._check_vouched(terms, label, all_caps)
            return account.resumes(terms, all_caps, moment.now)

        return self._store.read(work)

    def spendings(self, person: str, terms: Terms, caps: Caps, now: datetime) -> list[Spending]:
        """Return the epsilon spent and left of each attribute, in the plan's order."""
        account, own = self._store.read(lambda connection: self._stored(connection, person))
        current, reported = account.current
        answered = set(reported) if current == period.label(terms.plan.period, now) else set()
        asked = {name: account.questions(name) for name in terms.plan.attributes}
        return [
            Spending(
                attribute=name,
                epsilon=terms.cost(name) if name in terms.levels else terms.epsilon_of(name),
                reports=sum(
                    times for each in asked[name] for times in account.life.get(each, {}).values()
                ),
                life=sum(
                    float.fromhex(epsilon) * times
                    for each in asked[name]
                    for epsilon, times in account.life.get(each, {}).items()
                ),
                left=account.left(name, (caps, *own)),
                answered=not answered.isdisjoint(asked[name]),
                composed=account.composed(asked[name]),
                split=account.split(asked[name]).epsilon,
                delta=account.split(asked[name]).delta,
                maps=tuple(account.maps.get(name, ())),
                protected=account.protected(name, attribute.domain),
            )
            for name, attribute in terms.plan.attributes.items()
        ]

    def set_own_caps(self, person: str, caps: Caps) -> None:
        """Store a person's caps: `life`, `until` and `rho` for the whole ledger, the others for
        this survey."""
        own = caps.as_dict()
        life = {name: own.pop(name) for name in ("life", "until", "rho") if name in own}
        key = self.key(person)

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO people (survey, person, caps) VALUES (?, ?, ?)"
                " ON CONFLICT DO UPDATE SET caps = excluded.caps",
                (self._survey, key, json.dumps(own)),
            )
            connection.execute(
                "INSERT INTO accounts (person, caps) VALUES (?, ?)"
                " ON CONFLICT DO UPDATE SET caps = excluded.caps",
                (key, json.dumps(life)),
            )

        self._store.write(work)

    def key(self, person: str) -> bytes:
        """Return the key of a person in the file; the name "" is the device's own user."""
        return person_key(person, self._store.salt)

    def _stored(
        self, connection: sqlite3.Connection, person: str
    ) -> tuple[Account, tuple[Caps, ...]]:
        _, account, caps = look(connection, self._survey, self.key(person))
        return Account(account, self._survey), caps

    def _account(
        self, connection: sqlite3.Connection, key: bytes, terms: Terms, caps: Caps
    ) -> tuple[Account, tuple[Caps, ...]]:
        """Return an account and the caps in force; raise `Trouble` where no answer may be taken."""
        consent, stored, own = look(connection, self._survey, key)
        if not consent:
            raise Trouble(Reason.NO_CONSENT)
        try:
            for each in own:  # the person may have set them elsewhere since
                terms.check_caps(each)
        except InvalidInput as error:
            raise Trouble(Reason.PLAN_REFUSED, str(error)) from None
        return Account(stored, self._survey), (caps, *own)

    def _check_vouched(self, terms: Terms, label: str, caps: Sequence[Caps]) -> None:
        """Raise `Trouble` where an earlier, lost ledger may have spent in this period already."""
        if terms.count_for_life or any(each.count_for_life for each in caps):
            check_for_life(self._store)
        created = self._store.created
        if created is None:
            return
        why = _why(self._store, created)
        if not self._store.is_confirmed:
            raise Trouble(
                Reason.NEW_LEDGER,
                f"{why}, by a clock that the server has not confirmed yet; if there never was "
                "another one, remove it and make it with create_ledger()",
            )
        # By a clock that was ahead, the earlier ledger may have entered this period, too.
        if period.start(terms.plan.period, label) <= created + timedelta(seconds=AHEAD):
            raise Trouble(
                Reason.NEW_LEDGER, f"{why}: an earlier one may have spent in {label} already"
            )


def check_for_life(store: Store) -> None:
    """Raise `Trouble` where an earlier, lost ledger may have spent what counts for life."""
    if store.created is not None:
        raise Trouble(
            Reason.LOST_LEDGER,
            f"{_why(store, store.created)}; what an earlier ledger spent for life is not known. If "
            "there never was one, remove the file with its -wal and -shm, and make it with "
            "create_ledger()",
        )


def _why(store: Store, created: datetime) -> str:
    return store.lost or f"the ledger was made by itself at {created:%Y-%m-%d %H:%M}"


def person_key(name: str, salt: bytes) -> bytes:
    """Return a person's key, the salted hash of the name (16 bytes); b"" for the name ""."""
    if not name:
        return b""
    return blake2b(name.encode("utf-8", "surrogatepass"), key=salt, digest_size=16).digest()


def look(
    connection: sqlite3.Connection, survey: str, key: bytes
) -> tuple[bool, str, tuple[Caps, ...]]:
    """Return whether a person consents, their account, and the caps that they set."""
    consent, caps, account, life = connection.execute(
        "SELECT p.consent, p.caps, a.account, a.caps FROM (SELECT ? AS survey, ? AS person) AS me"
        " LEFT JOIN people AS p USING (survey, person) LEFT JOIN accounts AS a USING (person)",
        (survey, key),
    ).fetchone()
    own = {**json.loads(caps or "{}"), **json.loads(life or "{}")}
    return bool(consent), account or "{}", (Caps(**own),) if own else ()
