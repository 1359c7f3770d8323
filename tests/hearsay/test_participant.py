"""A person's part in a training: what leaves, and what it costs."""

import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainers import (
    DIMENSION,
    ENDED,
    WAIT,
    Steps,
    Trainer,
    client_of,
    declared,
    local_noise,
    noisy_participant,
    participant_of,
)

from hearsay import MEMORY, Caps, Reason
from hearsay.federated import Participant, Skip, encoding
from hearsay.recording.account import Account


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
        participant = noisy_participant(client, step)
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


def test_under_local_noise_the_same_messages_leave_whatever_the_step_does() -> None:
    def forms(fails: Any) -> list[tuple[str, int]]:
        trainer, step = Trainer(declared(**local_noise())), Steps()
        step.fails = fails
        with client_of(trainer, MEMORY) as client:
            participant = noisy_participant(client, step)
            for round_ in (1, 2, 3):
                trainer.open(round_)
                participant.run_once()
        return [(type(each).__name__, each.ByteSize()) for each in trainer.requests]

    slow = threading.Event()
    usual = forms(None)
    assert forms(lambda: 1 / 0) == usual
    assert forms(lambda: {"weights": np.full((2, 3), np.inf), "bias": np.ones(2)}) == usual
    assert forms(lambda: slow.wait(0.05)) == usual


def test_a_closed_client_takes_no_part(trainer: Trainer, step: Steps) -> None:
    client = client_of(trainer, MEMORY)
    participant = participant_of(client, step)
    client.close()
    assert participant.run_once().reason is Reason.CLOSED
    assert participant.run().is_final


def test_an_idle_participant_costs_nothing_beyond_its_client(
    trainer: Trainer, step: Steps, tmp_path: Path
) -> None:
    def held() -> tuple[object, ...]:
        files = sorted(each.name for each in tmp_path.iterdir())
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        # A late step of an earlier test may end meanwhile.
        threads = [each for each in threading.enumerate() if each.name != "hearsay-step"]
        return threads, descriptors, set(sys.modules), files

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
        participant = noisy_participant(client, step)
        for look in range(12):
            trainer.open(1 + 2 * look)
            participant.run_once()
        spent = participant.spending()
    assert spent is not None
    assert len(step.rounds) == spent.used == 3
