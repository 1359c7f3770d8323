"""The one plan of a survey: the first that was accepted, kept in the ledger for ever."""

import hashlib
import logging
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from typing import NamedTuple

from hearsay.choices import Agreed, Caps, Choices
from hearsay.plain import on_one_line
from hearsay.plans.attested import Policy, requirement_of
from hearsay.plans.plan import Level, Plan, message, parse
from hearsay.recording import outbox
from hearsay.recording.terms import Terms
from hearsay.sealed import records, shares
from hearsay.sending.transport import Transport, Unreachable
from hearsay.sending.uptime import uptime
from hearsay.storage.store import Store
from hearsay.trouble import Reason, Status, to_raise
from hearsay.v1 import survey_pb2
from ldp.errors import HearsayError, InvalidInput, MissingExtra

_log = logging.getLogger("hearsay")

_DAY = 24 * 3600.0

_TOLD = 1000
"""Characters of the reason why a plan is refused that are passed on."""

_BEHIND = 12 * 3600.0
"""Seconds that the server's time may be behind the clock before the server is asked for it: a
process that starts after a while knows only the time that the last process heard."""


class Held(Enum):
    """What of a survey's waiting reports a client must leave where it is."""

    NOTHING = "nothing"
    UNPACKED = "unpacked"
    """Reports that are in no batch yet. They were split between two servers, and only their plan,
    which this client does not have, says how they are packed."""
    ALL = "all"
    """All. They wait for a way that this client does not have: a shuffler and the plan's keys, the
    helper that the app names, evidence as strict as their plan's. Or a later release of the app has
    put its plan into the ledger: what waits is of that plan, or for that release to drop."""


class Look(NamedTuple):
    """What of a survey's waiting reports must stay, and the revision of the plan that the ledger
    has: nothing of another revision leaves."""

    held: Held
    revision: bytes


class PlanKeeper:
    """The plan by which a client randomises, and the server's time.

    The plan of a survey never changes, so the first one that was accepted is kept and every other
    one is refused. Only an app that ships a revision accepts exactly that plan, also where
    another one was kept before. Spent epsilon stays spent in either case.
    """

    def __init__(
        self,
        store: Store,
        transport: Transport,
        agreed: Agreed,
        choices: Choices,
        withheld: frozenset[str],
        caps: Caps,
        clock: Callable[[], datetime],
        *,
        shuffled: bool = False,
        helper_key: bytes = b"",
        policy: Policy | None = None,
    ) -> None:
        """Prepare to keep the plan that `agreed` describes; `choices` and `caps` are the device's
        own user's, whose record it must allow. `shuffled` says that the client has a shuffler to
        send to: then records are to be sealed, and without they must not be. `helper_key` is the
        key of the second of two servers: then records are to be split with it, and else not.
        `policy` is the app's for a server's evidence, which must be as strict as the plan's."""
        self._store = store
        self._transport = transport
        self._agreed = agreed
        self._choices = choices
        self._withheld = withheld
        self._caps = caps
        self._clock = clock
        self._shuffled = shuffled
        self._helper_key = helper_key
        self._policy = policy
        self._kept = b""
        self._asked = float("-inf")  # when the plan was last asked for, by the clock, Unix time
        self._heard: tuple[float, float] | None = None  # the server's time, and ours
        self._is_told = False  # whether the server itself said it, in this process
        self._lock = threading.RLock()  # one plan is taken at a time
        self._terms: dict[Choices, Terms] = {}
        self.plan: Plan | None = None
        """The plan, once there is one."""
        self.refused = Status(Reason.NO_PLAN, "no plan has come yet")
        """Why there is no plan."""
        self.refused_other = ""
        """Why a plan other than the kept plan was refused; "" where none came."""
        self.transport_error = ""
        """How the last call to the server failed, in words; "" where it succeeded."""

    def after_fork(self) -> None:
        """Start anew in a child: locks do not survive a fork."""
        self._lock = threading.RLock()

    @property
    def server_time(self) -> float | None:
        """The server's time now, in Unix time: its last reported time, plus the time passed since
        in this process. None where it never reported any."""
        if self._heard is None:
            return None
        said, at = self._heard
        return said + uptime() - at

    def hear(self, server_time: int) -> None:
        """Note the server's time, in Unix time; 0 where an answer did not report it."""
        if server_time > 0:
            self._heard = float(server_time), uptime()
            self._is_told = True

    def keep_server_time(self) -> None:
        """Keep the server's time in the ledger, for the next process; raise `Trouble` where that
        cannot be."""
        if self._heard is not None:
            said = self._heard[0]
            self._store.write(
                lambda connection: connection.execute(
                    "INSERT INTO surveys (survey, server_time) VALUES (?, ?)"
                    " ON CONFLICT DO UPDATE SET server_time = excluded.server_time",
                    (self._agreed.survey, said),
                )
            )

    def trust_clock(self) -> None:
        """Take the device's clock for the server's time.

        It does not confirm when a new ledger was made: a clock that is put back would let the
        new ledger answer what a lost one answered.
        Raises `Trouble` where that cannot be kept.
        """
        self._heard = self._clock().timestamp(), uptime()
        self._is_told = False
        self.keep_server_time()

    def confirm_created(self) -> None:
        """Correct the time at which the ledger was made, once the server confirms the clock.

        It was made by a clock that may have been wrong. Where the server has said its time to this
        process, and the clock agrees with it to a day, an earlier ledger can have entered periods
        that begin within a day from now, and no later ones. A time that the ledger kept does not
        count: the ledger may be an old copy.
        """
        server_time = self.server_time
        if not self._store.is_confirmed and server_time is not None and self._is_told:
            now = self._clock()
            if abs(now.timestamp() - server_time) <= _DAY:
                latest = max(now, datetime.fromtimestamp(server_time, UTC))
                self._store.confirm_created(latest)

    def look(self) -> None:
        """Load the plan from the ledger, or from the app's agreement; raise `Trouble` where the
        ledger cannot be read or written."""
        if self.plan is None:
            with self._lock:
                if self.plan is None:  # another thread may have been first
                    self._look()

    def _look(self) -> None:
        def work(connection: sqlite3.Connection) -> tuple[bytes, float, float]:
            found: tuple[bytes, float, float] | None = connection.execute(
                "SELECT plan, fetched, server_time FROM surveys WHERE survey = ?",
                (self._agreed.survey,),
            ).fetchone()
            return found or (b"", float("-inf"), 0.0)

        data, asked, server_time = self._store.read(work)
        if self._heard is None and server_time > 0:
            self._heard = server_time, uptime()
        # Where the app asks for another plan than the kept one, its plan is yet to come.
        if data and self._agreed.revision in (None, hashlib.sha256(data).hexdigest()):
            try:
                self._accept(data, self._accepted(data))
            except InvalidInput as error:
                self._refuse(str(error))
            else:
                self._asked = asked
                return
        if self._agreed.agreement is not None and self._agreed.agreement.plan:
            self._take(self._agreed.agreement.plan)

    @property
    def lacks_something(self) -> bool:
        """Whether there is no plan, or the server's time is needed."""
        if self.plan is None or not (self._is_told or self._store.is_confirmed):
            return True
        known = self.server_time
        return known is not None and self._clock().timestamp() - known > _BEHIND

    def is_due(self, age: float, retry: float) -> bool:
        """Tell whether the server has to be asked for its plan or its time.

        That is so where there is no plan, or the server's time is far behind the clock or needed
        to confirm when the ledger was made, and it was not asked in `retry` seconds; and where it
        was not asked in `age` seconds whether the plan is still the same, unless the app ships
        that.
        """
        since = self._clock().timestamp() - self._asked
        if self.lacks_something:
            return not 0 <= since < retry
        shipped = self._agreed.agreement is not None and self._agreed.agreement.plan
        return not shipped and not 0 <= since < age

    def fetch(self, timeout: float) -> None:
        """Ask the server for its plan and its time.

        Raises `Unreachable` where it does not answer, and `Trouble` where the ledger cannot keep
        its answer.
        """
        try:
            answer = self._transport.get_plan(self._agreed.survey, timeout)
        except InvalidInput as error:  # there is no such survey, say
            self.failed(Unreachable(str(error), reason=Reason.SERVER_REFUSED))
        else:
            self.succeeded(answer.server_time)
            revision = hashlib.sha256(answer.plan).hexdigest()[:12]
            _log.debug("the server has revision %s of %r", revision, self._agreed.survey)
            if not self._take(answer.plan):
                self.keep_server_time()
        self._asked = self._clock().timestamp()

    def failed(self, error: Unreachable) -> None:
        """Take note of a call that failed."""
        if self.transport_error != str(error):
            refused = error.reason is Reason.SERVER_REFUSED
            how = "refuses" if refused else "is not reached"
            _log.warning("the server of %r %s: %s", self._agreed.survey, how, error)
        self.transport_error = str(error)
        if self.plan is None and self.refused.reason is not Reason.PLAN_REFUSED:
            self.refused = Status(error.reason, str(error))

    def succeeded(self, server_time: int) -> None:
        """Take note of a call that was answered."""
        self.transport_error = ""
        self.hear(server_time)

    def _take(self, data: bytes) -> bool:
        """Accept a plan and keep it, unless another one was kept; else keep the reason why not.

        Returns whether something was written to the ledger.
        """
        if self.plan is not None and data == self._kept:
            return False
        if self.plan is not None:
            self._refuse(
                f"the plan of {self._agreed.survey!r} changed on the server: revision "
                f"{self.plan.revision.hex()[:12]} was accepted first and stays"
            )
            return False
        try:
            plan = self._accepted(data)  # may take a while: nobody waits for the lock meanwhile
        except InvalidInput as error:
            self._refuse(str(error))
            return False
        with self._lock:
            if self.plan is None:
                self._keep(data, plan)
                return True
        return self._take(data)  # another thread was first

    def _keep(self, data: bytes, plan: Plan) -> None:
        """Keep a plan that was accepted, unless another process was first: then take that one."""
        said = 0.0 if self._heard is None else self._heard[0]

        def work(connection: sqlite3.Connection) -> bytes:
            found = outbox.kept_plan(connection, self._agreed.survey)
            if found and self._agreed.revision is None:
                return found  # another process was first
            if found and message(found).survey.HasField("sealing") and plan.sealing is None:
                # Asked for in the clear, requests to forget would tell whose the mixed records are.
                outbox.drop_all(connection, self._agreed.survey, "refused")
            connection.execute(
                "INSERT INTO surveys VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
                " plan = excluded.plan, fetched = excluded.fetched,"
                " server_time = excluded.server_time",
                (self._agreed.survey, data, self._clock().timestamp(), said),
            )
            return data

        kept = self._store.write(work)
        try:
            self._accept(kept, plan if kept == data else self._accepted(kept))
        except InvalidInput as error:
            self._refuse(str(error))

    def held(self) -> Look:
        """Load the plan as `look` does, and tell what of what waits now must stay.

        Whoever queues a report has put its plan into the ledger before, so this must come after
        the look at the queue. Raises `Trouble` where the ledger cannot be read or written.
        """
        self.look()
        survey = self._agreed.survey
        data = self._store.read(lambda connection: outbox.kept_plan(connection, survey))
        if self.plan is None:
            held = self._without_plan(message(data).survey) if data else Held.NOTHING
            return Look(held, hashlib.sha256(data).digest())
        held = Held.NOTHING if data in (b"", self._kept) else Held.ALL
        return Look(held, self.plan.revision)

    def _without_plan(self, kept: survey_pb2.Survey) -> Held:
        """Tell what must stay with a client that does not have the plan that was kept."""
        if kept.HasField("sealing") or self._shuffled:
            return Held.ALL
        if kept.two_servers.helper_key != self._helper_key:
            return Held.ALL
        try:
            if required := requirement_of(kept):
                required.check(kept.name, self._policy)
        except InvalidInput:
            return Held.ALL
        return Held.UNPACKED if kept.HasField("two_servers") else Held.NOTHING

    def no_plan(self) -> HearsayError:
        """Return the exception to raise where there is no plan: it says why."""
        return to_raise(self.refused.reason, f"{self.refused.detail}: wait for wait_ready()")

    def terms(self, choices: Choices) -> Terms:
        """Return the terms of a person with these choices.

        Raises `no_plan()` without a plan, and `InvalidInput` where the plan has no such choice.
        """
        if self.plan is None:
            raise self.no_plan()
        known = self._terms.get(choices)
        if known is None or known.plan is not self.plan:
            known = self._terms[choices] = self._checked(self.plan, choices)
        return known

    def _checked(self, plan: Plan, choices: Choices) -> Terms:
        terms = Terms.of(plan, choices, self._agreed, self._withheld)
        terms.check_caps(self._caps)
        if terms.undeclared:
            _log.warning("%r: %s", plan.survey, terms.undeclared)
        return terms

    def _accepted(self, data: bytes) -> Plan:
        """Parse a plan; raise `InvalidInput` unless it fits the app's agreement and the choices of
        the device's own user. If the user chose no level and there is no default, there must be
        levels that somebody else could choose."""
        self._agreed.check_revision(data)
        plan = parse(data)
        self._check_shuffler(plan)
        self._check_helper(plan)
        if plan.attested:
            plan.attested.check(plan.survey, self._policy)
        self._agreed.check(plan, self._withheld)
        if self._choices.level is not None or plan.default_level:
            self._terms[self._choices] = self._checked(plan, self._choices)
        else:
            try:
                least = _least(plan)
                self._checked(plan, replace(self._choices, level=least.level, levels=least.levels))
            except InvalidInput as error:
                raise InvalidInput(
                    f"nobody could answer {plan.survey!r}, whatever level they choose: {error}"
                ) from None
        return plan

    def _check_shuffler(self, plan: Plan) -> None:
        """Raise `InvalidInput` unless the client has a shuffler exactly where records are sealed,
        and can seal to every key of the plan."""
        if plan.sealing is None:
            if self._shuffled:
                raise InvalidInput(
                    f"the records of {plan.survey!r} are not sealed, so no shuffler takes them: "
                    "leave shuffler= out"
                )
            return
        if not self._shuffled:
            raise InvalidInput(
                f"the records of {plan.survey!r} are sealed and go to a shuffler: give "
                'shuffler="HOST:PORT", the address of one that you trust not to collude with the '
                "collector"
            )
        try:
            records.check(plan)
        except MissingExtra as error:
            raise InvalidInput(str(error)) from None

    def _check_helper(self, plan: Plan) -> None:
        """Raise `InvalidInput` unless records are split with the helper that the app trusts, and
        with none where it named none: a server could be both of its two servers."""
        two = plan.two_servers
        if two is None:
            if self._helper_key:
                raise InvalidInput(
                    f"the records of {plan.survey!r} are not split between two servers: leave "
                    "helper_key= out"
                )
            return
        if two.helper_key != self._helper_key:
            given = self._helper_key.hex() or "none"
            raise InvalidInput(
                f"the records of {plan.survey!r} are split between the server and a helper "
                f"({two.helper or 'without a name'}) with the key {two.helper_key.hex()}, and "
                f"helper_key= is {given}: give the key as the helper's operator tells it, whom you "
                "trust not to collude with the server's"
            )
        try:
            shares.check(shares.splitting(plan))
        except MissingExtra as error:
            raise InvalidInput(str(error)) from None

    def _accept(self, data: bytes, plan: Plan) -> None:
        self.plan = plan
        self._kept = data
        levels = ", ".join(
            f"{each.name}: epsilon {each.epsilon:g}" for each in plan.levels.values()
        )
        revision = plan.revision.hex()[:12]
        _log.debug("took revision %s of %r; levels %s", revision, plan.survey, levels)

    def _refuse(self, why: str) -> None:
        why = on_one_line(why, _TOLD)  # it may repeat the plan's texts
        if self.plan is not None:  # the plan that was kept holds
            if self.refused_other != why:
                _log.error("another plan of %r is refused: %s", self._agreed.survey, why)
            self.refused_other = why
            return
        if self.refused != (refused := Status(Reason.PLAN_REFUSED, why)):
            _log.error("the plan of %r is refused: %s", self._agreed.survey, why)
        self.refused = refused


def _least(plan: Plan) -> Choices:
    """Return the choices that spend least: each attribute at the level that spends least on it."""
    loosest = max(plan.levels.values(), key=lambda level: level.epsilon)
    return Choices(
        loosest.name,
        tuple(
            (name, min(plan.levels.values(), key=partial(_most_spent, plan, name)).name)
            for name in plan.attributes
        ),
    )


def _most_spent(plan: Plan, attribute: str, level: Level) -> float:
    """Return the most epsilon of a question that asks an attribute."""
    if plan.two_servers:
        return level.epsilon
    return max(level.mechanisms[name].epsilon for name in plan.questions_of([attribute]))
