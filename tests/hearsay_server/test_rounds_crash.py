"""kill -9 of a server in the middle of a round: no update is lost or counts twice, and the models
are those of a run that nobody disturbed, bit for bit."""

import signal
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
import seeded
from trained import aggregate, declared, first_model, register, send, vector

from hearsay.federated.parsing import parse
from hearsay.v1 import admin_pb2, admin_pb2_grpc, collector_pb2, trainer_pb2, trainer_pb2_grpc
from hearsay_server.storage.database import open_database
from hearsay_server.storage.trainings import rounds
from hearsay_server.storage.verify import Verdict, verify
from support import Server

UPDATES, DIMENSION = 3, 2000
ROUNDS = 2 * len(seeded.PLACES) + 2
DONE = {collector_pb2.Result.STORED, collector_pb2.Result.DUPLICATE}
DATA = declared(
    "central", dimension=DIMENSION, updates_per_round=UPDATES, rounds=ROUNDS, round_seconds=3600
)
TRAINING = parse(DATA)


class _Devices:
    """Devices that send until an update is acknowledged, to a server that dies again and again."""

    def __init__(self, folder: Path) -> None:
        self.server = Server(folder / "data", run=seeded.main)
        self._places = iter(seeded.PLACES)
        self.deaths = 0

    def start(self) -> None:
        """Start the server, which will die where it comes by the next place once more."""
        self.server.command = (next(self._places, "none"), "2")
        self.server.start()

    def call(self, stub: Any, name: str, request: object) -> Any:
        """Make a call; where the server has died, start it and make the call again."""
        while True:
            try:
                with self.server.channel() as channel:
                    return getattr(stub(channel), name)(request, timeout=20)
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.UNAVAILABLE
                assert self.server.wait() == -signal.SIGKILL
                self.deaths += 1
                self.start()

    def run(self) -> list[bytes]:
        """Take part in all rounds; return the models after each."""
        self.start()
        file, admin = first_model(DIMENSION), admin_pb2_grpc.AdminStub
        whole = {"model": TRAINING.initial, "size": len(file), "data": file}
        self.call(admin, "UploadModel", admin_pb2.UploadModelRequest(**whole))
        self.call(admin, "CreateTraining", admin_pb2.CreateTrainingRequest(training=DATA))
        for number in range(1, ROUNDS + 1):
            while (found := self.round()).round < number:
                time.sleep(0.01)
            for device in range(UPDATES):
                assert self.send(number, found.model, device).status in DONE
        while self.round().state != trainer_pb2.GetRoundResponse.ENDED:
            time.sleep(0.01)
        asked = admin_pb2.ShowTrainingRequest(training="digits")
        rounds = self.call(admin, "ShowTraining", asked).rounds
        assert [each.updates for each in rounds] == [UPDATES] * ROUNDS
        return [each.result for each in rounds]

    def round(self) -> trainer_pb2.GetRoundResponse:
        """Return the newest round."""
        asked = trainer_pb2.GetRoundRequest(training="digits")
        found = self.call(trainer_pb2_grpc.TrainerStub, "GetRound", asked)
        assert isinstance(found, trainer_pb2.GetRoundResponse)
        return found

    def send(self, number: int, model: bytes, device: int) -> Any:
        """Submit the update of a device to a round."""
        payload = vector(10 * number + device, DIMENSION).tobytes()
        sent = trainer_pb2.SubmitUpdateRequest(
            id=(10 * number + device).to_bytes(16, "little"),
            training="digits",
            revision=TRAINING.revision,
            round=number,
            model=model,
            size=len(payload),
            data=payload,
        )
        return self.call(trainer_pb2_grpc.TrainerStub, "SubmitUpdate", sent)


def _undisturbed(folder: Path) -> list[bytes | None]:
    """Return the models of a run without a server."""
    database = open_database(folder)
    register(database, DATA, seeded.SEED)
    for number in range(1, ROUNDS + 1):
        send(database, TRAINING, *(10 * number + device for device in range(UPDATES)))
        aggregate(database, TRAINING)
    models = [each.result for each in rounds(database, "digits")]
    database.close()
    return models


@pytest.mark.slow
def test_a_server_that_dies_at_every_place_in_its_rounds_makes_the_same_models(
    tmp_path: Path,
) -> None:
    devices = _Devices(tmp_path)
    try:
        models = devices.run()
    finally:
        if devices.server.is_running():
            devices.server.stop()
    assert devices.deaths == len(seeded.PLACES)
    assert models == _undisturbed(tmp_path / "undisturbed")
    assert len(set(models)) == ROUNDS
    database = open_database(tmp_path / "data")
    assert {checked.verdict for checked in verify(database)} == {Verdict.EQUAL}
    database.close()
