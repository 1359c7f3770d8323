"""Randomise answers: where a report is drawn, afresh or from a memo, and its epsilon is spent."""

import sqlite3
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from hearsay.choices import Caps
from hearsay.plans.kinds import Domain, Value
from hearsay.plans.memo import Memoizer
from hearsay.recording.account import Account
from hearsay.recording.terms import Terms
from hearsay.v1 import collector_pb2
from ldp import Coins

IDLE = "idle"
"""An answer was dropped because its attribute was not drawn for this record."""
INCOMPLETE = "incomplete"
"""An answer was dropped because it is asked together with another one, which was left out."""
SPENT = "spent"
"""An answer was dropped because its attribute was reported in this period, or a cap is used up."""
WITHHELD = "withheld"
"""An answer was dropped because the app withholds its attribute."""
UNKNOWN = "unknown"
"""An answer was dropped because the survey has no such attribute."""
INVALID = "invalid"
"""An answer was outside the domain: a random value was reported in its place."""


def randomize(
    report: collector_pb2.Batch,
    values: Mapping[str, Value | None],
    terms: Terms,
    account: Account,
    caps: Sequence[Caps],
    where: tuple[sqlite3.Connection, bytes, bytes],
    coins: Coins,
) -> tuple[list[str], dict[str, str]]:
    """Add the randomised answers that the account and caps allow to a report, as its columns.

    `values` are by attribute and as domains encode them; None stands for an answer outside the
    domain. A view is reported where all its attributes have a value, or None. `where` has the
    transaction in which memos are kept, the store's salt and the person's key. The account spends
    the epsilon of each report. Returns the attributes that were taken, by one question at least,
    and the reasons why others were left out.

    Guarantee: each code is drawn by a mechanism of the plan from the answer, or from a value drawn
    uniformly from the domain where there is no answer or no epsilon left for its memo; the columns
    that are added do not depend on the values.
    """
    connection, salt, person = where
    dropped: dict[str, str] = {}
    for name in _asked(terms, values):
        level = terms.levels[name]
        mechanism = terms.mechanisms[name]
        calls = account.calls_cost(terms, name)
        if not account.is_drawn(name):
            dropped[name] = IDLE
            continue
        if not values.keys() >= set(terms.plan.parts(name)):
            dropped[name] = INCOMPLETE
            continue
        if not account.may_report(terms, name, mechanism.epsilon, caps) or not account.allows(
            "calls", terms, name, calls, caps
        ):
            dropped[name] = SPENT
            continue
        memoizer = terms.memoizers.get(name)
        if memoizer:
            domain = terms.plan.attributes[name].domain
            memos = _Memos(connection, salt, (person, report.survey, name), memoizer, domain, coins)
            affordable = account.allows("life", terms, name, memoizer.epsilon, caps)
            memo, is_new = memos.of(values[name], affordable)
            life = memoizer.epsilon if is_new else 0.0
            code = memoizer.report(memo, coins)
        else:
            life = calls if account.allows("life", terms, name, calls, caps) else 0.0
            value = terms.value(name, values, coins) if life else terms.anything(name, coins)
            code = mechanism.encode_one(mechanism.randomize(value, coins))
        chosen = terms.maps.get(name, "")
        account.report(
            name,
            mechanism.epsilon,
            calls=calls,
            life=life,
            variation=terms.variation(name),
            chosen=terms.chosen_map(name),
        )
        report.columns.add(attribute=name, level=level.name, codes=code, map=chosen)
    return _by_attribute(terms, values, dropped)


def _asked(terms: Terms, values: Mapping[str, Value | None]) -> list[str]:
    """Return the questions about some attributes: attributes in no view as given, then views."""
    asked = [name for name in values if name in terms.levels]
    views = terms.plan.views.values() if len(asked) < len(values) else ()
    return asked + [
        view.name
        for view in views
        if view.name in terms.answered and not values.keys().isdisjoint(view.attributes)
    ]


def _by_attribute(
    terms: Terms, values: Mapping[str, Value | None], dropped: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the attributes that a report has, and for each other one why it does not.

    Of an attribute in several views the reason is that of one that was drawn, where any was.
    """
    taken, reasons = [], {}
    for name in values:
        asked = [each for each in terms.containing[name] if each in terms.answered]
        found = sorted((dropped.get(each, "") for each in asked), key=IDLE.__eq__)
        if "" in found:
            taken.append(name)
        else:
            reasons[name] = found[0] if found else WITHHELD
    return taken, reasons


class _Memos:
    """The memos of one person and attribute, in one transaction."""

    _DEVICE = -1
    """The key of the bytes that the device drew once, before any answer."""
    _BLANK = -2
    """The key of the memo of a random value: it is reported for answers outside the domain, and
    for new ones that a cap for life leaves no epsilon for. It says nothing of any answer."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        salt: bytes,
        where: tuple[bytes, str, str],
        memoizer: Memoizer,
        domain: Domain,
        coins: Coins,
    ) -> None:
        self._connection = connection
        self._salt = salt
        self._where = (*where, memoizer.identity)
        self._memoizer = memoizer
        self._domain = domain
        self._coins = coins

    def of(self, value: Value | None, affordable: bool) -> tuple[bytes, bool]:
        """Return the memo of a value, and whether it is a new one that has to be paid for.

        Where there is no value, or its memo would be new and is not `affordable`, returns the
        memo of a random value, which costs nothing.
        """
        device = self._device()
        if value is not None:
            key = self._memoizer.key(device, value)
            memo = self._get(key)
            if memo is not None:
                return memo, False
            if affordable:
                return self._draw(key, device, value), True
        blank = self._get(self._BLANK)
        if blank is None:
            blank = self._draw(self._BLANK, device, self._domain.anything(self._coins))
        return blank, False

    def _draw(self, key: int, device: bytes, value: Value) -> bytes:
        memo = self._memoizer.memoize(device, value, self._coins)
        self._put(key, memo)
        return memo

    def _device(self) -> bytes:
        device = self._get(self._DEVICE)
        if device is None:
            device = self._memoizer.enroll(self._coins)
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
