"""A person's part in a federated training: when a step runs, what leaves, and what it costs."""

import contextlib
import logging
import random
import threading
from collections.abc import Callable, Mapping
from typing import NoReturn

import numpy as np

from hearsay import lifetimes
from hearsay.federated import encoding, models
from hearsay.federated.agreed import Agreed, price
from hearsay.federated.calls import TrainerCalls
from hearsay.federated.declaration import Training
from hearsay.federated.progress import QUIET, Progress
from hearsay.federated.stepping import Round, Skip, Step, Stepper
from hearsay.person import Person
from hearsay.plain import on_one_line
from hearsay.plans.two_servers import helper_key_of
from hearsay.recording.consent import Consent
from hearsay.recording.counters import Counters
from hearsay.recording.ledger import check_for_life
from hearsay.recording.trainings import (
    Participation,
    TrainingLedger,
    Update,
    drop_updates,
    ledger_name,
    new_id,
)
from hearsay.sending.transport import Unreachable
from hearsay.storage.turns import Turn
from hearsay.trouble import Reason, Trouble
from hearsay.v1 import collector_pb2, trainer_pb2
from ldp import InvalidInput

_log = logging.getLogger("hearsay")

_POLLS = 16
"""How often a device looks for a round in the time that one lasts, where the server does not say
when to come again."""

_LONGEST = 3600.0
"""Seconds for which a server can ask to be left alone."""

_TURN = "this participant"
"""What one thread at a time uses."""

_REVOKE_WAIT = 1.0
"""Seconds that `revoke` waits for the ledger."""


class Participant:
    """Take part in one training, for the person of a client or of `Client.person`.

    The app's own code computes the update; no code comes from the server. The device keeps to what
    the app agreed to, whatever the server sends: the first training accepted by this name is kept
    in the ledger's file and every other one is refused for ever; what it costs is computed from its
    integers; a person takes part in at most `participations` rounds, `separation` apart, across
    crashes, restarts, forks and processes that share the file, and with `epsilon` or `rho` charged
    before the first byte of an update leaves.

    Guarantee, by the training's protection (`hearsay.federated.declaration.Training`):
    - central: all models are `rho`-zCDP for this person's updates against zeros in their place, if
      the server is honest; against the server itself nothing is promised;
    - two servers: the sums spend `rho` against either server, if the other one is honest;
    - local noise: all that leaves is LDP with the sum of the updates' epsilons, whoever reads it;
    - record level: nothing for the person; each record has what the app's own DP-SGD gives it.
    Whether an update leaves depends on the training and on calls, never on data: a step that fails
    makes an update of zeros, which is charged and sent. When it leaves depends on how long the step
    took, unless `step_seconds` is given, which local noise needs. A process that dies in its step
    sends nothing, which is visible.

    An idle one has no thread and no connection, and makes no file.
    """

    def __init__(
        self,
        client: Person,
        training: str,
        *,
        steps: Mapping[str, Step],
        rho: float | None = None,
        epsilon: float | None = None,
        record_level: float | None = None,
        revision: str | None = None,
        helper_key: str | None = None,
        step_seconds: float | None = None,
        consent: bool = False,
    ) -> None:
        """Prepare to take part; return at once.

        `steps` has the app's code by the architecture that it is for, such as `{"2nn": step}`:
        `step(model, round)` takes float32 arrays by name and a `Round`, and returns a model of the
        same names and shapes. It may raise `Skip` to take no part in a round.

        Say the most that the whole training may cost: `rho` accepts one with central noise,
        `epsilon` one with local noise, and `record_level`, the least noise multiplier, one whose
        steps protect records and not the person: what a record's epsilon is depends on the app's
        DP-SGD, on epochs and participations too, and nothing here checks it. With `helper_key`, in
        hexadecimal, as the helper's operator tells it, `rho` accepts one that splits each update
        between the server and this helper, and no other.
        `revision`, the hex SHA-256 that `hearsay training show` prints, refuses any other one. The
        caps of the client and of the person hold, too. `step_seconds` is how long after the step
        began its update leaves, however long it took: a step that takes longer, with the encoding
        of its update, counts as failed.
        `consent` grants, as `grant` does.

        Raises `InvalidInput` where nothing is accepted, a number is not finite and > 0, a key is
        none, or `epsilon` or `helper_key` comes without `step_seconds`.
        """
        device = client._device
        helper = helper_key_of(helper_key) or None
        costs = (rho, epsilon, record_level)
        self._agreed = Agreed(training, frozenset(steps), *costs, revision, helper)
        if step_seconds is not None and not 0 < step_seconds < threading.TIMEOUT_MAX:
            raise InvalidInput(f"step_seconds must be finite and > 0, got {step_seconds!r}")
        if (epsilon is not None or helper is not None) and step_seconds is None:
            raise InvalidInput(
                "with epsilon= or helper_key=, give step_seconds=: that is to protect from a "
                "server that sees when an update leaves, so that must not depend on how long the "
                "step took"
            )
        self._client = client  # which must not be dropped while this is used
        self._device = device
        self._person = client._name
        self._steps = dict(steps)
        self._stepper = Stepper(step_seconds)
        self._ledger = TrainingLedger(device.store, training)
        counters = Counters(device.store, ledger_name(training), None)
        self._consent = Consent(
            device.store, ledger_name(training), device.clock, counters, drop_updates
        )
        self._calls = TrainerCalls(device.connect, training, device.delivery.timeout)
        self._training: Training | None = None
        self._declared = b""
        self._failures = 0
        self._stop = threading.Event()
        self._turn = Turn(_TURN)
        if consent:
            self.grant()

    @property
    def training(self) -> Training | None:
        """The training as it was accepted; None before this process looked for it."""
        return self._training

    def grant(self) -> None:
        """Note the person's consent to this training in the ledger; raise nothing.

        Where that is not possible now, it is tried again with the next look.
        """
        if self._device.state is Reason.READY:
            self._consent.grant(self._person)
            with contextlib.suppress(Trouble):
                self._consent.catch_up()

    def revoke(self) -> None:
        """Revoke consent: take no further part, and delete updates that wait; raise nothing.

        Where the ledger cannot note it now, nothing is sent until it can. An update that the server
        has stays there, and what was spent stays spent.
        """
        if self._device.state is not Reason.READY:
            return
        self._consent.revoke(self._person, forget=False)
        self._consent.catch_up_within(_REVOKE_WAIT)

    def spending(self) -> Participation | None:
        """Return what the person spent on this training; None before the first participation, or
        where the ledger cannot be read."""
        try:
            return self._ledger.participation(self._person)
        except Trouble:
            return None

    def run(
        self,
        stop: threading.Event | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Progress:
        """Take part until there is nothing left to do, or `stop` is set; return the last look.

        Blocks, in this thread, and starts no other but the step's where `step_seconds` is given.
        Raises nothing but what signal handlers raise, and `on_progress`, which is called after each
        look. A stop takes effect between two calls to the server, and after the step.
        """
        stop = stop or threading.Event()
        progress = Progress(Reason.WAITING, "told to stop")
        while not (stop.is_set() or progress.is_final):
            progress = self._once(stop)
            if on_progress is not None:
                on_progress(progress)
            if not progress.is_final:
                stop.wait(progress.wait)
        return progress

    def run_once(self) -> Progress:
        """Send what waits; otherwise look for a round, and take part in it. Raises nothing but what
        signal handlers raise."""
        return self._once(threading.Event())

    def _once(self, stop: threading.Event) -> Progress:
        try:
            progress = self._turn.take(lambda: self._look(stop), 0.0)
        except Trouble as trouble:
            progress = self._unless(trouble.status.reason, trouble.status.detail)
        except Unreachable as error:
            progress = self._unless(error.reason, str(error), error.retry_after)
        if progress.reason in QUIET:
            self._failures = 0
        elif not progress.is_final:
            self._failures += 1
        _log.debug("training %r: %s", self._agreed.training, progress)
        return progress

    def _look(self, stop: threading.Event) -> Progress:
        self._stop = stop
        self._go_on()
        lifetimes.watch(self)
        self._consent.catch_up()
        if not self._consent.has(self._person):
            raise Trouble(Reason.NO_CONSENT)
        check_for_life(self._device.store)
        training = self._training or self._accept()
        for update in self._ledger.waiting(self._person):
            return self._deliver(training, update)
        self._check(training, 0)
        answer = self._calls.round()
        if answer.state == trainer_pb2.GetRoundResponse.ENDED:
            return Progress(Reason.ENDED, "the training has no more rounds")
        if answer.state != trainer_pb2.GetRoundResponse.OPEN:
            return self._wait(training, answer, "no round is open")
        self._check_round(training, answer)
        try:
            self._check(training, answer.round)
        except Trouble as trouble:
            if trouble.status.reason is not Reason.WAITING:
                raise
            return self._wait(training, answer, trouble.status.detail)
        file = self._calls.model(answer.model, training.dimension, self._go_on)
        try:
            model = models.read(file, training.dimension)
        except InvalidInput as error:
            raise Trouble(Reason.ROUND_REFUSED, f"the round's model: {error}") from None
        step, coins = self._steps[training.architecture], self._device.coins
        id_ = new_id()

        def encode(vector: models.Vector) -> bytes:
            return encoding.encode(training, vector, coins, answer.round, id_)

        # Drawn always, and before: whether it is needed depends on data.
        blank = encode(np.zeros(training.dimension, np.float32))
        round_ = Round(training, answer.round)
        try:
            payload, failed = self._stepper.payload(step, model, round_, encode, blank)
        except Skip as skip:
            return self._wait(training, answer, str(skip), Reason.SKIPPED)
        self._go_on()
        # Many devices may have filled the round meanwhile: then the participation is saved. But a
        # server must not be able to run a timed step, which it is to learn nothing of, for nothing.
        if not self._stepper.is_timed:
            now = self._calls.round()
            if (now.state, now.round, now.model) != (answer.state, answer.round, answer.model):
                return self._wait(
                    training, now, f"round {answer.round} closed before the step ended"
                )
        update = Update(id_, answer.round, answer.model, payload)
        return self._deliver(training, self._seal(training, update, blank), failed)

    def _accept(self) -> Training:
        """Return the training: the kept one, which the server must still have; or the server's,
        which is kept from now on."""
        declared = self._calls.training()
        kept = self._ledger.kept()
        if kept is None:
            self._checked(declared)
            kept = self._ledger.keep(declared)
        if kept != declared:
            self._refuse(
                f"the server has another training by the name {self._agreed.training!r} than the "
                "one that was accepted first, which stays"
            )
        self._declared, self._training = kept, self._checked(kept)
        return self._training

    def _checked(self, declared: bytes) -> Training:
        try:
            return self._agreed.checked(declared)
        except InvalidInput as error:
            self._refuse(str(error))

    def _refuse(self, why: str) -> NoReturn:
        _log.error("the training %r is refused: %s", self._agreed.training, why)
        raise Trouble(Reason.TRAINING_REFUSED, why)

    def _check(self, training: Training, round_: int) -> None:
        """Raise `Trouble` where no update may be sealed; round 0 stands for any."""
        device = self._device
        at = device.clock().timestamp()
        self._ledger.check(self._person, price(training), round_, device.caps, at)

    def _check_round(self, training: Training, answer: trainer_pb2.GetRoundResponse) -> None:
        """Raise `Trouble` where the training cannot have such a round."""
        wrong = ""
        if not 1 <= answer.round <= training.rounds:
            wrong = f"of {training.rounds}"
        elif answer.deadline <= answer.server_time:
            wrong = "is over by the server's own time"
        elif len(answer.model) != 32:
            wrong = "has no model"
        elif answer.round == 1 and answer.model != training.initial:
            wrong = "does not begin with the training's first model"
        if wrong:
            raise Trouble(Reason.ROUND_REFUSED, f"round {answer.round} {wrong}")

    def _seal(self, training: Training, update: Update, blank: bytes) -> Update:
        """Charge an update and queue it, in one transaction; return it."""
        device = self._device
        self._ledger.seal(
            self._person,
            price(training),
            update,
            device.caps,
            device.clock().timestamp(),
            declared=self._declared,
            blank=blank,
        )
        return next(each for each in self._ledger.waiting(self._person) if each.id == update.id)

    def _deliver(self, training: Training, update: Update, failed: str = "") -> Progress:
        """Send a sealed update; what it cost is in the ledger's main file by then."""
        self._device.store.secure()

        def go_on() -> None:
            self._go_on()
            if not self._ledger.is_waiting(update):  # revoked, or sent, by another process
                raise Trouble(Reason.WAITING, "the update does not wait any more")

        answer = self._calls.submit(update, training.revision, go_on)
        if answer is None:
            why = "the server does not take the update yet: it stays queued"
            return self._unless(Reason.SERVER_REFUSED, why)
        if answer.status == collector_pb2.Result.REFUSED:
            self._ledger.settle(update, "refused")
            names = {number: name for name, number in trainer_pb2.Refusal.items()}
            detail = f"{names.get(answer.refusal, 'UNKNOWN')}: {on_one_line(answer.detail)}"
            _log.error("an update was refused: %s", detail)
            return self._unless(Reason.UPDATE_REFUSED, detail, round_=update.round)
        stored = answer.status == collector_pb2.Result.STORED
        self._ledger.settle(update, "stored" if stored else "duplicate")
        return Progress(Reason.READY, failed, update.round, _poll(training))

    def _go_on(self) -> None:
        """Raise `Trouble` where nothing more is to be done now."""
        if self._device.state is not Reason.READY:
            raise Trouble(self._device.state)
        if self._stop.is_set():
            raise Trouble(Reason.WAITING, "told to stop")
        if not self._consent.may_send:
            raise Trouble(Reason.NO_CONSENT, "a revocation is not noted yet")

    def _wait(
        self,
        training: Training,
        answer: trainer_pb2.GetRoundResponse,
        why: str,
        reason: Reason = Reason.WAITING,
    ) -> Progress:
        asked = min(answer.retry_after_ms / 1000, _LONGEST) * random.uniform(1.0, 1.1)
        return Progress(reason, why, answer.round, asked or _poll(training))

    def _unless(
        self, reason: Reason, detail: str, retry_after: float = 0.0, *, round_: int = 0
    ) -> Progress:
        """Return the progress of a look that failed: each further failure waits twice as long."""
        delivery = self._device.delivery
        longest = min(delivery.longest_wait, delivery.first_wait * 2 ** min(self._failures, 30))
        return Progress(reason, detail, round_, max(retry_after, longest * random.uniform(0.5, 1)))

    def before_fork(self, deadline: float) -> None:
        """Pause before a fork; `hearsay.lifetimes` calls this."""
        self._calls.pause(deadline)

    def after_fork(self, *, child: bool) -> None:
        """Go on after a fork, in the parent or the child; `hearsay.lifetimes` calls this."""
        if child:
            self._turn = Turn(_TURN)
            self._stepper = self._stepper.after_fork()
            self._consent.after_fork()
            self._calls.after_fork()
        else:
            self._calls.resume()

    def end(self, spent: float) -> None:
        """Do nothing as the process ends: what waits is in the file."""


def _poll(training: Training) -> float:
    """Return after how many seconds to look again where the server says nothing."""
    return max(0.05, training.round_seconds / _POLLS * random.uniform(0.5, 1.0))
