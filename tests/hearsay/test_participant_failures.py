"""A participant and its server: what it cannot get by lies, and failures on the way."""

from typing import Any

import numpy as np
import pytest
from trainers import (
    DIMENSION,
    MODEL,
    REFUSED,
    RETRY,
    Steps,
    Trainer,
    client_of,
    declared,
    participant_of,
)

from hearsay import MEMORY, Delivery, Reason, Unreachable
from hearsay.federated import Participant, models


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
