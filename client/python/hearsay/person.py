"""One person whose answers are recorded: a consent, a level, caps and an account of their own."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from hearsay.choices import Agreed, Caps, Choices, no_attribute
from hearsay.interrupts import is_from_handler
from hearsay.plans.kinds import Value
from hearsay.recording.consent import Consent
from hearsay.recording.counters import Counters
from hearsay.recording.ledger import Ledger, Moment, Recorded, Spending
from hearsay.recording.randomize import INVALID, UNKNOWN, WITHHELD
from hearsay.recording.terms import Terms
from hearsay.sending.plan_keeper import PlanKeeper
from hearsay.sending.sender import Delivery, Sender
from hearsay.sending.transport import Transport
from hearsay.storage.store import Store
from hearsay.trouble import Reason, Status, Trouble, to_raise
from ldp import Coins, InvalidInput
from ldp.errors import HearsayError

_log = logging.getLogger("hearsay")

_GOOD = Status(Reason.READY)

_OF_WRITING = (Reason.DISK, Reason.LOCKED)
"""Reasons that only writing an answer reveals."""

_PASSING = (
    Reason.NO_PLAN,
    Reason.LOCKED,
    Reason.UNREACHABLE,
    Reason.NAME_NOT_FOUND,
    Reason.TLS,
    Reason.CLOCK,  # until the server has said its time
)
"""Reasons that may pass by themselves while `wait_ready` waits for a plan."""

_MENDABLE = (Reason.PLAN_REFUSED, Reason.SERVER_REFUSED, Reason.CLOSED)
"""Reasons that a strict client raises, since the programmer can fix them."""

_LOOK = 0.01
"""Seconds between two looks of `wait_ready` whether there is a plan."""

_REVOKE_WAIT = 1.0
"""Seconds that `revoke` waits for a call under way to end."""


@dataclass
class Device:
    """The parts and settings of a client that its people share."""

    agreed: Agreed
    withheld: frozenset[str]
    caps: Caps
    delivery: Delivery
    strict: bool
    coins: Coins
    clock: Callable[[], datetime]
    store: Store
    ledger: Ledger
    consent: Consent
    counters: Counters
    keeper: PlanKeeper
    sender: Sender
    connect: Callable[[], Transport]
    """Returns another transport to the client's server."""
    state: Reason
    """READY while the client is open, DISABLED or CLOSED."""
    barred: str = ""
    """Why no server could ever take the token; "" if one could."""
    last: Status = _GOOD
    """The status of the last answer."""

    def warn_of_pace(self, caps: Caps) -> None:
        """Warn where a cap's pace is over; raise `Trouble` where the clock cannot be used."""
        if caps.until is not None and caps.ends <= self.clock():
            _log.warning(
                "the cap for life %g is not paced any more: its until=%r is over",
                caps.life,
                caps.until,
            )

    def note(self) -> None:
        """Load the plan and note pending consent, as far as the file can be used now."""
        try:
            self.keeper.look()
            self.consent.catch_up()
        except Trouble as trouble:
            self.last = trouble.status


class Person:
    """One person whose answers a client records, with a consent, a level, caps and an account of
    their own. `Client.person` makes one; a client is itself the person whose device it is."""

    def __init__(self, device: Device, name: str, choices: Choices, owner: object = None) -> None:
        self._device = device
        self._name = name  # "" is the device's own user
        self._choices = choices
        self._owner = owner  # the client, which must not be dropped while this is used

    def record(self, /, **answers: object) -> Recorded:
        """Randomise answers by attribute name and queue them; return each one's outcome.

        Where the survey samples attributes, the record of a period reports the few that were
        drawn for it, whatever the answers are; the others are dropped as "idle".

        A category is given as its value, or as an integer that spells it; a number as anything
        with an exact float. For an answer outside the domain (another value or type, nan) a value
        drawn uniformly from the domain is randomised in its place and counted as "invalid", so
        that no report tells. An attribute that is left out or None is withheld: that
        it was is visible, its answer is not, so do not withhold because of the answer. An
        attribute that was answered in this period already, or whose epsilon a cap does not
        allow, is dropped as "spent".

        Never raises, unless `strict`: then, before anything is spent, `InvalidInput` for an
        unknown attribute, for an answer outside its domain (the message does not repeat the
        answer), where the server refuses the request, and after `close`; and `PlanRefused`
        where the plan is refused. Takes some 100 µs. The answer
        itself is not kept; of a memoised attribute, which values have a memo is (under keyed
        hashes, with the key beside them).
        """
        recorded = self._record(answers)
        _log.debug("record: took %s, dropped %s", list(recorded.taken), recorded.dropped)
        return recorded

    def wait_ready(self, timeout: float = 10.0) -> bool:
        """Wait until there is a plan; return whether answers are taken now.

        Without this person's consent there is nothing to wait for: unless somebody has consented,
        the server is not even asked.

        With `strict`, raises `PlanRefused` where the plan is refused, and `InvalidInput` where
        the server refuses the request, as for an unknown survey, and after `close`.
        """
        deadline = time.monotonic() + timeout
        while (status := self.status()).reason in _PASSING:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            time.sleep(min(remaining, _LOOK))
        if self._device.strict and status.reason in _MENDABLE:
            raise to_raise(status.reason, status.detail)
        return status.ready

    def status(self) -> Status:
        """Return whether answers are taken now, and if not, why; and the transport's last error.

        Where the pace of a cap for life drops answers as "spent", `detail` says until when. It also
        says which values of properties are not sent, because the survey does not declare them.
        """
        device = self._device
        keeper = device.keeper
        transport = keeper.transport_error or device.sender.last_error
        try:
            self._check_open()
            device.clock()  # which raises where it cannot be used
            keeper.look()
            device.consent.catch_up()
            if not device.consent.has(self._name):
                raise Trouble(Reason.NO_CONSENT)
            resumes = self._check()
            if device.last.reason in _OF_WRITING:  # looking may go well where writing does not
                device.store.probe()
                device.last = Status(Reason.READY)
        except Trouble as trouble:
            return Status(trouble.status.reason, trouble.status.detail, transport)
        undeclared = self._terms().undeclared
        details = [each for each in (keeper.refused_other, undeclared) if each]
        if resumes is not None:
            details.append(
                "the cap for life is paced: answers are taken again in a period that is first "
                f"answered at {resumes:%Y-%m-%d %H:%M:%S} UTC or later"
            )
        return Status(Reason.READY, "; ".join(details), transport)

    def grant(self) -> None:
        """Note the user's consent to this survey in the ledger; raise nothing.

        Where that is not possible now, it is tried again, and `status` says why.
        """
        device = self._device
        if device.state is Reason.READY:
            device.consent.grant(self._name)
            device.note()
            device.sender.wake()

    def revoke(self, *, forget: bool = False) -> None:
        """Revoke consent: stop taking and sending answers at once, note it in the ledger, and
        drop waiting reports; raise nothing. Where noting is not possible now, it is tried again.

        With `forget`, the server is asked to delete the batches that were under way and may
        have reached it. Acknowledged batches stay counted, and spent epsilon stays spent.
        """
        device = self._device
        if device.state is not Reason.READY:
            return
        device.consent.revoke(self._name, forget=forget)
        token = object()
        try:
            device.sender.pause(token, _REVOKE_WAIT, most=3 * _REVOKE_WAIT)
            device.consent.catch_up_within(_REVOKE_WAIT)
        finally:
            device.sender.resume(token)

    def set_caps(self, caps: Caps) -> None:
        """Set the user's own caps, kept in the ledger; the lower of these and the app's hold.

        The caps `life` and `rho` are for the whole ledger, the others for this survey. Where they
        cannot be kept, raises `StorageFailed`, `NotReady` where others hold the ledger for long,
        and `InvalidInput` where the client's `clock` cannot be used.
        """
        try:
            self._device.warn_of_pace(caps)
            self._device.ledger.set_own_caps(self._name, caps)
        except Trouble as trouble:
            words = f"the caps could not be kept: {trouble}"
            raise to_raise(trouble.status.reason, words) from None

    def spendings(self) -> tuple[Spending, ...]:
        """Return the epsilon spent and left of each attribute; empty without a plan.

        What trainings cost is in `hearsay.federated.Participant.spending`.
        """
        device = self._device
        try:
            terms = self._terms()
            now = device.clock()
            return tuple(device.ledger.spendings(self._name, terms, device.caps, now))
        except HearsayError:
            return ()

    @property
    def level(self) -> str:
        """The person's level: the chosen one, or else the client's, or else the survey's default.

        Raises `NotReady` where there is no plan, and `PlanRefused` where it was refused;
        `InvalidInput` where it has no such level.
        """
        return self._terms().level.name

    @property
    def record_epsilon(self) -> float:
        """The most epsilon that one of the person's records spends. Raises as `level`."""
        return self._terms().record_epsilon

    def _check_open(self) -> None:
        device = self._device
        if device.state is Reason.CLOSED:
            raise Trouble(Reason.CLOSED, "this client is closed; make a new one to record")
        if device.state is Reason.DISABLED:
            raise Trouble(Reason.DISABLED, "HEARSAY_DISABLED is set")
        if device.barred:
            raise Trouble(Reason.BAD_TOKEN, device.barred)
        if device.consent.is_revoked(self._name):
            raise Trouble(Reason.NO_CONSENT)

    def _check(self) -> datetime | None:
        device = self._device
        terms = self._answering()
        return device.ledger.check(self._name, terms, moment=self._moment(), caps=device.caps)

    def _moment(self) -> Moment:
        return Moment(self._device.clock(), self._device.keeper.server_time)

    def _terms(self) -> Terms:
        """Return the terms of this person; raise as `PlanKeeper.terms` where there are none."""
        return self._device.keeper.terms(self._choices)

    def _answering(self) -> Terms:
        """Return the terms on which answers are taken; raise `Trouble` where none are."""
        device = self._device
        device.keeper.confirm_created()
        if device.keeper.plan is None:
            device.sender.start()
            device.keeper.look()
            if not device.consent.has(self._name):
                raise Trouble(Reason.NO_CONSENT)
            if device.keeper.plan is None:
                refused = device.keeper.refused
                raise Trouble(refused.reason, refused.detail)
        try:
            return self._terms()
        except InvalidInput as error:
            raise Trouble(Reason.PLAN_REFUSED, str(error)) from None

    def _record(self, answers: Mapping[str, object]) -> Recorded:
        device = self._device
        given = {name: answer for name, answer in answers.items() if answer is not None}
        try:
            return self._try_to_record(given)
        except Trouble as trouble:
            if device.strict and trouble.status.reason in _MENDABLE:
                raise to_raise(trouble.status.reason, str(trouble)) from None
            reason = trouble.status.reason
            device.last = trouble.status
            if reason in (Reason.CLOCK, Reason.DISK):  # the server's time, or room, may be had
                device.sender.wake()
            if reason is not Reason.DISABLED and given:
                device.counters.add(reason, len(given), trouble.status.detail)
            return Recorded(dropped=dict.fromkeys(given, str(reason)))
        except Exception as error:
            if device.strict or is_from_handler(error):
                raise
            # Without its message, which may have the answer in it.
            _log.error("an answer could not be recorded: %s", type(error).__name__)
            device.counters.add("failed", len(given))
            return Recorded(dropped=dict.fromkeys(given, "failed"))

    def _try_to_record(self, given: Mapping[str, object]) -> Recorded:
        device = self._device
        self._check_open()
        moment = self._moment()
        device.consent.catch_up()  # where noting it failed before
        terms = self._answering()
        values: dict[str, Value | None] = {}
        dropped: dict[str, str] = {}
        invalid = []
        for name, answer in given.items():
            if name not in terms.plan.attributes:
                if device.strict:
                    raise InvalidInput(no_attribute(terms.plan, name))
                dropped[name] = UNKNOWN
            elif name in terms.withheld:
                dropped[name] = WITHHELD
            else:
                try:
                    values[name] = terms.encode(name, answer)
                except InvalidInput as error:
                    if device.strict:
                        raise
                    _log.debug("an answer was replaced: %s", error)
                    values[name] = None
                    invalid.append(name)
        waiting = 0, 0, 0
        taken: list[str] = []
        if values:
            taken, not_taken, waiting = device.ledger.record(
                self._name,
                terms,
                values,
                moment=moment,
                caps=device.caps,
                limits=(device.delivery.max_reports, device.delivery.max_bytes),
                coins=device.coins,
            )
            dropped |= not_taken
            device.last = Status(Reason.READY)
        wrong = tuple(name for name in invalid if name in taken)
        self._count(taken, dropped, wrong, waiting[2])
        reports, size, _ = waiting
        delivery = device.delivery
        device.sender.start()  # a forked child has none yet
        if (
            reports == 1
            or reports >= delivery.batch_rows
            or size >= delivery.batch_bytes
            or device.store.log_is_long
        ):
            device.sender.wake()
        return Recorded(tuple(taken), dropped, wrong)

    def _count(
        self, taken: list[str], dropped: Mapping[str, str], invalid: tuple[str, ...], overflow: int
    ) -> None:
        counters = self._device.counters
        if taken:
            counters.add("recorded")
        for reason in dropped.values():
            counters.add(reason)
        if invalid:
            counters.add(INVALID, len(invalid))
        if overflow:
            counters.add("overflow", overflow)
