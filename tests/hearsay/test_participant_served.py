"""People who take part in a training of a real server, over gRPC and over HTTP."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from over_http import Door, answering
from trained import declared, first_model
from trainers import QUICK, Steps

from hearsay import MEMORY, Client, Reason, create_ledger
from hearsay.federated import Participant, models
from hearsay.federated.calls import PART, TrainerCalls
from hearsay.federated.parsing import parse
from hearsay.plans.plan import mechanism_message
from hearsay.sending.transport import connect, open_calls
from hearsay.v1 import admin_pb2, trainer_pb2, training_pb2
from ldp import SphereCodebook
from support import wait_until

DIMENSION = 300_000
"""Parameters of a model whose file, and updates, have two parts."""


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with answering(tmp_path_factory.mktemp("trained")) as found:
        yield found


class _Served:
    """A training of a real server, and what its operator and its devices see."""

    def __init__(self, door: Door, over: str, data: bytes) -> None:
        self.target = door.grpc if over == "grpc" else f"http://127.0.0.1:{door.port}"
        self.training = parse(data)
        self._calls = open_calls(self.target)
        file = first_model(self.training.dimension)
        for offset in range(0, len(file), PART):
            request = admin_pb2.UploadModelRequest(
                model=self.training.initial,
                size=len(file),
                offset=offset,
                data=file[offset : offset + PART],
            )
            self._calls.call("Admin/UploadModel", request, admin_pb2.UploadModelResponse, 20)
        create = admin_pb2.CreateTrainingRequest(training=data)
        self._calls.call("Admin/CreateTraining", create, admin_pb2.TrainingStatus, 20)

    def model_after(self, round_: int) -> NDArray[np.float32]:
        """Wait for the round after this one; return its model."""
        ask = trainer_pb2.GetRoundRequest(training=self.training.name)

        def now() -> trainer_pb2.GetRoundResponse:
            return self._calls.call("Trainer/GetRound", ask, trainer_pb2.GetRoundResponse, 20)

        wait_until(lambda: now().round == round_ + 1)
        calls = TrainerCalls(lambda: connect(self.target), self.training.name, 20)
        file = calls.model(now().model, self.training.dimension, lambda: None)
        return models.to_vector(models.read(file))

    def participants(self, app: Client, changes: Sequence[float], **agreed: Any) -> Any:
        for number, change in enumerate(changes):
            yield Participant(
                app.person(f"person {number}"),
                self.training.name,
                steps={"2nn": Steps(change)},
                revision=self.training.revision.hex(),
                consent=True,
                **agreed,
            )


@pytest.mark.slow
@pytest.mark.parametrize("over", ["grpc", "http"])
def test_a_round_of_a_real_server_makes_the_median_of_what_people_sent(
    door: Door, over: str, tmp_path: Path
) -> None:
    served = _Served(door, over, declared(dimension=DIMENSION, name=f"records_{over}"))
    file = tmp_path / "ledger.db"
    create_ledger(file)
    with Client(served.target, "none", epsilon=1.0, ledger=file, delivery=QUICK) as app:
        people = list(served.participants(app, (1e-4, 2e-4, 5e-4), record_level=1.0))
        for each in people:
            progress = each.run_once()
            assert (progress.reason, progress.round) == (Reason.READY, 1), progress
        assert np.allclose(served.model_after(1), 2e-4, rtol=1e-6)
        assert people[0].run_once().reason is Reason.WAITING  # two rounds apart


@pytest.mark.slow
def test_a_round_with_central_noise_makes_the_mean_and_charges_rho(
    door: Door, tmp_path: Path
) -> None:
    data = training_pb2.Training.FromString(declared("central", name="central"))
    data.central.noise_multiplier_millionths = 2000  # too little to protect anybody
    served = _Served(door, "grpc", data.SerializeToString(deterministic=True))
    create_ledger(tmp_path / "ledger.db")
    with Client(
        served.target, "none", epsilon=1.0, ledger=tmp_path / "ledger.db", delivery=QUICK
    ) as app:
        people = list(served.participants(app, (0.1, 0.2, 0.3), rho=1e6))
        for each in people:
            assert each.run_once().reason is Reason.READY
        assert np.allclose(served.model_after(1), 0.2, atol=0.01)
        spent = people[0].spending()
        assert spent.rho == float(served.training.rho) > 1e5


@pytest.mark.slow
def test_a_round_with_local_noise_averages_codes_and_charges_epsilon(door: Door) -> None:
    data = training_pb2.Training.FromString(declared("central", name="local"))
    data.local_noise.mechanism.CopyFrom(mechanism_message(SphereCodebook(6, 2.0, codes=64)))
    data.ClearField("encoding")
    served = _Served(door, "grpc", data.SerializeToString(deterministic=True))
    with Client(served.target, "none", epsilon=1.0, ledger=MEMORY, delivery=QUICK) as app:
        people = list(served.participants(app, (0.1, 0.2, 0.3), epsilon=4.0, step_seconds=0.01))
        for each in people:
            assert each.run_once().reason is Reason.READY
        assert served.model_after(1).any()
        assert people[0].spending().epsilon == 2.0
