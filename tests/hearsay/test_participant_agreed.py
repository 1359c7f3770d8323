"""What an app and a person agreed to holds whatever training the server has."""

import hashlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from trainers import (
    RECORDS,
    Steps,
    Trainer,
    client_of,
    declared,
    local_noise,
    noisy_participant,
    participant_of,
)

from hearsay import MEMORY, Caps, InvalidInput, Reason
from hearsay.federated import Participant
from hearsay.federated.parsing import parse
from hearsay.plans.units import BILLION


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


@pytest.mark.parametrize("most", [0.3, 3 * 0.1])
def test_the_epsilon_agreed_to_may_be_all_that_the_training_spends(
    step: Steps, most: float
) -> None:
    trainer = Trainer(declared(**local_noise(0.1)))
    with client_of(trainer, MEMORY) as client:  # of 3 participations
        assert noisy_participant(client, step, most).run_once().reason is Reason.READY


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


def test_all_updates_together_are_within_the_epsilon_agreed_to(step: Steps) -> None:
    trainer = Trainer(declared(**local_noise()))
    with client_of(trainer, MEMORY) as client:
        progress = noisy_participant(client, step, 2.9).run_once()
    assert progress.reason is Reason.TRAINING_REFUSED
    assert "all updates of 'digits' may spend epsilon 3" in progress.detail
