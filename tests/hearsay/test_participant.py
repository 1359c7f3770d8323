"""A person's part in a training: what leaves, what it costs, and what a server cannot get."""

import hashlib
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainers import (
    DIMENSION,
    ENDED,
    MODEL,
    RECORDS,
    REFUSED,
    RETRY,
    WAIT,
    Steps,
    Trainer,
    client_of,
    declared,
    local_noise,
    participant_of,
)

from hearsay import MEMORY, Caps, Delivery, InvalidInput, Reason, Unreachable
from hearsay.federated import Participant, Skip, encoding, models
from hearsay.federated.parsing import parse
from hearsay.plans.units import BILLION
from hearsay.recording.account import Account


@pytest.fixture
def trainer() -> Trainer:
    return Trainer(declared())


@pytest.fixture
def step() -> Steps:
    return Steps()


# --- taking part ---


def test_an_update_is_the_difference_that_the_step_makes(trainer: Trainer, step: Steps) -> None:
    with client_of(trainer, MEMORY) as client:
        progress = participant_of(client, step).run_once()
    assert (progress.reason, progress.detail, progress.round) == (Reason.READY, "", 1)
    (sent,) = trainer.stored.values()
    assert (sent.round, sent.model, len(sent.id)) == (1, trainer.round.model, 16)
    assert trainer.vectors()[0].tolist() == [0.125] * DIMENSION


def test_a_long_update_is_scaled_down_to_the_norm(trainer: Trainer) -> None:
    with client_of(trainer, MEMORY) as client:
        assert participant_of(client, Steps(3.0)).run_once().reason is Reason.READY
    assert 0.999 < np.linalg.norm(trainer.vectors()[0].astype(float)) <= 1.0


def test_rho_is_charged_once_and_each_participation_counted(trainer: Trainer, step: Steps) -> None:
    with client_of(trainer, MEMORY) as client:
        participant = participant_of(client, step)
        assert participant.spending() is None
        for round_ in (1, 3):
            trainer.open(round_)
            assert participant.run_once().reason is Reason.READY
        spent = participant.spending()
        assert spent is not None
        assert participant.training is not None
        assert spent.rho == float(participant.training.rho or 0) > 0
        assert (spent.used, spent.last_round, spent.waiting, spent.epsilon) == (2, 3, 0, 0.0)
        assert (spent.participations, spent.separation) == (3, 2)
        assert client.spendings() == ()


def test_a_person_takes_part_as_often_and_as_far_apart_as_agreed(
    trainer: Trainer, step: Steps
) -> None:
    with client_of(trainer, MEMORY) as client:
        participant = participant_of(client, step)
        for round_ in range(1, 21):
            trainer.open(round_)
            last = participant.run_once()
    assert step.rounds == [1, 3, 5]
    assert last.reason is Reason.SPENT
    assert last.is_final


def test_people_of_one_device_take_part_each_for_themselves(trainer: Trainer, step: Steps) -> None:
    with client_of(trainer, MEMORY) as client:
        ann = participant_of(client.person("ann"), step)
        bob = participant_of(client.person("bob"), step, consent=False)
        assert ann.run_once().reason is Reason.READY
        assert bob.run_once().reason is Reason.NO_CONSENT
        bob.grant()
        assert bob.run_once().reason is Reason.READY
        assert bob.spending() == ann.spending()
    assert len(trainer.stored) == 2


def test_run_ends_with_the_training(trainer: Trainer, step: Steps) -> None:
    seen = []

    def look(progress: Any) -> None:
        seen.append(progress.reason)
        trainer.round.state = ENDED

    with client_of(trainer, MEMORY) as client:
        assert participant_of(client, step).run(on_progress=look).reason is Reason.ENDED
    assert seen == [Reason.READY, Reason.ENDED]


def test_run_stops_when_told_to(trainer: Trainer, step: Steps) -> None:
    trainer.round.state = WAIT
    trainer.round.retry_after_ms = 60_000
    stop = threading.Event()
    with client_of(trainer, MEMORY) as client:
        participant = participant_of(client, step)
        progress = participant.run(stop, on_progress=lambda progress: stop.set())
        assert progress.reason is Reason.WAITING
        assert 60 <= progress.wait < 67
        assert participant.run_once().detail == "no round is open"  # as if it had not been stopped


# --- a server that lies ---


def _went_back(trainer: Trainer) -> None:
    trainer.open(2)


def _same_round_other_model(trainer: Trainer) -> None:
    trainer.open(5, models.write({"a": np.ones(DIMENSION, np.float32)}))


def _over(trainer: Trainer) -> None:
    trainer.open(7)
    trainer.round.deadline = trainer.round.server_time


def _no_such_round(trainer: Trainer) -> None:
    trainer.open(21)


def _no_model(trainer: Trainer) -> None:
    trainer.open(7)
    trainer.round.model = b""


def _other_shape(trainer: Trainer) -> None:
    trainer.open(7, models.write({"a": np.ones(DIMENSION + 1, np.float32)}))


def _nan(trainer: Trainer) -> None:
    trainer.open(7, MODEL[:-4] + np.float32(np.nan).tobytes())


def _no_safetensors(trainer: Trainer) -> None:
    trainer.open(7, bytes(len(MODEL)))


def _other_bytes(trainer: Trainer) -> None:
    trainer.open(7)
    trainer.models[trainer.round.model] = MODEL[:-1] + b"\1"


def _endless(trainer: Trainer) -> None:
    trainer.open(7)
    trainer.lies["GetModel"] = lambda answer: setattr(answer, "size", 1 << 40)


def _growing(trainer: Trainer) -> None:
    big = models.write({"a": np.ones(DIMENSION, np.float32), "z" * 9000: np.ones(1, np.float32)})
    trainer.open(7, big)
    trainer.part = 4096

    def grow(answer: Any) -> None:
        answer.size += len(trainer.requests)

    trainer.lies["GetModel"] = grow


def _dripping(trainer: Trainer) -> None:
    trainer.open(7)
    trainer.lies["GetModel"] = lambda answer: setattr(answer, "data", answer.data[:1])


def _silent(trainer: Trainer) -> None:
    trainer.open(7)
    trainer.lies["GetModel"] = lambda answer: answer.ClearField("data")


def _too_much(trainer: Trainer) -> None:
    trainer.open(7)
    trainer.lies["GetModel"] = lambda answer: setattr(answer, "data", answer.data + b"\0")


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (_went_back, Reason.ROUND_REFUSED),
        (_same_round_other_model, Reason.WAITING),
        (_over, Reason.ROUND_REFUSED),
        (_no_such_round, Reason.ROUND_REFUSED),
        (_no_model, Reason.ROUND_REFUSED),
        (_other_shape, Reason.ROUND_REFUSED),
        (_nan, Reason.ROUND_REFUSED),
        (_no_safetensors, Reason.ROUND_REFUSED),
        (_other_bytes, Reason.ROUND_REFUSED),
        (_endless, Reason.ROUND_REFUSED),
        (_growing, Reason.ROUND_REFUSED),
        (_dripping, Reason.ROUND_REFUSED),
        (_silent, Reason.ROUND_REFUSED),
        (_too_much, Reason.ROUND_REFUSED),
    ],
)
def test_a_round_that_the_training_cannot_have_runs_no_step_and_costs_nothing(
    trainer: Trainer, step: Steps, lie: Any, reason: Reason
) -> None:
    with client_of(trainer, MEMORY) as client:
        participant = participant_of(client, step)
        trainer.open(5)
        assert participant.run_once().reason is Reason.READY
        spent = participant.spending()
        lie(trainer)
        progress = participant.run_once()
        assert progress.reason is reason
        assert progress.detail
        assert not progress.is_final
        assert participant.spending() == spent
    assert step.rounds == [5]


def test_the_first_round_begins_with_the_first_model(trainer: Trainer, step: Steps) -> None:
    trainer.open(1, models.write({"a": np.ones(DIMENSION, np.float32)}))
    with client_of(trainer, MEMORY) as client:
        assert participant_of(client, step).run_once().reason is Reason.ROUND_REFUSED


@pytest.mark.parametrize(
    ("training", "options", "words"),
    [
        (declared(name="other"), {}, "asked for the training 'digits'"),
        (declared(architecture="mlp"), {}, "the app has linear"),
        (declared(), {"rho": 1e-6}, "the app allows rho=1e-06"),
        (declared(), {"record_level": 1.0}, "the app allows no such training"),
        (declared(**RECORDS), {"rho": 10.0}, "pass record_level=, the least noise multiplier"),
        (
            declared(
                **RECORDS
                | {
                    "record_level": {"noise_multiplier_millionths": 1, "max_grad_norm": 1e6},
                    "local": {"epochs": 1000, "batch_size": 0, "learning_rate": 0.1},
                    "participations": 20,
                    "separation": 1,
                }
            ),
            {"record_level": 1.0},
            "has a noise multiplier of 1e-06; the app allows record_level=1.0 and above",
        ),
        (declared(**RECORDS), {"record_level": 1.5}, "the app allows record_level=1.5 and above"),
        (declared(), {"revision": "0" * 64}, "expected revision"),
        (b"\xff", {}, "no training"),
    ],
)
def test_a_training_that_the_app_did_not_agree_to_is_refused(
    step: Steps, training: bytes, options: dict[str, Any], words: str
) -> None:
    trainer = Trainer(training)
    with client_of(trainer, MEMORY) as client:
        progress = participant_of(client, step, **options).run_once()
        assert progress.reason is Reason.TRAINING_REFUSED
        assert words in progress.detail
        assert progress.is_final
    assert not step.rounds


def test_the_least_noise_that_the_app_accepts_may_be_what_the_training_has(step: Steps) -> None:
    level = {"noise_multiplier_millionths": 800_000, "max_grad_norm": 1.0}  # 0.8 > 4/5 in binary
    trainer = Trainer(declared(**RECORDS | {"record_level": level}))
    with client_of(trainer, MEMORY) as client:
        assert participant_of(client, step, record_level=0.8).run_once().reason is Reason.READY


def test_the_first_training_is_the_only_one_ever(tmp_path: Path, step: Steps) -> None:
    first, second = declared(), declared(title="Digits, again")
    trainer = Trainer(first)
    with client_of(trainer, tmp_path / "ledger.db") as client:
        assert participant_of(client, step).run_once().reason is Reason.READY
    trainer.training = second
    trainer.open(5)
    for options in ({}, {"revision": hashlib.sha256(second).hexdigest()}):
        with client_of(trainer, tmp_path / "ledger.db") as client:
            progress = participant_of(client, step, **options).run_once()
            assert progress.reason is Reason.TRAINING_REFUSED
            assert "accepted first" in progress.detail
    assert step.rounds == [1]


def test_a_refused_update_stays_charged(trainer: Trainer, step: Steps) -> None:
    def refuse(answer: Any) -> None:
        answer.status, answer.refusal, answer.detail = REFUSED, 99, "no\nmore"

    trainer.lies["SubmitUpdate"] = refuse
    with client_of(trainer, MEMORY) as client:
        participant = participant_of(client, step)
        progress = participant.run_once()
        assert progress.reason is Reason.UPDATE_REFUSED
        assert progress.detail == "UNKNOWN: no more"
        spent = participant.spending()
        assert spent is not None
        assert (spent.used, spent.waiting) == (1, 0)


def test_a_server_that_asks_for_the_same_part_for_ever_is_left_alone(
    trainer: Trainer, step: Steps
) -> None:
    def again(answer: Any) -> None:
        answer.status, answer.next = RETRY, 1

    trainer.lies["SubmitUpdate"] = again
    with client_of(trainer, MEMORY) as client:
        participant = participant_of(client, step)
        assert participant.run_once().reason is Reason.SERVER_REFUSED
        assert len(trainer.requests) < 12
        del trainer.lies["SubmitUpdate"]
        assert participant.run_once().reason is Reason.READY
    assert step.rounds == [1]
    assert len({each.id for each in trainer.stored.values()}) == 1


# --- the step ---


@pytest.mark.parametrize(
    "fails",
    [
        lambda: 1 / 0,
        lambda: None,
        lambda: {"weights": np.ones((2, 3))},
        lambda: {"weights": np.ones((3, 2)), "bias": np.ones(2)},
        lambda: {"weights": np.full((2, 3), np.nan), "bias": np.ones(2)},
        lambda: {"weights": np.full((2, 3), 1e300), "bias": np.ones(2)},
        lambda: {"weights": "secret", "bias": np.ones(2)},
    ],
)
def test_a_step_that_fails_sends_zeros_and_is_charged(
    trainer: Trainer, step: Steps, fails: Any, caplog: pytest.LogCaptureFixture
) -> None:
    step.fails = fails
    with client_of(trainer, MEMORY) as client:
        participant = participant_of(client, step)
        progress = participant.run_once()
        assert progress.reason is Reason.READY
        assert progress.detail
        spent = participant.spending()
        assert spent is not None
        assert spent.used == 1
    assert not trainer.vectors()[0].any()
    assert "zeros" in caplog.text
    assert "secret" not in caplog.text + progress.detail


def test_a_round_that_closes_during_the_step_costs_nothing(trainer: Trainer, step: Steps) -> None:
    step.fails = lambda: trainer.open(2)
    with client_of(trainer, MEMORY) as client:
        participant = participant_of(client, step)
        progress = participant.run_once()
        assert (progress.reason, progress.round) == (Reason.WAITING, 2)
        assert participant.spending() is None
    assert not trainer.submitted


def test_one_thread_at_a_time_takes_part_and_a_step_not_again(
    trainer: Trainer, step: Steps
) -> None:
    reasons = []
    with client_of(trainer, MEMORY) as client:
        participant = participant_of(client, step)

        def again() -> Any:
            reasons.append(participant.run_once().reason)
            thread = threading.Thread(target=lambda: reasons.append(participant.run_once().reason))
            thread.start()
            thread.join()
            return {}

        step.fails = again
        assert participant.run_once().reason is Reason.READY
    assert reasons == [Reason.LOCKED, Reason.LOCKED]


def test_a_step_that_skips_costs_and_sends_nothing(trainer: Trainer, step: Steps) -> None:
    def skip() -> Any:
        raise Skip("not charged")

    step.fails = skip
    with client_of(trainer, MEMORY) as client:
        participant = participant_of(client, step)
        progress = participant.run_once()
        assert (progress.reason, progress.detail) == (Reason.SKIPPED, "not charged")
        assert participant.spending() is None
        step.fails = None
        assert participant.run_once().reason is Reason.READY


def test_with_step_seconds_an_update_leaves_at_a_time_that_tells_nothing(
    trainer: Trainer, step: Steps
) -> None:
    done = threading.Event()

    def late() -> Any:
        done.wait(10)
        return {}

    with client_of(trainer, MEMORY) as client:
        participant = participant_of(client, step, step_seconds=0.08)
        times = []
        for round_, fails in ((1, None), (3, late), (5, None)):
            trainer.open(round_)
            step.fails = fails
            begin = time.monotonic()
            assert participant.run_once().reason is Reason.READY
            times.append(time.monotonic() - begin)
        done.set()
    assert all(0.08 <= each < 5 for each in times)
    # The step of round 3 took longer, and still ran in round 5.
    assert step.rounds == [1, 3]
    assert [bool(each.any()) for each in trainer.vectors()] == [True, False, False]


# --- local noise ---


def _local(client: Any, step: Any, epsilon: float = 3.0) -> Participant:
    return participant_of(client, step, epsilon=epsilon, step_seconds=0.01)


def test_a_server_runs_no_timed_step_that_costs_no_participation(step: Steps) -> None:
    class Closing(Trainer):
        """Says of every other look that no round is open: the one after the step, where it asks."""

        looks = 0

        def _GetRound(self, request: Any) -> Any:
            answer = super()._GetRound(request)
            self.looks += 1
            if self.looks % 2 == 0:
                answer.state = WAIT
            return answer

    trainer = Closing(declared(**local_noise()))
    with client_of(trainer, MEMORY) as client:
        participant = _local(client, step)
        for look in range(12):
            trainer.open(1 + 2 * look)
            participant.run_once()
        spent = participant.spending()
    assert spent is not None
    assert len(step.rounds) == spent.used == 3


@pytest.mark.parametrize("fails", [False, True], ids=["the step works", "the step fails"])
@pytest.mark.parametrize("life", [9.0, 0.5], ids=["a cap is left", "memos used the cap"])
def test_after_the_fixed_time_no_update_with_local_noise_is_encoded(
    step: Steps, monkeypatch: pytest.MonkeyPatch, fails: bool, life: float
) -> None:
    begun: list[float] = []
    encoded: list[float] = []

    def encode(*arguments: Any) -> bytes:
        encoded.append(time.monotonic())
        return encoding_of(*arguments)

    def taken(*_: Any) -> Any:
        begun.append(time.monotonic())
        if fails:
            raise ValueError
        return step.__class__.__call__(step, *_)

    encoding_of = encoding.encode
    monkeypatch.setattr(encoding, "encode", encode)
    allows = Account.allows_update

    def allowed(self: Account, kind: str, *rest: Any) -> bool:
        return allows(self, kind, *rest) and (kind == "calls" or life > 1)

    monkeypatch.setattr(Account, "allows_update", allowed)
    trainer = Trainer(declared(**local_noise()))
    with client_of(trainer, MEMORY, caps=Caps(life=9.0)) as client:
        participant = participant_of(client, taken, epsilon=3.0, step_seconds=0.3)
        assert participant.run_once().reason is Reason.READY
    assert len(encoded) == (1 if fails else 2)
    assert max(encoded) < begun[0] + 0.3


def test_updates_with_local_noise_are_codes_and_count_as_reports(step: Steps) -> None:
    trainer = Trainer(declared(**local_noise()))
    with client_of(trainer, MEMORY, caps=Caps(life=2.0)) as client:
        participant = _local(client, step)
        reasons = []
        for round_ in (1, 3, 5):
            trainer.open(round_)
            reasons.append(participant.run_once().reason)
        assert reasons == [Reason.READY, Reason.READY, Reason.SPENT]
        spent = participant.spending()
        assert spent is not None
        assert (spent.epsilon, spent.rho, spent.protection) == (2.0, 0.0, "local_noise")
        assert participant.training is not None
        for each in trainer.stored.values():
            assert encoding.decode(participant.training, each.data).shape == (DIMENSION,)


def test_all_updates_together_are_within_the_epsilon_agreed_to(step: Steps) -> None:
    trainer = Trainer(declared(**local_noise()))
    with client_of(trainer, MEMORY) as client:
        progress = _local(client, step, 2.9).run_once()
    assert progress.reason is Reason.TRAINING_REFUSED
    assert "all updates of 'digits' may spend epsilon 3" in progress.detail


@pytest.mark.parametrize("most", [0.3, 3 * 0.1])
def test_the_epsilon_agreed_to_may_be_all_that_the_training_spends(
    step: Steps, most: float
) -> None:
    trainer = Trainer(declared(**local_noise(0.1)))
    with client_of(trainer, MEMORY) as client:  # of 3 participations
        assert _local(client, step, most).run_once().reason is Reason.READY


def test_the_rho_agreed_to_and_the_cap_may_be_what_the_training_spends(step: Steps) -> None:
    noise = {"mechanism": "tree", "noise_multiplier_millionths": 1_003_990}
    declaration = declared(central=noise)
    rho = parse(declaration).rho
    assert rho is not None and rho > Fraction(float(rho))  # its float is below it
    trainer = Trainer(declaration)
    with client_of(trainer, MEMORY, caps=Caps(rho=float(rho))) as client:
        assert participant_of(client, step, rho=float(rho)).run_once().reason is Reason.READY
    with client_of(trainer, MEMORY) as client:
        less = float(rho - Fraction(1, BILLION))
        assert participant_of(client, step, rho=less).run_once().reason is Reason.TRAINING_REFUSED
        client.set_caps(Caps(rho=less))
        progress = participant_of(client, step, rho=float(rho)).run_once()
        assert progress.reason is Reason.SPENT


def test_under_local_noise_the_same_messages_leave_whatever_the_step_does() -> None:
    def forms(fails: Any) -> list[tuple[str, int]]:
        trainer, step = Trainer(declared(**local_noise())), Steps()
        step.fails = fails
        with client_of(trainer, MEMORY) as client:
            participant = _local(client, step)
            for round_ in (1, 2, 3):
                trainer.open(round_)
                participant.run_once()
        return [(type(each).__name__, each.ByteSize()) for each in trainer.requests]

    slow = threading.Event()
    usual = forms(None)
    assert forms(lambda: 1 / 0) == usual
    assert forms(lambda: {"weights": np.full((2, 3), np.inf), "bias": np.ones(2)}) == usual
    assert forms(lambda: slow.wait(0.05)) == usual


# --- failures ---


def test_a_download_goes_on_where_it_broke_off(step: Steps) -> None:
    tensor = np.arange(10_000, dtype=np.float32)
    model = models.write({"a": tensor})
    trainer = Trainer(declared(dimension=10_000, initial=model), model)
    trainer.part = 8192
    trainer.errors = [None, None, None, None, Unreachable("gone")]
    with client_of(trainer, MEMORY) as client:
        participant = participant_of(client, step)
        assert participant.run_once().reason is Reason.UNREACHABLE
        assert participant.run_once().reason is Reason.READY
    offsets = [each.offset for each in trainer.requests if hasattr(each, "model")][:7]
    assert offsets[:6] == [0, 8192, 16384, 16384, 24576, 32768]


def test_a_long_update_goes_in_parts(step: Steps) -> None:
    dimension = 600_000
    model = models.write({"a": np.zeros(dimension, np.float32)})
    trainer = Trainer(declared(dimension=dimension, initial=model), model)
    trainer.errors = [*[None] * 7, Unreachable("gone")]
    with client_of(trainer, MEMORY) as client:
        participant = participant_of(client, step)
        assert participant.run_once().reason is Reason.UNREACHABLE
        assert participant.run_once().reason is Reason.READY
    (sent,) = trainer.stored.values()
    assert np.frombuffer(sent.data, "<f4").shape == (dimension,)
    assert step.rounds == [1]


def test_failures_wait_longer_and_longer_and_never_less_than_asked(
    trainer: Trainer, step: Steps
) -> None:
    trainer.errors = [Unreachable("gone", retry_after=9.0), *[Unreachable("gone")] * 5]
    delivery = Delivery(first_wait=1.0, longest_wait=4.0)
    with client_of(trainer, MEMORY, delivery=delivery) as client:
        participant = participant_of(client, step)
        waits = [participant.run_once().wait for _ in range(6)]
    assert waits[0] == 9.0
    for wait, most in zip(waits[1:], (2, 4, 4, 4, 4), strict=True):
        assert most / 2 <= wait <= most


def test_a_server_without_the_training_is_told(trainer: Trainer, step: Steps) -> None:
    with client_of(trainer, MEMORY) as client:
        participant = Participant(client, "other", steps={"linear": step}, rho=1.0, consent=True)
        progress = participant.run_once()
    assert progress.reason is Reason.SERVER_REFUSED
    assert "no training 'other'" in progress.detail


def test_a_closed_client_takes_no_part(trainer: Trainer, step: Steps) -> None:
    client = client_of(trainer, MEMORY)
    participant = participant_of(client, step)
    client.close()
    assert participant.run_once().reason is Reason.CLOSED
    assert participant.run().is_final


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rho": 0.0},
        {"rho": float("nan")},
        {"epsilon": 1.0},
        {"epsilon": float("inf"), "step_seconds": 1.0},
        {"rho": 1.0, "step_seconds": 0.0},
        {"record_level": True},
    ],
)
def test_an_app_must_say_what_it_agrees_to(trainer: Trainer, options: dict[str, Any]) -> None:
    with client_of(trainer, MEMORY) as client, pytest.raises(InvalidInput):
        Participant(client, "digits", steps={"linear": Steps()}, **options)


def test_an_idle_participant_costs_nothing_beyond_its_client(
    trainer: Trainer, step: Steps, tmp_path: Path
) -> None:
    def held() -> tuple[object, ...]:
        files = sorted(each.name for each in tmp_path.iterdir())
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        return threading.enumerate(), descriptors, set(sys.modules), files

    with client_of(trainer, tmp_path / "ledger.db") as client:
        client.grant()  # the client opens its file
        before = held()
        participant = Participant(client, "digits", steps={"linear": step}, rho=1.0)
        for _ in range(3):
            assert participant.training is None
            assert participant.spending() is None
        assert held() == before
        assert participant._calls._transport is None
    assert not trainer.requests


def test_the_caps_of_app_and_person_bound_rho_over_all_trainings(
    trainer: Trainer, step: Steps
) -> None:
    with client_of(trainer, MEMORY, caps=Caps(rho=1e-3)) as client:
        progress = participant_of(client, step).run_once()
        assert progress.reason is Reason.SPENT
        assert "the cap is 0.001" in progress.detail
    with client_of(trainer, MEMORY) as client:
        client.set_caps(Caps(rho=1e-3, life=1.0))
        assert participant_of(client, step).run_once().reason is Reason.SPENT
        client.set_caps(Caps(rho=10.0))
        assert participant_of(client, step).run_once().reason is Reason.READY
