"""People who take part in a training of a real server, over gRPC and over HTTP."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from over_http import Door, answering
from trained import declared, first_model
from trainers import QUICK, Steps

from hearsay import Client, Reason, create_ledger
from hearsay.federated import Participant, models
from hearsay.federated.declaration import parse
from hearsay.sending.transport import open_calls
from hearsay.v1 import admin_pb2, trainer_pb2
from support import wait_until

DIMENSION = 300_000
"""Parameters of a model whose file, and updates, have two parts."""

PART = 1 << 20


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with answering(tmp_path_factory.mktemp("trained")) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("over", ["grpc", "http"])
def test_a_round_of_a_real_server_makes_the_median_of_what_people_sent(
    door: Door, over: str, tmp_path: Path
) -> None:
    target = door.grpc if over == "grpc" else f"http://127.0.0.1:{door.port}"
    calls = open_calls(target)
    name = f"digits_{over}"
    data, file = declared(dimension=DIMENSION, name=name), first_model(DIMENSION)
    initial = sha256(file).digest()
    for offset in range(0, len(file), PART):
        request = admin_pb2.UploadModelRequest(
            model=initial, size=len(file), offset=offset, data=file[offset : offset + PART]
        )
        calls.call("Admin/UploadModel", request, admin_pb2.UploadModelResponse, 20)
    create = admin_pb2.CreateTrainingRequest(training=data)
    calls.call("Admin/CreateTraining", create, admin_pb2.TrainingStatus, 20)

    create_ledger(tmp_path / "ledger.db")
    with Client(target, "daily", epsilon=1.0, ledger=tmp_path / "ledger.db", delivery=QUICK) as app:
        participants = [
            Participant(
                app.person(person),
                name,
                steps={"2nn": Steps(change)},
                record_level=True,
                revision=parse(data).revision.hex(),
                consent=True,
            )
            for person, change in (("ann", 1e-4), ("bob", 2e-4), ("eve", 5e-4))
        ]
        for each in participants:
            progress = each.run_once()
            assert (progress.reason, progress.round) == (Reason.READY, 1), progress
        ask = trainer_pb2.GetRoundRequest(training=name)

        def now() -> trainer_pb2.GetRoundResponse:
            return calls.call("Trainer/GetRound", ask, trainer_pb2.GetRoundResponse, 20)

        wait_until(lambda: now().round == 2)
        assert participants[0].run_once().reason is Reason.WAITING  # two rounds apart
        seen = participants[0]._calls.model(now().model, DIMENSION, lambda: None)
    change = models.to_vector(models.read(seen))
    assert np.allclose(change, 2e-4, rtol=1e-6)  # the median, which a record-level training may use
    calls.close()
