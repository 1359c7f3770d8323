"""The device's client: randomise answers on the device, and send only randomised reports."""

import contextlib
import logging
import os
import re
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from hearsay import environment, lifetimes
from hearsay.agreement import Agreement
from hearsay.attestation import Policy
from hearsay.choices import Agreed, Caps, Choices, number_of
from hearsay.interrupts import is_from_handler
from hearsay.person import Device, Person
from hearsay.plans.plan import Plan
from hearsay.plans.two_servers import USUAL_DELTA, helper_key_of
from hearsay.recording import outbox
from hearsay.recording.consent import Consent
from hearsay.recording.counters import Counters, OnDrop
from hearsay.recording.ledger import Ledger
from hearsay.recording.outbox import Outbox
from hearsay.sending.attested import Attested
from hearsay.sending.attested_keys import AttestedKeys
from hearsay.sending.plan_keeper import PlanKeeper
from hearsay.sending.sender import Delivery, DeliveryState, Sender
from hearsay.sending.through_shuffler import ThroughShuffler
from hearsay.sending.transport import Tls, Token, Transport, Unreachable, check_token, connect
from hearsay.storage.anchors import Anchor
from hearsay.storage.store import Store
from hearsay.trouble import Reason, Trouble, to_raise
from ldp import Coins, InvalidInput

_log = logging.getLogger("hearsay")

_NO_CAPS = Caps()
_USUAL = Delivery()


MayReveal = Mapping[str, Collection[str] | Mapping[str, Collection[str]]]
"""Values that may be revealed, by attribute; or, of an attribute with maps, by map."""


class _Memory:
    """The type of `MEMORY`."""

    def __repr__(self) -> str:
        return "hearsay.MEMORY"


MEMORY: Final = _Memory()
"""As a client's ledger: keep it in this process's memory, and lose it with the process. If the
process runs again, it may spend a period's epsilon again."""


class Client(Person):
    """Record answers: randomise each on this device, queue it, send the codes.

    Guarantee: all that leaves the device for one person and period is epsilon-LDP for the whole
    record, epsilon being `record_epsilon`, at most the chosen level's where no attribute has
    another, and at most what the app agreed to; over periods epsilons add up, and the caps for
    life bound the sum. A memoised attribute costs its memo's epsilon once per distinct value,
    which bounds what all its reports tell between lives whose answers repeat at the same times
    (`Memoizer`), as a, b, a and b, c, b do, and no others: reports may tell THAT and WHEN an answer
    changed, and that an earlier one came back. Of a survey that splits records between two servers,
    which only an app with `helper_key` takes part in, the epsilon is of sums, at a delta, against
    either server while the other one is honest. Each attribute is randomised at most once per
    person and period; a repeated answer is dropped and counted. Whether, when and in which form
    something leaves depends on the plan and on the calls, never on the answers. It holds against
    everybody, whatever the server sends, and across crashes, restarts, threads, forks and processes
    that share the ledger's file. Where the survey declares sensitive values or classes of an
    attribute, or the person chose one of its maps, its policy takes the place of its epsilon, and
    the ordinary values that `may_reveal` names may be revealed. Over periods with different maps
    only the values that all of them protect stay protected. What is in the clear: the survey, the
    levels and maps, which attributes were answered, the period, the time of contact, and, where the
    survey has them, the properties that the app gives and the person's panel, which is drawn once:
    they link a person's reports.

    With `helper_key` the guarantee is another one: each record is split between two servers, and
    the sums that these learn are (epsilon, delta)-DP for each record, by the plan's `two_servers`,
    while one of the two and enough of the devices are honest. Both together see single records.

    A client that is dropped without `close` stops sending: waiting reports stay in the file.

    No answer is taken before `grant` (or `consent=True`). No fault of the network, the disk or
    the server raises, or blocks for longer than a transaction of the file; dropped answers are
    counted in `counters` by their reason, and `status` says why.
    """

    def __init__(
        self,
        target: str | Transport | None = None,
        survey: str | Agreement = "",
        *,
        ledger: str | os.PathLike[str] | _Memory,
        level: str | None = None,
        levels: Mapping[str, str] = MappingProxyType({}),
        maps: Mapping[str, str] = MappingProxyType({}),
        properties: Mapping[str, str] = MappingProxyType({}),
        epsilon: float | None = None,
        delta: float | None = None,
        consent: bool = False,
        caps: Caps = _NO_CAPS,
        withhold: Collection[str] = (),
        may_reveal: MayReveal = MappingProxyType({}),
        may_tell_changes: Collection[str] = (),
        panels: int = 0,
        revision: str | None = None,
        anchor: Anchor | None = None,
        tls: Tls | None = None,
        token: Token | None = None,
        insecure: bool = False,
        shuffler: str | Transport | None = None,
        shuffler_token: Token | None = None,
        shuffler_key: str | None = None,
        relay: str | None = None,
        helper_key: str | None = None,
        attestation: Policy | None = None,
        delivery: Delivery = _USUAL,
        on_drop: OnDrop | None = None,
        debug: bool = False,
        strict: bool = False,
        coins: Coins | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Prepare to answer a survey of the server at "host:port" (over gRPC) or "https://host"
        (over HTTP); return at once.

        `survey` is the `AGREEMENT` of the module that `hearsay codegen` wrote: then the app
        accepts exactly that plan, whatever the server sends. Or it is the survey's name: then
        `epsilon` must say the most that one record may spend, the first plan that keeps to it is
        accepted and kept in the ledger, and every other one is refused, for ever; `revision`, the
        hex SHA-256 that `hearsay survey show` prints, refuses any other plan from the start. By
        `epsilon` alone a server can give each device a plan of its own at first contact, as by the
        last bits of a probability, and know its reports by it: only an agreement or a revision
        excludes that.

        `ledger` is the file of this installation (one for all its surveys, people and processes;
        see `create_ledger`), or `MEMORY`; `anchor` recognises an old copy of it. `consent` grants,
        as `grant` does; without it the consent noted in the ledger's file holds.

        Decide these before any answer is known: `level` names the person's epsilon (None: the
        survey's default), `levels` that of some attributes, by name; `maps` the values that the
        person minds, as the name of a map of an attribute, by attribute: its other values may be
        revealed, and without one all are protected alike; `caps` are the app's;
        `withhold` names the attributes that are never answered, whatever `record` is given;
        `may_reveal` the ordinary values that may be revealed, by attribute, or by attribute and map
        (`{"diagnosis": {"mine": ["none", "cold"]}}`), `may_tell_changes` the memoised
        attributes, whose reports tell when an answer changes or comes back, and `panels` the most
        panels that people may be divided into: with 16 every report of a person has the same 4 bits
        in the clear, for the life of the survey (an `AGREEMENT` contains all three).

        `properties` are the values of public properties that the survey declares, by name, such as
        `{"platform": "ios"}`: everybody reads them on each batch. Give what is so whatever the
        person answers, and never compute a value from an answer: no mechanism protects it. One
        that is not given is sent empty. Another value later, as of a new version of the app, goes
        into other batches. A value that the survey does not declare is sent empty, too, and
        `status` says so. Where the survey declares no such property, nothing is sent: the arguments
        are refused, or the plan that came is.

        TLS with the system's authorities is used for any host that is not loopback unless
        `insecure`, with which "http://" may name such a host; `tls`, a `Tls(...)`, names other
        authorities or a certificate, and is used on loopback, too; `token` proves to the server
        who calls. Where `target` or `token` is None, the environment's HEARSAY_TARGET and
        HEARSAY_TOKEN are used. HEARSAY_DISABLED=1 makes a client that takes and sends nothing.
        `shuffler` is the address of the shuffler that takes this survey's sealed records, written
        as `target`, and `shuffler_token` proves to it who calls: for a survey that declares
        `sealing`, and for no other. The plan comes from `target`, which gets no record from this
        device. Choose a shuffler whose operator does not collude with the collector's: together
        they know what a collector without a shuffler knows. `tls` and `insecure` hold for both.
        `relay` is the URL, "https://host/path", of a relay of Oblivious HTTP (RFC 9458) that stands
        before the shuffler, which is "https://host" then, and `shuffler_key` the key that its
        operator tells (`hearsay shuffler key`): the shuffler sees the relay's address in the place
        of the device's, and the relay sees nothing of what is said.
        `helper_key` is the key, in hexadecimal, of the helper of a survey that declares
        `two_servers`, as its operator tells it: records are split between the server and this
        helper, and a plan that names another one, or none, is refused. A record is then all answers
        of one call of `record`. Its epsilon is of sums, and holds at the plan's delta, which may be
        `delta` at most: 1e-6 unless the app names another, or the exact plan by its agreement or
        `revision`.
        `attestation` is the app's `hearsay.attestation.Policy`: no record leaves before the server
        at `target` has given evidence that meets it, and `delivery.last_error` names the condition
        that failed. The evidence is of the sealing keys where there is a shuffler, and else of the
        one certificate in `tls.authorities`. With a shuffler the server is asked for it while the
        client lives, whether or not anything waits. Such a client takes part in no training.
        `debug`, or HEARSAY_DEBUG=1, logs events to stderr, but no answer and no code. `on_drop`
        is called, in any thread, with the reason and the number of answers, reports or batches
        dropped, except for "idle". `strict` is for development: errors that the programmer can
        fix raise. `coins` and `clock` are for tests and simulations.

        Raises `InvalidInput` where an argument is missing, contradicts another or is malformed,
        and where a file of `tls` cannot be read.
        """
        if debug or environment.is_set("HEARSAY_DEBUG"):
            environment.log_to_stderr()
        agreed = _agreed(survey, epsilon, delta, revision, may_reveal, may_tell_changes, panels)
        choices = _choices(level, levels, maps, properties)
        _check_declared(agreed, choices)
        clock, coins, withheld = (
            _checked(clock),
            coins or Coins(),
            _listed("withhold", withhold, "names"),
        )
        disabled = environment.is_set("HEARSAY_DISABLED")
        if disabled:  # nothing is asked for, and no file is made
            target, ledger = target or "http://127.0.0.1:1", MEMORY
        token = token if token is not None else environment.value("HEARSAY_TOKEN")
        reach: Callable[[], Transport] = partial(
            _transport, target, tls, token=token, insecure=insecure
        )
        self._transport = reach()
        if shuffler is not None:
            mixing = _mixing(shuffler, relay, shuffler_key, tls, shuffler_token, insecure)
            self._transport = ThroughShuffler(self._transport, mixing)
        elif shuffler_token is not None:
            raise InvalidInput("shuffler_token is for a shuffler: give shuffler, too")
        elif relay is not None or shuffler_key is not None:
            raise InvalidInput("relay and shuffler_key are for a shuffler: give shuffler, too")
        keys: AttestedKeys | None = None
        if attestation is not None and not disabled:
            if shuffler is None:
                by = partial(_transport, target, token=token, insecure=insecure)
                self._transport = Attested(by, tls, attestation, clock)
            else:
                keys = self._transport = AttestedKeys(
                    self._transport,
                    attestation,
                    clock,
                    first_wait=delivery.first_wait,
                    longest_wait=delivery.longest_wait,
                )
            reach = _no_training
        file = None if isinstance(ledger, _Memory) else Path(ledger)
        store = Store(file, clock, wait=delivery.record_wait, anchor=anchor)
        accounts = Ledger(store, agreed.survey)
        counters = Counters(store, agreed.survey, on_drop)
        permission = Consent(store, agreed.survey, clock, counters)
        keeper = PlanKeeper(
            store,
            self._transport,
            agreed,
            choices,
            withheld,
            caps,
            clock,
            shuffled=shuffler is not None,
            helper_key=helper_key_of(helper_key),
            policy=attestation,
        )
        sender = Sender(
            store,
            self._transport,
            agreed.survey,
            delivery,
            keeper=keeper,
            consent=permission,
            counters=counters,
            clock=clock,
            coins=coins,
            attested=keys,
        )
        device = Device(
            agreed=agreed,
            withheld=withheld,
            caps=caps,
            delivery=delivery,
            strict=strict,
            coins=coins,
            clock=clock,
            store=store,
            ledger=accounts,
            consent=permission,
            counters=counters,
            keeper=keeper,
            sender=sender,
            connect=reach,
            state=Reason.DISABLED if disabled else Reason.READY,
            barred=_barred((target, token), (shuffler, shuffler_token)),
        )
        super().__init__(device, "", choices)
        self._emptied = False
        self._pause = object()  # of the sender, while the process forks
        self._holds = False
        if disabled:
            return
        if consent:
            permission.grant("")
        with contextlib.suppress(Trouble):  # `status` says why
            device.warn_of_pace(caps)
        device.note()
        # At the exit of the process there is a flush instead.
        weakref.finalize(self, sender.abandon).atexit = False
        lifetimes.watch(self)
        # Otherwise there is nothing to do yet.
        if file is not None or keeper.plan is None or keys is not None:
            sender.start()

    def person(
        self,
        name: str,
        *,
        level: str | None = None,
        levels: Mapping[str, str] = MappingProxyType({}),
        maps: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> "Person":
        """Return one of several people whose answers this client records: with a consent, a
        level, caps and an account of their own.

        For a web backend, say, which answers for its users. The file knows them by a keyed hash
        of `name`. `level` and `levels` are the person's choices; without them the client's hold.
        So are `maps`; without them the client's hold, and `maps={}` chooses none. `properties` are
        those of the person's device, as of a client; without them the client's hold.
        Raises `InvalidInput` for an empty name, and for a property that the survey lacks.
        """
        if not name:
            raise InvalidInput("a person needs a name")
        choices = _choices(level, levels, maps or {}, properties or {})
        _check_declared(self._device.agreed, choices)
        if level is None and not levels:
            choices = replace(choices, level=self._choices.level, levels=self._choices.levels)
        if maps is None:
            choices = replace(choices, maps=self._choices.maps)
        if properties is None:
            choices = replace(choices, properties=self._choices.properties)
        return Person(self._device, name, choices, owner=self)

    def trust_clock(self) -> None:
        """Accept this device's clock as right, as if the server had reported the same time.

        For an app that cannot reach the server and asks its user: it lets periods be answered
        that the client would refuse (`Reason.CLOCK`), because they begin more than a day after
        the server's last reported time, or before a period that was answered while the clock was
        wrong. It never lets one ledger answer a period twice, and does not confirm when a new
        ledger was made (`Reason.NEW_LEDGER`). Where the time cannot be kept, raises
        `StorageFailed`, `NotReady` where others hold the ledger for long, and `InvalidInput`
        where the client's `clock` cannot be used.
        """
        try:
            self._device.keeper.trust_clock()
        except Trouble as trouble:
            words = f"the clock's time could not be kept: {trouble}"
            raise to_raise(trouble.status.reason, words) from None

    def outbox(self) -> Outbox:
        """Return the waiting reports and sent batches, decoded, exactly as the server sees them."""
        try:
            return outbox.view(self._device.store, self._device.agreed.survey)
        except Trouble:
            return Outbox((), (), ())

    @property
    def counters(self) -> Mapping[str, int]:
        """Records queued ("recorded"); answers and reports dropped, by reason: "spent", "idle",
        "withheld", "unknown", "overflow" (reports beyond the queue), "revoked", "period_closed",
        "lost", and those of `Reason`; answers that a random value was reported for ("invalid");
        batches by their outcome: "stored", "duplicate", "refused". Kept in the ledger."""
        return MappingProxyType(dict(self._device.counters.read()))

    @property
    def delivery(self) -> DeliveryState:
        """When a batch was last answered, the last error, and how long the oldest report waits."""
        oldest = None
        try:
            now = self._device.clock().timestamp()
            waits = outbox.waiting(self._device.store, self._device.agreed.survey, now)
            since = min(waits.oldest, waits.oldest_sealed)
            oldest = max(0.0, now - since) if waits.reports or waits.batches else None
        except Trouble:
            pass
        sender = self._device.sender
        error = sender.last_error or self._device.keeper.transport_error
        return DeliveryState(sender.last_success, error, oldest)

    def flush(self, timeout: float = 30.0) -> bool:
        """Send all waiting reports; return whether all were answered within `timeout` seconds.

        A batch without a final answer stays queued, and goes again with the same id and
        bytes, so the server counts it once. A batch that the server refuses is dropped, counted
        and logged with its reason. Where the server asked to be left alone for longer than
        `timeout`, or failed so often that the next try is later than that, it is not asked.
        """
        if self._device.state is Reason.CLOSED:
            return self._emptied
        if self._device.state is Reason.DISABLED:
            return True
        return self._device.sender.flush(timeout)

    def close(self, timeout: float = 10.0) -> bool:
        """Flush for at most `timeout` seconds, then disconnect; return whether no report is left.

        Unsent reports wait in the ledger's file for its next client; with a ledger in memory
        they are counted as "lost". Closing again does nothing.
        """
        device = self._device
        if device.state is Reason.READY:
            # An exception of a signal handler leaves the client open: close it again.
            self._emptied = self._is_empty() or device.sender.flush(timeout)
            self._keep_counters()
            device.state = Reason.CLOSED
            device.sender.stop()
            device.sender.join(0.2)  # a call that does not end is abandoned
            device.store.release()
            waits = "nothing waits" if self._emptied else "something waits"
            _log.debug("closed the client of %r: %s", device.agreed.survey, waits)
        return self._emptied or device.state is Reason.DISABLED

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def plan(self) -> Plan:
        """The survey's plan. Where there is none, raises `NotReady`, `PlanRefused` where it was
        refused, and `InvalidInput` where the server refuses the request."""
        keeper = self._device.keeper
        if keeper.plan is None:
            raise keeper.no_plan()
        return keeper.plan

    def _is_empty(self) -> bool:
        try:
            return not outbox.left(self._device.store, self._device.agreed.survey)
        except Trouble:
            return False

    def _keep_counters(self) -> None:
        try:
            self._device.counters.keep()
        except Trouble as trouble:
            _log.warning("the counters could not be kept: %s", trouble)

    def before_fork(self, deadline: float) -> None:
        """Pause sending and close the ledger before a fork; `hearsay.lifetimes` calls this."""
        self._device.sender.pause(self._pause, max(0.0, deadline - time.monotonic()))
        # The file must not be open in two processes, so it is not while there are two.
        self._holds = self._device.store.hold(max(0.0, deadline - time.monotonic()))
        if self._holds:
            self._device.store.release()

    def after_fork(self, *, child: bool) -> None:
        """Resume after a fork, in the parent or the child; `hearsay.lifetimes` calls this."""
        if child:
            quiet = self._device.sender.is_quiet
            self._device.counters.after_fork()
            self._device.consent.after_fork()
            self._device.keeper.after_fork()
            self._device.sender.after_fork()
            self._device.store.after_fork(usable=self._holds)
            self._transport.after_fork(usable=quiet)
            return
        if self._holds:
            self._device.store.let_go()
        self._device.sender.resume(self._pause)

    def end(self, spent: float) -> None:
        """Close as the process ends, `spent` seconds late; `hearsay.lifetimes` calls this."""
        self.close(max(0.0, self._device.delivery.exit_timeout - spent))


def _agreed(
    survey: str | Agreement,
    epsilon: float | None,
    delta: float | None,
    revision: str | None,
    may_reveal: MayReveal,
    may_tell_changes: Collection[str],
    panels: int,
) -> Agreed:
    """Return the agreement that a client's arguments give; raise `InvalidInput` without one."""
    if isinstance(survey, Agreement):
        if revision is not None or may_reveal or may_tell_changes or panels:
            raise InvalidInput(
                "the agreement contains revision, may_reveal, may_tell_changes and panels: leave "
                "them out"
            )
        for name, value in (("epsilon", epsilon), ("delta", delta)):
            if value is not None:
                raise InvalidInput(
                    "the agreement contains the levels with their epsilons, and the exact plan: "
                    f"leave {name}={value!r} out"
                )
        return Agreed.by_module(survey)
    if not isinstance(survey, str) or not survey:
        raise InvalidInput("give the survey: an AGREEMENT that `hearsay codegen` wrote, or a name")
    if epsilon is None:
        raise InvalidInput(
            "without the module that `hearsay codegen` writes, give epsilon=: the most that one "
            "record may spend"
        )
    epsilon = number_of("epsilon", epsilon)
    if not 0 < epsilon < float("inf"):
        raise InvalidInput(f"epsilon must be finite and > 0, got {epsilon!r}")
    if delta is not None and not 0 < (delta := number_of("delta", delta)) < 1:
        raise InvalidInput(f"delta must lie in (0, 1), got {delta!r}")
    if revision is not None and not _is_revision(revision):
        raise InvalidInput(f"revision must be 64 lower-case hexadecimal digits, got {revision!r}")
    if delta is None and revision is None:
        delta = USUAL_DELTA
    if not isinstance(may_reveal, Mapping):
        raise InvalidInput(
            'may_reveal names the values of each attribute, as {"affair": ["no"]}, '
            f"got {may_reveal!r}"
        )
    always: dict[str, frozenset[str]] = {}
    by_map: dict[tuple[str, str], frozenset[str]] = {}
    for name, values in may_reveal.items():
        if isinstance(values, Mapping):
            for chosen, own in values.items():
                by_map[name, chosen] = _listed(f"may_reveal[{name!r}][{chosen!r}]", own, "values")
        else:
            always[name] = _listed(f"may_reveal[{name!r}]", values, "values")
    if not isinstance(panels, int) or panels < 0:
        raise InvalidInput(f"panels must be a whole number, the most there may be, got {panels!r}")
    return Agreed(
        survey,
        epsilon,
        revision,
        always,
        _listed("may_tell_changes", may_tell_changes, "names"),
        may_reveal_by_map=by_map,
        panels=panels,
        delta=delta,
    )


def _listed(place: str, texts: Collection[str], what: str) -> frozenset[str]:
    """Return texts that are listed; raise `InvalidInput` for one text, and for what is no list."""
    if (
        isinstance(texts, str)
        or not isinstance(texts, Collection)
        or not all(isinstance(text, str) for text in texts)
    ):
        raise InvalidInput(f"{place} must be a list of {what}, got {texts!r}")
    return frozenset(texts)


def _is_revision(revision: object) -> bool:
    return isinstance(revision, str) and re.fullmatch("[0-9a-f]{64}", revision) is not None


def _choices(
    level: str | None,
    levels: Mapping[str, str],
    maps: Mapping[str, str],
    properties: Mapping[str, str],
) -> Choices:
    if not isinstance(level, str | None):
        raise InvalidInput(f"a level is a name, got {level!r}")
    if not isinstance(levels, Mapping) or not all(isinstance(own, str) for own in levels.values()):
        raise InvalidInput(
            f'levels names a level for each attribute, as {{"mood": "strict"}}, got {levels!r}'
        )
    if not isinstance(maps, Mapping) or not all(isinstance(name, str) for name in maps.values()):
        raise InvalidInput(
            f'maps names a map for each attribute, as {{"diagnosis": "mine"}}, got {maps!r}'
        )
    if not isinstance(properties, Mapping) or not all(
        isinstance(value, str) for value in properties.values()
    ):
        raise InvalidInput(
            f'properties has a value for each name, as {{"platform": "ios"}}, got {properties!r}'
        )
    return Choices(
        level,
        tuple(sorted(levels.items())),
        tuple(sorted(maps.items())),
        tuple(sorted(properties.items())),
    )


def _check_declared(agreed: Agreed, choices: Choices) -> None:
    """Raise `InvalidInput` for a property that the app's agreement does not declare."""
    if agreed.agreement is not None:
        agreed.agreement.declared.checked(dict(choices.properties))


def _no_training() -> Transport:
    raise InvalidInput(
        "a client with attestation= takes part in no training: its updates would go to a server "
        "that gave no evidence. Use a client without it, for a server that you trust with updates"
    )


def _transport(
    target: str | Transport | None, tls: Tls | None, *, token: Token | None, insecure: bool
) -> Transport:
    if target is None:
        target = environment.value("HEARSAY_TARGET")
    if target is None:
        raise InvalidInput(
            'give the server as "host:port" or "https://host", or set HEARSAY_TARGET'
        )
    return _reached(target, tls, token, insecure)


def _barred(*ways: tuple[str | Transport | None, Token | None]) -> str:
    """Return why nothing could ever be delivered by a token that is given as a text; "" if it
    could."""
    try:
        for target, token in ways:
            if target is None or isinstance(target, str):
                check_token(token)
    except Unreachable as error:
        return str(error)
    return ""


def _reached(
    target: str | Transport, tls: Tls | None, token: Token | None, insecure: bool
) -> Transport:
    if not isinstance(target, str):
        return target
    return connect(target, tls=tls, token=token, insecure=insecure)


def _mixing(
    shuffler: str | Transport,
    relay: str | None,
    key: str | None,
    tls: Tls | None,
    token: Token | None,
    insecure: bool,
) -> Transport:
    """Return the way to a shuffler: straight, or by a relay."""
    if (relay is None) != (key is None):
        raise InvalidInput("relay and shuffler_key go together: give both or neither")
    if relay is None or key is None:
        return _reached(shuffler, tls, token, insecure)
    if not isinstance(shuffler, str):
        raise InvalidInput('with a relay, shuffler is the URL that it leads to: "https://host"')
    from hearsay.sending.relayed import RelayedTransport  # which needs an extra

    return RelayedTransport(relay, shuffler, key, tls=tls, token=token, insecure=insecure)


def _checked(clock: Callable[[], datetime]) -> Callable[[], datetime]:
    """Return a clock in UTC that raises `Trouble` where the app's raises, or returns no aware time
    of the years 1001 to 9998."""

    def checked() -> datetime:
        try:
            now = clock()
        except Exception as error:
            if is_from_handler(error):
                raise
            raise Trouble(Reason.CLOCK, f"the clock raised {type(error).__name__}") from None
        found = _in_utc(now)
        if found is None:
            shown = repr(now) if isinstance(now, datetime) else f"a {type(now).__name__}"
            raise Trouble(
                Reason.CLOCK,
                "the clock must return a datetime with a time zone, such as "
                f"datetime.now(timezone.utc), of the years 1001 to 9998 in UTC, got {shown}",
            )
        return found

    return checked


def _in_utc(now: object) -> datetime | None:
    """Return a time in UTC; None where it is none of the years 1001 to 9998, for which all periods
    have names of four digits, a beginning and an end."""
    try:
        if not isinstance(now, datetime) or now.utcoffset() is None:
            return None
        found = now.astimezone(UTC)
    except Exception as error:  # the code of a tzinfo; OverflowError beyond the years 1 to 9999
        if is_from_handler(error):
            raise
        return None
    return found if 1001 <= found.year <= 9998 else None
