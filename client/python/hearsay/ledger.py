"""What a person has spent, and whether one more answer may be: spend, memo and report at once."""

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from hashlib import blake2b
from typing import Any

from hearsay import outbox, period
from hearsay.choices import Caps, Terms, total
from hearsay.memo import Memoizer
from hearsay.store import Store
from hearsay.trouble import Reason, Trouble
from hearsay.v1 import collector_pb2
from ldp import Coins, InvalidInput

IDLE = "idle"
"""An answer was dropped because its attribute was not drawn for this record."""
SPENT = "spent"
"""An answer was dropped because its attribute's epsilon, or a cap for life, is used up."""

_Account = dict[str, dict[str, Any]]
"""By survey: the current period, its revision, what was drawn for it, what each attribute that
was reported in it cost the record, and all ever spent: {attribute: {epsilon in hex: times}}."""


@dataclass(frozen=True)
class Spending:
    """What was spent on one attribute, and what its caps leave.

    `epsilon` is what one report spends, or for a memoised attribute each new memo; `reports`
    how often that was spent; `life` their sum; `left` what the lowest cap for life still allows
    (None: no cap). `answered` tells whether this period's report was made.
    """

    attribute: str
    epsilon: float
    reports: int
    life: float
    left: float | None
    answered: bool


class Ledger:
    """The accounts in a store. The epsilons of what one person reports add up, over
    attributes, periods and surveys (sequential composition), in exact arithmetic."""

    def __init__(self, store: Store, survey: str) -> None:
        self._store = store
        self._survey = survey

    def record(
        self,
        person: str,
        terms: Terms,
        values: Mapping[str, int | float],
        *,
        now: datetime,
        caps: Caps,
        limits: tuple[int, int],
        coins: Coins,
    ) -> tuple[list[str], Counter[str], tuple[int, int]]:
        """Randomise what may be spent and queue it; return its names, what was dropped, and how
        many reports wait now, and bytes (0 where none was added).

        All of it is one transaction: either the epsilon is spent, the memo kept and the report
        queued, or none of it. `limits` are the reports and bytes that may wait; the oldest are
        dropped beyond them. Raises `Trouble`, with nothing changed, where no answer may be
        taken now.
        """
        dropped: Counter[str] = Counter()
        survey = self._survey
        label = period.label(terms.plan.period, now)
        with self._store.write() as connection:
            key = self._person(person)
            account, caps, latest = self._account(connection, key, terms, label, caps)
            mine = account[survey]
            begins = mine["period"] != label
            if begins:
                names = list(terms.plan.attributes)
                drawn = [names[j] for j in terms.budget.draw(coins)]
                revision = terms.plan.revision.hex()
                mine |= {"period": label, "revision": revision, "drawn": drawn, "spent": {}}
            # Where these terms drew the attributes, their sum is within their record's epsilon.
            # Otherwise other terms drew them, or reported some already.
            left = None if begins else Fraction(terms.record_epsilon) - _sum(mine["spent"])
            taken: list[str] = []
            waiting = 0, 0
            report = collector_pb2.Batch(
                survey=survey, revision=terms.plan.revision, period=label, rows=1
            )
            for name, value in values.items():
                if name not in mine["drawn"]:
                    dropped[IDLE] += 1
                    continue
                level = terms.levels[name]
                mechanism, memoizer = level.mechanisms[name], terms.memoizers.get(name)
                memos = (
                    _Memos(connection, self._store.salt, (key, survey, name), memoizer)
                    if memoizer
                    else None
                )
                memo = memos.recall(value, coins) if memos else None
                epsilon = 0.0 if memo else terms.cost(name)
                if (
                    name in mine["spent"]
                    or (left is not None and mechanism.epsilon > left)
                    or not _may_spend(account, survey, name, epsilon, caps)
                ):
                    dropped[SPENT] += 1
                    continue
                if left is not None:
                    left -= Fraction(mechanism.epsilon)
                if memos and memoizer:
                    memo = memo or memos.keep(value, coins)
                    code = memoizer.report(memo, coins)
                else:
                    code = mechanism.encode_one(mechanism.randomize(value, coins))
                mine["spent"][name] = mechanism.epsilon.hex()
                _spend(mine, name, epsilon)
                taken.append(name)
                report.columns.add(attribute=name, level=level.name, codes=code)
            connection.execute(
                "INSERT INTO accounts VALUES (?, ?)"
                " ON CONFLICT DO UPDATE SET account = excluded.account",
                (key, json.dumps(account)),
            )
            if label != latest:  # also where nothing was taken: the account's period has moved
                connection.execute(
                    "UPDATE surveys SET latest = ? WHERE survey = ?", (label, survey)
                )
            if taken:
                data = report.SerializeToString()
                waiting, overflow = outbox.add(connection, survey, data, now.timestamp(), limits)
                if overflow:
                    dropped["overflow"] = overflow
        return taken, dropped, waiting

    def check(self, person: str, terms: Terms, *, now: datetime, caps: Caps) -> None:
        """Raise `Trouble` where `record` would, looking only."""
        label = period.label(terms.plan.period, now)
        with self._store.read() as connection:
            self._account(connection, self._person(person), terms, label, caps)

    def spendings(self, person: str, terms: Terms, caps: Caps, now: datetime) -> list[Spending]:
        """Return what was spent and what is left, by attribute of the plan."""
        label = period.label(terms.plan.period, now)
        with self._store.read() as connection:
            stored = connection.execute(
                "SELECT account FROM accounts WHERE person = ?", (self._person(person),)
            ).fetchone()
            caps = caps.lower(self.own_caps(connection))
        account: _Account = json.loads(stored[0]) if stored else {}
        mine = account.get(self._survey, {"period": "", "life": {}})
        found = []
        for name in terms.levels:
            spent = mine["life"].get(name, {})
            life = total({name: spent})
            answered = mine["period"] == label and name in mine["spent"]
            found.append(
                Spending(
                    attribute=name,
                    epsilon=terms.cost(name),
                    reports=sum(spent.values()),
                    life=float(life),
                    left=left_for_life(account, self._survey, name, caps),
                    answered=answered,
                )
            )
        return found

    def own_caps(self, connection: sqlite3.Connection) -> Caps:
        """Return the caps that the user set."""
        found = connection.execute(
            "SELECT caps FROM surveys WHERE survey = ?", (self._survey,)
        ).fetchone()
        life = connection.execute("SELECT value FROM settings WHERE name = 'life'").fetchone()
        own = json.loads(found[0]) if found else {}
        return Caps(**own, life=life[0] if life else None)

    def set_own_caps(self, caps: Caps) -> None:
        """Keep the user's caps: that for life for all surveys, the others for this one."""
        own = caps.as_dict()
        life = own.pop("life", None)
        with self._store.write() as connection:
            connection.execute(
                "INSERT INTO surveys (survey, caps) VALUES (?, ?)"
                " ON CONFLICT DO UPDATE SET caps = excluded.caps",
                (self._survey, json.dumps(own)),
            )
            connection.execute("DELETE FROM settings WHERE name = 'life'")
            if life is not None:
                connection.execute("INSERT INTO settings VALUES ('life', ?)", (life,))

    def _person(self, name: str) -> bytes:
        """Return what stands for a person in the file."""
        return person_key(name, self._store.salt)

    def _account(
        self, connection: sqlite3.Connection, key: bytes, terms: Terms, label: str, caps: Caps
    ) -> tuple[_Account, Caps, str]:
        """Return an account, the caps that hold, and the latest period answered by anybody.

        Raises `Trouble` where no answer may be taken now.
        """
        survey = self._survey
        consent, own, latest, stored, life = connection.execute(
            "SELECT consent, caps, latest, (SELECT account FROM accounts WHERE person = ?),"
            " (SELECT value FROM settings WHERE name = 'life') FROM surveys WHERE survey = ?",
            (key, survey),
        ).fetchone() or (0, "{}", "", None, None)
        if not consent:
            raise Trouble(Reason.NO_CONSENT)
        if own != "{}" or life is not None:
            caps = caps.lower(Caps(**json.loads(own), life=life))
            try:
                terms.check_caps(caps)  # the user may have set them elsewhere since
            except InvalidInput as error:
                raise Trouble(Reason.PLAN_REFUSED, str(error)) from None
        self._check_new(terms, label, caps)
        account: _Account = json.loads(stored) if stored else {}
        mine = account.setdefault(survey, {"period": "", "life": {}})
        latest_of_all = max(latest, mine["period"])  # labels of one unit sort as periods do
        if label < latest_of_all:
            raise Trouble(
                Reason.CLOCK, f"the clock shows {label}; {latest_of_all} was seen already"
            )
        if mine["period"] == label and mine["revision"] != terms.plan.revision.hex():
            raise Trouble(Reason.PLAN_CHANGED, f"{label} goes by revision {mine['revision'][:12]}")
        return account, caps, latest

    def _check_new(self, terms: Terms, label: str, caps: Caps) -> None:
        """Raise `Trouble` where a ledger that was lost may have spent already."""
        created = self._store.created
        if created is None:
            return
        if terms.count_for_life or caps.life is not None or caps.attribute_life:
            raise Trouble(
                Reason.LOST_LEDGER,
                "what an earlier ledger spent for life is not known; if there was none, make the "
                "file with create_ledger()",
            )
        if period.start(terms.plan.period, label) <= created:
            raise Trouble(
                Reason.NEW_LEDGER,
                f"the ledger was made in {label}: an earlier one may have spent in it",
            )


def left_for_life(
    account: Mapping[str, Any], survey: str, attribute: str, caps: Caps
) -> float | None:
    """Return what the caps for life leave of an attribute; None where there are none."""
    limits = []
    if caps.life is not None:
        limits.append(Fraction(caps.life) - _life(account))
    if attribute in caps.attribute_life:
        spent = account.get(survey, {"life": {}})["life"].get(attribute, {})
        limits.append(Fraction(caps.attribute_life[attribute]) - total({attribute: spent}))
    return max(0.0, float(min(limits))) if limits else None


def person_key(name: str, salt: bytes) -> bytes:
    """Return what stands for a person in a file with this salt; the device's own is ""."""
    if not name:
        return b""
    return blake2b(name.encode("utf-8", "surrogatepass"), key=salt, digest_size=16).digest()


def _sum(spent: Mapping[str, str]) -> Fraction:
    """Add up epsilons in hex."""
    return sum((Fraction(float.fromhex(epsilon)) for epsilon in spent.values()), Fraction(0))


def _life(account: Mapping[str, Any]) -> Fraction:
    return sum((total(mine["life"]) for mine in account.values()), Fraction(0))


def _may_spend(account: _Account, survey: str, name: str, epsilon: float, caps: Caps) -> bool:
    if not epsilon or (caps.life is None and not caps.attribute_life):
        return True
    cost = Fraction(epsilon)
    if caps.life is not None and _life(account) + cost > Fraction(caps.life):
        return False
    if name in caps.attribute_life:
        life = total({name: account[survey]["life"].get(name, {})})
        return life + cost <= Fraction(caps.attribute_life[name])
    return True


def _spend(mine: dict[str, Any], name: str, epsilon: float) -> None:
    if epsilon:
        times = mine["life"].setdefault(name, {})
        times[epsilon.hex()] = times.get(epsilon.hex(), 0) + 1


class _Memos:
    """The memos of one person and attribute, in one transaction."""

    _DEVICE = -1  # the key of what the device drew before any answer

    def __init__(
        self,
        connection: sqlite3.Connection,
        salt: bytes,
        where: tuple[bytes, str, str],
        memoizer: Memoizer,
    ) -> None:
        self._connection = connection
        self._salt = salt
        self._where = (*where, memoizer.identity)
        self._memoizer = memoizer

    def recall(self, value: int | float, coins: Coins) -> bytes | None:
        """Return the memo of a value; None where it has none yet."""
        return self._get(self._memoizer.key(self._device(coins), int(value)))

    def keep(self, value: int | float, coins: Coins) -> bytes:
        """Draw and store the memo of a value."""
        device = self._device(coins)
        memo = self._memoizer.memoize(device, int(value), coins)
        self._put(self._memoizer.key(device, int(value)), memo)
        return memo

    def _device(self, coins: Coins) -> bytes:
        device = self._get(self._DEVICE)
        if device is None:
            device = self._memoizer.enroll(coins)
            self._put(self._DEVICE, device)
        return device

    def _get(self, key: int) -> bytes | None:
        found = self._connection.execute(
            "SELECT memo FROM memos WHERE person = ? AND survey = ? AND attribute = ?"
            " AND mechanism = ? AND key = ?",
            (*self._where, self._hashed(key)),
        ).fetchone()
        return None if found is None else bytes(found[0])

    def _put(self, key: int, memo: bytes) -> None:
        self._connection.execute(
            "INSERT INTO memos VALUES (?, ?, ?, ?, ?, ?)", (*self._where, self._hashed(key), memo)
        )

    def _hashed(self, key: int) -> bytes:
        # Against a glance only: who has the file has the salt, and the values are few.
        return blake2b(str(key).encode(), key=self._salt, digest_size=16).digest()
