"""A training whose server and devices are killed in every round: its models are those of an
undisturbed one, and every device knows of each of its updates that counted."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from learners import DEVICES, participant_of
from numpy.typing import NDArray

from hearsay import create_ledger
from hearsay.federated import encoding, models
from hearsay.federated.declaration import Training
from hearsay.federated.parsing import parse
from hearsay.v1 import training_pb2
from hearsay_server.storage import models as stored_models
from hearsay_server.storage import rounds, schema, trainings
from hearsay_server.storage.database import Database, open_database
from support import Server, wait_until

DIMENSION = 500
SEED = bytes(range(32))
"""The seed of the server's noise."""

_SERVER = -1


class Run:
    """A training with a server and devices of its own, of which each round has all updates."""

    def __init__(self, folder: Path, over: str, length: int) -> None:
        folder.mkdir()
        self.folder = folder
        self.chance = random.Random(3)
        self.kills: Counter[str] = Counter()
        self.server = Server(folder / "data", over=over)
        self.training = self._register(length)
        self.server.start()
        for number in range(DEVICES):
            create_ledger(folder / f"{number}.db")
            client, _ = participant_of(number, self.server.target, folder, consent=True)
            client.close(0)
        script = str(Path(__file__).with_name("learners.py"))
        self.zygote = subprocess.Popen(
            [sys.executable, script, self.server.target, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pids: dict[int, int] = {}

    def _register(self, length: int) -> Training:
        """Declare the training, with a known seed, to a server that does not run yet."""
        first = models.write({"w": np.zeros(DIMENSION, np.float32)})
        wire = training_pb2.Training(
            name="killed",
            architecture="killed",
            initial=sha256(first).digest(),
            dimension=DIMENSION,
            rounds=length,
            round_seconds=24 * 3600,  # a round ends with its last update, or the test fails
            updates_per_round=DEVICES,
            min_updates=DEVICES,
            participations=length,
            separation=1,
            max_update_norm=1.0,
        )
        wire.local.epochs, wire.local.learning_rate = 1, 1.0
        wire.aggregation.rule, wire.aggregation.optimizer = "mean", "sgd"
        wire.aggregation.learning_rate, wire.aggregation.momentum = 1.0, 0.5
        wire.encoding.kind, wire.encoding.bits = "quantized", 8
        wire.central.mechanism, wire.central.bands = "toeplitz", length
        wire.central.noise_multiplier_millionths = 100_000
        data, now = wire.SerializeToString(deterministic=True), datetime.now(UTC)
        database = self.database()
        stored_models.put(database, wire.initial, len(first), 0, first, now)
        trainings.create(database, data, now, draw=lambda size: SEED[:size])
        database.close()
        return parse(data)

    def database(self) -> Database:
        self.server.folder.mkdir(exist_ok=True)
        return open_database(self.server.folder)

    def begin(self, number: int, last: int) -> None:
        """Start a device, to take part up to a round."""
        assert self.zygote.stdin is not None
        assert self.zygote.stdout is not None
        self.zygote.stdin.write(f"{number} {last}\n")
        self.zygote.stdin.flush()
        self.pids[number] = int(self.zygote.stdout.readline())

    def end(self, number: int) -> None:
        """Kill a device."""
        pid = self.pids.pop(number)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: _is_gone(pid))

    def close(self) -> None:
        for number in list(self.pids):
            self.end(number)
        self.zygote.communicate(timeout=10)
        if self.server.is_running():
            self.server.stop(signal.SIGKILL)

    def play(self, *, killing: bool) -> None:
        """Play all rounds; kill the server and each device once in each."""
        for last in range(1, self.training.rounds + 1):
            parts = [*range(DEVICES), _SERVER]
            self.chance.shuffle(parts)
            for part in parts:
                if part != _SERVER:
                    self.begin(part, last)
                if killing:
                    self._kill(part, last)
            wait_until(partial(self._is_over, last))
            for number in range(DEVICES):
                self.end(number)
        wait_until(self._has_ended)
        self.server.stop()

    def _kill(self, part: int, last: int) -> None:
        """Kill a device or the server, at a moment before or after an update was sealed; check what
        is known then, and start it again."""
        sealing = list(self.pids) if part == _SERVER else [part]
        if self.chance.random() < 0.7:
            wait_until(lambda: all(self.ledger(each)[0] == last for each in sealing))
            time.sleep(self.chance.uniform(0, 0.01))
        else:
            time.sleep(self.chance.uniform(0, 0.05))
        if part == _SERVER:
            self.server.stop(signal.SIGKILL)
            self.kills["server"] += 1
            self.check()
            self.server.start()
        else:
            self.end(part)
            used, waiting = self.ledger(part)
            self.kills["before" if used < last else "sending" if waiting else "after"] += 1
            self.begin(part, last)

    def _is_over(self, last: int) -> bool:
        """Tell whether each device was told that its update of a round is stored."""
        return all(self.ledger(number) == (last, 0) for number in range(DEVICES))

    def _has_ended(self) -> bool:
        database = self.database()
        try:
            found = trainings.training(database, "killed")
            return found is not None and found.state == "ended"
        finally:
            database.close()

    def ledger(self, number: int) -> tuple[int, int]:
        """Return how many participations a device's ledger has, and how many updates wait."""
        file = f"file:{self.folder / f'{number}.db'}?mode=ro"
        query = "SELECT used, (SELECT count(*) FROM updates) FROM participations"
        with contextlib.closing(sqlite3.connect(file, uri=True)) as connection:
            try:
                used, waiting = connection.execute(query).fetchone() or (0, 0)
            except sqlite3.OperationalError:  # no table before the first
                return 0, 0
        return used, waiting

    def acknowledged(self, number: int) -> list[int]:
        """Return the rounds of which a device was told that its update is stored."""
        log = self.folder / f"{number}.log"
        return list(map(int, log.read_text().split())) if log.exists() else []

    def check(self) -> None:
        """Check a server that was killed: it has each acknowledged update, once, and none that the
        ledger of its device does not know of."""
        acknowledged = {number: self.acknowledged(number) for number in range(DEVICES)}
        database = self.database()
        *over, newest = trainings.rounds(database, "killed")
        assert all(each.updates == DEVICES for each in over)
        counted = set(range(DEVICES))
        if newest.state != "aggregated":
            found = list(rounds.payloads(database, self.training, newest.round))
            counted = {int(np.argmax(self._decode(each)[:DEVICES])) for each in found}
            assert len(counted) == len(found)
        assert newest.updates == len(counted)
        database.close()
        for number in range(DEVICES):
            in_all = newest.round - (number not in counted)
            assert in_all >= max(acknowledged[number], default=0)
            assert self.ledger(number)[0] >= in_all

    def _decode(self, payload: bytes) -> NDArray[np.float32]:
        return encoding.decode(self.training, payload)

    def result(self) -> bytes:
        """Check that each device was counted once in each round; return the last model."""
        database = self.database()
        for each in trainings.rounds(database, "killed"):
            assert (each.state, each.updates) == ("aggregated", DEVICES)
        newest = rounds.newest(database, "killed")
        with database.reading() as connection:
            ids = connection.execute(sa.select(sa.func.count()).select_from(schema.updates))
            assert ids.scalar_one() == DEVICES * self.training.rounds
            model = stored_models.whole(connection, "killed", newest.result)
        database.close()
        for number in range(DEVICES):
            assert self.ledger(number) == (self.training.rounds, 0)
        return model


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def _compare(folder: Path, over: str, length: int) -> Counter[str]:
    """Play a training with and without kills, compare; return how many kills hit what."""
    results, kills = [], Counter[str]()
    for killing in (False, True):
        run = Run(folder / str(killing), over, length)
        with contextlib.closing(run):
            run.play(killing=killing)
            results.append(run.result())
        kills += run.kills
    assert results[0] == results[1]
    return kills


@pytest.mark.slow
def test_killing_all_parts_of_a_training_leaves_its_models_and_its_accounts_as_they_are(
    tmp_path: Path,
) -> None:
    kills = _compare(tmp_path, "grpc", 3)
    assert kills.total() == 12


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("over", ["grpc", "http"])
def test_two_hundred_kills_leave_a_training_as_it_is(tmp_path: Path, over: str) -> None:
    kills = _compare(tmp_path, over, 50)
    assert kills.total() == 200
    assert kills["sending"] > 20
