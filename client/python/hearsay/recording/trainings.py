"""Trainings in a device's file: the one that was accepted, what a person spent, sealed updates.

An update is sealed in the transaction that charges it and counts the participation, so a device
that dies at any moment has sealed it and counted it, or neither.
"""

import math
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from hearsay.choices import Caps
from hearsay.plans.units import BILLION
from hearsay.recording import outbox
from hearsay.recording.account import UPDATE, Account
from hearsay.recording.ledger import check_for_life, look, person_key
from hearsay.storage.schema import TRAININGS
from hearsay.storage.store import Store
from hearsay.trouble import Reason, Trouble
from ldp.core.exact import float_above


@dataclass(frozen=True)
class Price:
    """What a training costs a person, and how often and at what distance one may take part.

    `protection` is "central" or "two_servers", whose whole training costs `rho` billionths at the
    first participation; "local_noise", of which each update costs `epsilon`; or "record_level",
    which costs neither, because it does not protect the person.
    """

    protection: str
    rho: int
    epsilon: float
    participations: int
    separation: int


@dataclass(frozen=True)
class Update:
    """A sealed update: the same id and bytes, however often it is sent."""

    id: bytes
    round: int
    model: bytes
    payload: bytes


@dataclass(frozen=True)
class Participation:
    """What one person spent on one training.

    `protection` says who is protected from whom:
    - "central": all models of the training together are `rho`-zCDP for this person's updates
      against zeros in their place, if the server is honest; against the server nothing is promised;
    - "two_servers": the sums of all rounds have a Renyi divergence of at most a * `rho` at every
      integer order a >= 2, for the same, against either server, if the other one is honest;
    - "local_noise": the updates together are `epsilon`-LDP, whoever reads them; the epsilon counts
      in the caps for life as that of reports;
    - "record_level": the person is not protected, each single record is, by noise of the app's own.

    `used` of `participations` rounds were taken part in, the last one being `last_round`;
    `waiting` updates have no final answer yet.
    """

    training: str
    protection: str
    rho: float
    epsilon: float
    used: int
    participations: int
    last_round: int
    separation: int
    waiting: int


def is_above(cost: Fraction, most: float) -> bool:
    """Tell whether a cost is above a limit, which somebody wrote as a decimal or multiplied.

    The float of 0.3 is below 0.3, and floats of products are off as well: by less than one part in
    2^51, which counts as equal.
    """
    return cost > Fraction(most) * (1 + Fraction(1, 1 << 51))


def ledger_name(training: str) -> str:
    """Return the name by which consent to a training, its counters and its epsilon are kept beside
    those of surveys: no survey's name has a space."""
    return f"training {training}"


def is_training(name: str) -> bool:
    """Tell whether a name in the ledger is that of a training, and not of a survey."""
    return " " in name


def training_of(name: str) -> str:
    """Return the training whose `ledger_name` this is."""
    return name.partition(" ")[2]


class TrainingLedger:
    """One training in a store: what was accepted, and who took part how often."""

    def __init__(self, store: Store, training: str) -> None:
        self._store = store
        self._training = training
        self._name = ledger_name(training)

    def kept(self) -> bytes | None:
        """Return the bytes of the training that was accepted; None where none was yet."""

        return self._store.read(self._declared)

    def keep(self, declared: bytes) -> bytes:
        """Keep a training for ever, unless another process was first; return the one kept."""

        def work(connection: sqlite3.Connection) -> bytes:
            for statement in TRAININGS.split(";\n"):
                connection.execute(statement)
            connection.execute(
                "INSERT OR IGNORE INTO trainings VALUES (?, ?)", (self._training, declared)
            )
            return self._declared(connection) or declared

        return self._store.write(work)

    def check(self, person: str, price: Price, round_: int, caps: Caps, at: float) -> None:
        """Raise `Trouble` where `seal` would, without writing. Round 0 stands for any round."""
        self._store.read(
            lambda connection: self._account(connection, person, price, round_, caps, at)
        )

    def seal(
        self,
        person: str,
        price: Price,
        update: Update,
        caps: Caps,
        at: float,
        *,
        declared: bytes,
        blank: bytes,
    ) -> None:
        """Charge an update, count the participation, and queue the update; all or nothing.

        `caps` are the app's, `at` is the Unix time. Whether an update is queued goes by what calls
        cost, which no answer can change: where memos of surveys have used up a cap for life
        beyond that, the payload is `blank`, drawn without the person's data, at no cost.

        Raises `Trouble`, with nothing changed, where the person has not consented, the ledger may
        stand for a lost one, another training was accepted by this name, all participations are
        used, the round is not `separation` after the last one, or a cap allows no more.
        """

        def work(connection: sqlite3.Connection) -> None:
            if self._declared(connection) != declared:
                raise Trouble(Reason.TRAINING_REFUSED, "another training was accepted meanwhile")
            account, all_caps = self._account(connection, person, price, update.round, caps, at)
            key, payload = self._key(person), update.payload
            if price.epsilon:
                account.charge_update("calls", price.epsilon, at)
                if account.allows_update("life", price.epsilon, all_caps, at):
                    account.charge_update("life", price.epsilon, at)
                else:
                    payload = blank
                connection.execute(
                    "INSERT INTO accounts (person, account) VALUES (?, ?)"
                    " ON CONFLICT DO UPDATE SET account = excluded.account",
                    (key, account.dump()),
                )
            connection.execute(
                "INSERT INTO participations VALUES (?, ?, ?, ?, ?, ?, 1, ?) ON CONFLICT DO UPDATE"
                " SET used = used + 1, last_round = excluded.last_round",
                (
                    self._training,
                    key,
                    price.protection,
                    price.rho,
                    price.participations,
                    price.separation,
                    update.round,
                ),
            )
            connection.execute(
                "INSERT INTO updates (id, training, person, round, model, payload)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (update.id, self._training, key, update.round, update.model, payload),
            )

        self._store.write(work)

    def waiting(self, person: str) -> list[Update]:
        """Return a person's sealed updates without a final answer, oldest first."""

        def work(connection: sqlite3.Connection) -> list[Update]:
            if not _has_tables(connection):
                return []
            rows = connection.execute(
                "SELECT id, round, model, payload FROM updates WHERE training = ? AND person = ?"
                " ORDER BY seq",
                (self._training, self._key(person)),
            ).fetchall()
            return [Update(*row) for row in rows]

        return self._store.read(work)

    def is_waiting(self, update: Update) -> bool:
        """Tell whether an update still waits: its person may have revoked, or another process may
        have sent it."""

        def work(connection: sqlite3.Connection) -> bool:
            found = connection.execute("SELECT 1 FROM updates WHERE id = ?", (update.id,))
            return found.fetchone() is not None

        return self._store.read(work)

    def settle(self, update: Update, became: str) -> None:
        """Delete an update with a final answer, and count what became of it."""

        def work(connection: sqlite3.Connection) -> None:
            if _delete(connection, "id = ?", update.id):
                outbox.add_counts(connection, self._name, {became: 1})

        self._store.write(work)

    def participation(self, person: str) -> Participation | None:
        """Return what a person spent on this training; None before the first participation."""
        found = self._store.read(lambda connection: participations(connection, self._key(person)))
        return next((each for each in found if each.training == self._training), None)

    def _account(
        self,
        connection: sqlite3.Connection,
        person: str,
        price: Price,
        round_: int,
        caps: Caps,
        at: float,
    ) -> tuple[Account, Sequence[Caps]]:
        """Return a person's account and the caps in force, where an update may be sealed; raise
        `Trouble` where none may."""
        key = self._key(person)
        consent, stored, own = look(connection, self._name, key)
        if not consent:
            raise Trouble(Reason.NO_CONSENT)
        check_for_life(self._store)
        everything = participations(connection, key)
        mine = next((each for each in everything if each.training == self._training), None)
        if mine is not None and mine.used >= price.participations:
            raise Trouble(Reason.SPENT, f"all {mine.used} participations are used")
        if mine is not None and 0 < round_ < mine.last_round:
            raise Trouble(
                Reason.ROUND_REFUSED,
                f"the server went back to round {round_}: this person took part in "
                f"{mine.last_round}",
            )
        if mine is not None and 0 < round_ < mine.last_round + price.separation:
            raise Trouble(
                Reason.WAITING,
                f"round {round_} is not for this person, who took part in round "
                f"{mine.last_round}: the next one is {mine.last_round + price.separation} or later",
            )
        all_caps, account = (caps, *own), Account(stored, self._name)
        if price.epsilon and not account.allows_update("calls", price.epsilon, all_caps, at):
            unpaced = [replace(each, until=None) for each in all_caps]
            if account.allows_update("calls", price.epsilon, unpaced, at):
                raise Trouble(Reason.WAITING, "the cap for life is paced, and ahead of its pace")
            raise Trouble(
                Reason.SPENT, f"a cap for life allows no further epsilon {price.epsilon:g}"
            )
        if mine is None and price.rho:
            spent = sum(round(each.rho * BILLION) for each in everything)
            for each in all_caps:
                if each.rho is not None and is_above(
                    Fraction(spent + price.rho, BILLION), each.rho
                ):
                    raise Trouble(
                        Reason.SPENT,
                        f"the training costs rho {price.rho / BILLION:g}, trainings before it "
                        f"cost {spent / BILLION:g}, and the cap is {each.rho:g}",
                    )
        return account, all_caps

    def _declared(self, connection: sqlite3.Connection) -> bytes | None:
        if not _has_tables(connection):
            return None
        found = connection.execute(
            "SELECT declared FROM trainings WHERE training = ?", (self._training,)
        ).fetchone()
        return bytes(found[0]) if found else None

    def _key(self, person: str) -> bytes:
        return person_key(person, self._store.salt)


def participations(connection: sqlite3.Connection, person: bytes) -> list[Participation]:
    """Return what a person spent on each training, by name."""
    if not _has_tables(connection):
        return []
    rows = connection.execute(
        "SELECT training, protection, rho, used, most, last_round, separation,"
        " (SELECT count(*) FROM updates WHERE (training, person) = (p.training, p.person)),"
        " (SELECT account FROM accounts WHERE person = p.person)"
        " FROM participations AS p WHERE person = ? ORDER BY training",
        (person,),
    ).fetchall()
    return [
        Participation(
            training=training,
            protection=protection,
            rho=rho / BILLION,
            epsilon=_spent(account or "{}", training),
            used=used,
            participations=most,
            last_round=last_round,
            separation=separation,
            waiting=waiting,
        )
        for training, protection, rho, used, most, last_round, separation, waiting, account in rows
    ]


def drop_updates(
    connection: sqlite3.Connection, survey: str, person: bytes, at: float, *, forget: bool
) -> int:
    """Delete one person's waiting updates of the training whose `ledger_name` is `survey`; return
    how many there were. `forget` changes nothing: a server has no way to forget an update."""
    if not _has_tables(connection):
        return 0
    dropped = _delete(connection, "training = ? AND person = ?", training_of(survey), person)
    if dropped:
        outbox.add_counts(connection, survey, {"revoked": dropped})
    return dropped


def combined(account: Account, spent: Sequence[Participation], delta: float) -> float:
    """Return an epsilon at which all reports and all trainings that cost rho together are
    (epsilon, delta)-DP for replacing all that one person gave by anything else, rounded up; without
    records of surveys that were split between two servers, which have deltas of their own
    (`Account.split`).

    It rests on the servers of the trainings, as their rho does, and leaves trainings at record
    level out. Of answers by maps it holds for the values that the maps protect. Reports of an
    epsilon that bounds both directions (`Account.two_sided`) are (epsilon^2 / 2)-zCDP (Bun and
    Steinke, "Concentrated differential privacy", TCC 2016, proposition 1.4); other epsilons add up.
    A training's rho is for zeros in place of a person's updates, and four times that for other
    updates in their place, which are at most twice as far away. The smaller one is taken of all of
    it by zCDP (proposition 1.3), and of the plain sum of the reports' epsilons with the trainings
    by zCDP. Of noise that devices split, the divergence is known at integer orders: where there is
    such a training, the best integer order is taken.
    """
    whole = any(each.protection == "two_servers" for each in spent)
    central = 4 * sum((Fraction(round(each.rho * BILLION), BILLION) for each in spent), Fraction(0))

    def by_zcdp(rho: Fraction) -> Fraction:
        value, log = float(rho), -math.log(delta)
        best = value + 2 * math.sqrt(value * log)
        if whole and value:
            below = max(2, math.floor(1 + math.sqrt(log / value)))
            best = min(order * value + log / (order - 1) for order in (below, below + 1))
        return Fraction(best) * (1 + Fraction(1, 1 << 40))

    sum_of_known, squares = account.two_sided(is_training)
    added = account.added_without_split
    rest = added - sum_of_known
    return float_above(min(by_zcdp(squares / 2 + central) + rest, added + by_zcdp(central)))


def new_id() -> bytes:
    """Return the id of a new update: never from seeded coins, as two simulations share none."""
    return os.urandom(16)


def _spent(stored: str, training: str) -> float:
    spent = Account(stored, ledger_name(training)).life.get(UPDATE, {})
    return math.fsum(float.fromhex(epsilon) * times for epsilon, times in spent.items())


def _delete(connection: sqlite3.Connection, which: str, *given: object) -> int:
    """Delete updates, and overwrite their bytes; return how many there were.

    Under central noise they are the person's own, which nothing protects yet.
    """
    connection.execute("PRAGMA secure_delete = ON").fetchall()
    try:
        return connection.execute(f"DELETE FROM updates WHERE {which}", given).rowcount
    finally:
        connection.execute("PRAGMA secure_delete = OFF").fetchall()


def _has_tables(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'updates'").fetchone()
    return found is not None
