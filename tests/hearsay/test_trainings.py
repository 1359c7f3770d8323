"""Trainings in the device's file: nothing is counted short, whatever dies, forks or is copied."""

import contextlib
import itertools
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainers import (
    RECORDS,
    Steps,
    Trainer,
    client_of,
    declared,
    participant_of,
)

from forked import exit_code_of_a_child, start_child
from hearsay import MEMORY, Caps, Client, FileAnchor, Reason, Unreachable, create_ledger
from hearsay.federated import models
from hearsay.recording import ledger_file, trainings
from hearsay.recording.account import Account
from hearsay.recording.trainings import Participation, Price, TrainingLedger, Update
from hearsay.storage.schema import VERSION
from hearsay.trouble import Trouble
from hearsay_server.commands import device
from hearsay_server.printing import Console


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def trainer() -> Trainer:
    return Trainer(declared())


@pytest.fixture
def step() -> Steps:
    return Steps()


def _rows(file: Path, what: str, how: str = "mode=ro") -> list[Any]:
    with contextlib.closing(sqlite3.connect(f"file:{file}?{how}", uri=True)) as connection:
        return connection.execute(what).fetchall()


# --- death, at any moment ---


def _die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _dies_in_its_step(trainer: Trainer, step: Steps) -> None:
    step.fails = _die


def _dies_before_it_seals(trainer: Trainer, step: Steps) -> None:
    TrainingLedger.seal = _die  # type: ignore[assignment, method-assign]  # of the child alone


def _dies_before_it_sends(trainer: Trainer, step: Steps) -> None:
    trainer.lies["SubmitUpdate"] = _die


@pytest.mark.parametrize(
    ("death", "used"),
    [(_dies_in_its_step, 0), (_dies_before_it_seals, 0), (_dies_before_it_sends, 1)],
)
def test_a_death_seals_and_charges_an_update_or_neither(
    file: Path, trainer: Trainer, step: Steps, death: Callable[..., None], used: int
) -> None:
    create_ledger(file)

    def die() -> int:
        death(trainer, step)
        participant_of(client_of(trainer, file), step).run_once()
        return 0

    assert exit_code_of_a_child(die) == -signal.SIGKILL
    with client_of(trainer, file) as client:
        participant = participant_of(client, step)
        spent = participant.spending()
        assert (spent.used if spent else 0) == used
        sealed = _rows(file, "SELECT id, payload FROM updates") if used else []
        assert participant.run_once().reason is Reason.READY
        assert len(step.rounds) == 1 - used  # a sealed update needs no step
        spent = participant.spending()
        assert spent is not None
        assert (spent.used, spent.waiting) == (1, 0)
    assert [(each.id, each.data) for each in trainer.stored.values()][:used] == sealed


@pytest.mark.slow
def test_60_kills_lose_and_repeat_no_update_and_count_each(file: Path, tmp_path: Path) -> None:
    training = declared(**RECORDS, rounds=5000, participations=2000)
    create_ledger(file)
    log = tmp_path / "log"
    log.touch()

    def take_part(first: int) -> int:
        trainer = Trainer(training)
        sent = os.open(log, os.O_WRONLY | os.O_APPEND)

        def note(answer: Any) -> None:
            part = trainer.requests[-1]
            os.write(sent, f"{part.id.hex()} {part.round}\n".encode())

        trainer.lies["SubmitUpdate"] = note
        participant = participant_of(client_of(trainer, file), Steps(), record_level=1.0)
        for round_ in range(first, 5000):
            trainer.open(round_)
            trainer.round.model = next(iter(trainer.models))
            participant.run_once()
        return 0

    chance, first, kills = random.Random(7), 1, 60
    for _ in range(kills):
        lines = log.read_text().count("\n")
        pid = start_child(partial(take_part, first))
        wanted = lines + chance.randint(0, 3)
        while log.read_text().count("\n") < wanted:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.03))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        rounds = dict(line.split() for line in log.read_text().splitlines())
        taken = sorted(map(int, rounds.values()))
        assert all(b - a >= 2 for a, b in itertools.pairwise(taken))
        (found,) = _rows(file, "SELECT used, last_round FROM participations") or [(0, 0)]
        # What was sent was counted before; at most the last one is counted and not sent yet.
        assert len(taken) <= found[0] <= len(taken) + 1
        first = max(first, found[1])
    assert len(taken) > kills


def test_an_update_and_its_cost_are_in_the_main_file_before_the_first_byte_leaves(
    file: Path, trainer: Trainer, step: Steps
) -> None:
    seen = []

    def look(answer: Any) -> None:
        # Without its log, as after a power cut.
        seen.append(_rows(file, "SELECT used, last_round FROM participations", "immutable=1"))
        seen.append(_rows(file, "SELECT id FROM updates", "immutable=1"))

    trainer.lies["SubmitUpdate"] = look
    with client_of(trainer, file) as client:
        assert participant_of(client, step).run_once().reason is Reason.READY
    assert seen == [[(1, 1)], [(next(iter(trainer.stored)),)]]


def test_an_answer_that_was_lost_sends_the_same_id_and_bytes(
    file: Path, trainer: Trainer, step: Steps
) -> None:
    trainer.errors = [*[None] * 4, Unreachable("gone")]
    with client_of(trainer, file) as client:
        assert participant_of(client, step).run_once().reason is Reason.UNREACHABLE
    trainer.open(9)  # another process goes on with the sealed one first
    with client_of(trainer, file) as client:
        participant = participant_of(client, step)
        assert participant.run_once().round == 1
        assert participant.run_once().round == 9
    first, second, _ = trainer.submitted
    assert (first.id, first.data, first.round) == (second.id, second.data, second.round)
    assert step.rounds == [1, 9]


def test_two_processes_in_one_round_seal_one_update(file: Path, trainer: Trainer) -> None:
    both = threading.Barrier(2)

    def meet() -> Any:
        both.wait(10)
        return {}

    reasons = []

    def take_part() -> None:
        step = Steps()
        step.fails = meet
        with client_of(trainer, file) as client:  # a store of its own, as in another process
            reasons.append(participant_of(client, step).run_once().reason)

    create_ledger(file)
    threads = [threading.Thread(target=take_part) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    assert sorted(reasons) == [Reason.READY, Reason.WAITING]
    assert _rows(file, "SELECT used FROM participations") == [(1,)]
    assert len(trainer.stored) == 1


def test_a_forked_child_and_its_parent_share_what_was_used(
    file: Path, trainer: Trainer, step: Steps
) -> None:
    with client_of(trainer, file) as client:
        participant = participant_of(client, step)
        assert participant.run_once().reason is Reason.READY
        trainer.open(3)
        assert exit_code_of_a_child(lambda: participant.run_once().reason is not Reason.READY) == 0
        assert participant.run_once().reason is Reason.WAITING
        spent = participant.spending()
        assert spent is not None
        assert (spent.used, spent.last_round) == (2, 3)


# --- files that are lost, copied or older ---


def test_a_file_gets_its_tables_with_the_first_training_and_keeps_its_schema(
    file: Path, trainer: Trainer, step: Steps
) -> None:
    tables = "SELECT count(*) FROM sqlite_master WHERE name IN ('trainings', 'updates')"
    with client_of(trainer, file) as client:
        participant = participant_of(client, step)
        assert participant.spending() is None
        client.flush(0.1)
        assert _rows(file, tables) == [(0,)]
        assert participant.run_once().reason is Reason.READY
    assert _rows(file, tables) == [(2,)]
    assert _rows(file, "PRAGMA user_version") == [(VERSION,)]


def test_a_ledger_that_may_stand_for_a_lost_one_takes_no_part(
    file: Path, trainer: Trainer, step: Steps
) -> None:
    file.touch()  # a client makes a new one by itself
    with client_of(trainer, file) as client:
        progress = participant_of(client, step).run_once()
    assert progress.reason is Reason.LOST_LEDGER
    assert progress.is_final
    assert not trainer.requests


def test_an_old_copy_of_a_ledger_is_known_by_its_anchor(
    file: Path, trainer: Trainer, step: Steps, tmp_path: Path
) -> None:
    anchor = FileAnchor(tmp_path / "anchor")
    create_ledger(file, anchor=anchor)
    with client_of(trainer, file, anchor=anchor) as client:
        assert participant_of(client, step).run_once().reason is Reason.READY
        waits = "INSERT INTO updates VALUES (9, x'09', 'digits', x'', 1, x'', 'sealed and waits')"
        client._device.store.write(lambda c: c.execute(waits))
    shutil.copy(file, tmp_path / "copy")
    trainer.open(3)
    with client_of(trainer, file, anchor=anchor) as client:
        client._device.store.write(lambda c: c.execute("DELETE FROM updates"))
        assert participant_of(client, step).run_once().reason is Reason.READY
    shutil.copy(tmp_path / "copy", file)
    trainer.open(5)
    with client_of(trainer, file, anchor=anchor) as client:
        assert participant_of(client, step, consent=False).run_once().reason is Reason.NO_CONSENT
        assert _rows(file, "SELECT count(*) FROM updates") == [(0,)]
        assert participant_of(client, step).run_once().reason is Reason.LOST_LEDGER
    assert step.rounds == [1, 3]
    assert b"sealed and waits" not in file.read_bytes()


# --- consent ---


def test_revoking_deletes_what_waits_and_a_grant_does_not_bring_it_back(
    file: Path, trainer: Trainer, step: Steps
) -> None:
    trainer.errors = [*[None] * 4, Unreachable("gone")]
    with client_of(trainer, file) as client:
        participant = participant_of(client, step)
        assert participant.run_once().reason is Reason.UNREACHABLE
        participant.revoke()
        assert participant.run_once().reason is Reason.NO_CONSENT
        assert _rows(file, "SELECT count(*) FROM updates") == [(0,)]
        participant.grant()
        assert participant.run_once().reason is Reason.WAITING
        spent = participant.spending()
        assert spent is not None
        assert (spent.used, spent.waiting) == (1, 0)  # what was spent stays spent
    assert not trainer.stored
    assert len(trainer.submitted) == 1


def test_revoking_between_two_parts_ends_the_sending(file: Path, step: Steps) -> None:
    model = models.write({"a": np.zeros(600_000, np.float32)})
    trainer = Trainer(declared(dimension=600_000, initial=model), model)
    with client_of(trainer, file) as client, client_of(trainer, file) as elsewhere:
        other = participant_of(elsewhere, step)
        trainer.lies["SubmitUpdate"] = lambda answer: other.revoke()
        assert participant_of(client, step).run_once().reason is Reason.WAITING
    assert len(trainer.submitted) == 1


def test_a_file_that_was_closed_has_no_bytes_of_an_update_that_left(
    file: Path, tmp_path: Path
) -> None:
    tensor = np.random.default_rng(3).normal(0, 0.001, 20_000).astype(np.float32)
    model = models.write({"a": np.zeros(20_000, np.float32)})
    trainer = Trainer(declared(dimension=20_000, initial=model), model)
    seen = []
    trainer.lies["SubmitUpdate"] = lambda answer: seen.append(file.read_bytes())

    def step(model: Any, round_: Any) -> Any:
        return {"a": tensor}

    with client_of(trainer, file) as client:
        assert participant_of(client, step).run_once().reason is Reason.READY
    pieces = [tensor[start : start + 64].tobytes() for start in range(0, 20_000, 500)]
    assert sum(piece in seen[0] for piece in pieces) > 30  # some lie across two pages
    assert not any(piece in file.read_bytes() for piece in pieces)


def test_consent_to_a_survey_is_none_to_a_training_of_its_name(
    trainer: Trainer, step: Steps
) -> None:
    with Client(trainer, "digits", epsilon=1.0, ledger=MEMORY, consent=True) as client:
        assert participant_of(client, step, consent=False).run_once().reason is Reason.NO_CONSENT


# --- the pure account ---

LOCAL = Price("local_noise", 0, 0.5, 10, 1)
CENTRAL = Price("central", 100_000_000, 0.0, 10, 1)


def _ledger(client: Any) -> TrainingLedger:
    participant = participant_of(client, Steps())
    assert participant._ledger.keep(b"declared") == b"declared"
    return participant._ledger


def _seal(ledger: TrainingLedger, price: Price, round_: int, caps: Caps, at: float = 1e9) -> bytes:
    update = Update(bytes([round_]) * 16, round_, b"", b"drawn with data")
    ledger.seal("", price, update, caps, at, declared=b"declared", blank=b"blank")
    return next(each.payload for each in ledger.waiting("") if each.round == round_)


def test_updates_with_local_noise_are_charged_like_reports(trainer: Trainer) -> None:
    with client_of(trainer, MEMORY) as client:
        ledger = _ledger(client)
        for round_ in (1, 2, 3):
            _seal(ledger, LOCAL, round_, Caps(life=1.5))
        with pytest.raises(Trouble) as refused:
            _seal(ledger, LOCAL, 4, Caps(life=1.5))
        assert refused.value.status.reason is Reason.SPENT
        spent = ledger.participation("")
        assert spent is not None
        assert (spent.used, spent.epsilon, spent.rho, spent.protection) == (
            3,
            1.5,
            0,
            "local_noise",
        )


def test_a_paced_cap_lets_updates_wait(trainer: Trainer) -> None:
    caps = Caps(life=2.0, until="2001-12-31")
    with client_of(trainer, MEMORY) as client:
        ledger = _ledger(client)
        begin, end = 1e9, caps.ends.timestamp()
        _seal(ledger, LOCAL, 1, caps, begin)
        with pytest.raises(Trouble, match="ahead of its pace"):
            _seal(ledger, LOCAL, 2, caps, begin + 1)
        _seal(ledger, LOCAL, 2, caps, begin + (end - begin) / 4 + 1)


def test_where_memos_have_used_up_a_cap_an_update_without_data_leaves(trainer: Trainer) -> None:
    # What memos cost in life depends on the answers, so whether an update leaves must not.
    with client_of(trainer, MEMORY) as client:
        ledger = _ledger(client)
        account = (
            '{"daily": {"period": "", "answered": [], "spent": {}, "since": 1e9,'
            ' "life": {"drink": {"0x1.0000000000000p+0": 3}},'
            ' "calls": {"drink": {"0x1.0000000000000p+0": 1}}}}'
        )
        client._device.store.write(
            lambda c: c.execute("INSERT INTO accounts VALUES (x'', ?, '{}')", (account,))
        )
        assert _seal(ledger, LOCAL, 1, Caps(life=3.0)) == b"blank"
        assert _seal(ledger, LOCAL, 2, Caps(life=3.5)) == b"drawn with data"
        spent = ledger.participation("")
        assert spent is not None
        assert (spent.used, spent.epsilon) == (2, 0.5)


def test_trainings_with_central_noise_leave_the_pure_account_alone(trainer: Trainer) -> None:
    with client_of(trainer, MEMORY) as client:
        ledger = _ledger(client)
        for round_ in (1, 2):
            _seal(ledger, CENTRAL, round_, Caps(life=0.0, rho=0.1))
        spent = ledger.participation("")
        assert spent is not None
        assert (spent.rho, spent.epsilon) == (0.1, 0.0)


def test_one_figure_of_all_reports_and_trainings() -> None:
    def figure(
        times: int, epsilon: float, rho: float, *, fresh: bool = True, name: str = "daily"
    ) -> float:
        account = Account("{}", name)
        if times:
            account._mine["life"] = {"update": {epsilon.hex(): times}}
            if fresh:
                account._mine["fresh"] = {"update": {epsilon.hex(): {(0.2).hex(): times}}}
        spent = [Participation("digits", "central", rho, 0.0, 1, 1, 1, 1, 0)]
        return trainings.combined(account, spent, 1e-6)

    # A training's rho counts four times for replacing, so 0.025 is 0.1 (Bun and Steinke 2016).
    assert figure(50, 0.5, 0.025) == pytest.approx(25.08, abs=0.005)
    assert figure(50, 0.5, 0.025, fresh=False, name="training digits") == figure(50, 0.5, 0.025)
    # Not known to be fresh, as by a map that protects one way only: the epsilons add up.
    assert figure(50, 0.5, 0.025, fresh=False) == pytest.approx(25.0 + 2.451, abs=5e-4)
    assert figure(10, 0.5, 0.0) == 5.0
    assert figure(0, 0.5, 0.025) == pytest.approx(2.451, abs=5e-4)
    assert figure(1, 0.5, 0.025) == pytest.approx(0.5 + 2.451, abs=5e-4)
    assert Fraction(figure(3, 0.1, 0.0)) >= 3 * Fraction(0.1)


def test_a_file_shows_both_accounts(
    file: Path,
    trainer: Trainer,
    step: Steps,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with client_of(trainer, file) as client:
        participant = participant_of(client, step)
        assert participant.run_once().reason is Reason.READY
        participant.revoke()
        spent = participant.spending()
    found = ledger_file.read(file)
    assert found.participations == (spent,)
    assert found.trainings == {"digits": False}
    assert found.surveys == ()
    content = device.content(file)
    assert content["trainings"][0]["used"] == 1
    assert content["spent"] == 0
    assert content["combined"] > 0
    device.show(file)
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("1/3", "if the server is honest", "at delta 1e-06"):
        assert words in shown
    assert "that the maps protect" not in shown
    used = {"answer": {"chosen": ["mine"], "protected": ["yes"]}}
    device._show_trainings(content | {"surveys": [{"maps": used}]}, Console())
    assert "that the maps protect" in capsys.readouterr().out
