"""A Trainer in this process, which answers as a test says, and what takes part in its training."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hearsay import Client, Delivery, InvalidInput, Unreachable, create_ledger
from hearsay.federated import Participant, Round, models
from hearsay.plans.plan import mechanism_message
from hearsay.v1 import collector_pb2, trainer_pb2, training_pb2
from ldp import SphereCodebook

STORED, DUPLICATE = collector_pb2.Result.STORED, collector_pb2.Result.DUPLICATE
REFUSED, RETRY = collector_pb2.Result.REFUSED, collector_pb2.Result.RETRY
OPEN, WAIT = trainer_pb2.GetRoundResponse.OPEN, trainer_pb2.GetRoundResponse.WAIT
ENDED = trainer_pb2.GetRoundResponse.ENDED

MODEL = models.write({"weights": np.zeros((2, 3), np.float32), "bias": np.zeros(2, np.float32)})
DIMENSION = 8
QUICK = Delivery(first_wait=0.01, longest_wait=0.02, timeout=2.0)


def declared(*, initial: bytes = MODEL, **changes: Any) -> bytes:
    """The frozen bytes of a training, with the given fields in place of the usual ones."""
    fields: dict[str, Any] = {
        "name": "digits",
        "title": "Digits",
        "architecture": "linear",
        "initial": hashlib.sha256(initial).digest(),
        "dimension": DIMENSION,
        "rounds": 20,
        "round_seconds": 1,
        "updates_per_round": 10,
        "min_updates": 2,
        "participations": 3,
        "separation": 2,
        "local": {"epochs": 1, "batch_size": 10, "learning_rate": 0.1},
        "max_update_norm": 1.0,
        "aggregation": {"rule": "mean", "optimizer": "sgd", "learning_rate": 1.0},
        "encoding": {"kind": "float32"},
        "central": {"mechanism": "tree", "noise_multiplier_millionths": 5_000_000},
    }
    fields |= changes
    given = {name: value for name, value in fields.items() if value is not None}
    return training_pb2.Training(**given).SerializeToString(deterministic=True)


RECORDS: Mapping[str, Any] = {
    "central": None,
    "record_level": {"noise_multiplier_millionths": 1_000_000, "max_grad_norm": 1.0},
}
"""Fields of a training that protects records alone."""


def local_noise(epsilon: float = 1.0) -> dict[str, Any]:
    """Fields of a training whose devices add the noise."""
    mechanism = mechanism_message(SphereCodebook(DIMENSION, epsilon, codes=32))
    return {"central": None, "encoding": None, "local_noise": {"mechanism": mechanism}}


class Trainer:
    """A transport with one training. `lies` changes answers, by method; `errors` are raised by the
    next calls, and None lets one pass."""

    def __init__(self, training: bytes, model: bytes = MODEL) -> None:
        self.training = training
        self.models = {hashlib.sha256(model).digest(): model}
        self.round = trainer_pb2.GetRoundResponse(
            state=OPEN, round=1, model=next(iter(self.models)), deadline=2000, server_time=1000
        )
        self.stored: dict[bytes, trainer_pb2.SubmitUpdateRequest] = {}
        self.parts: dict[bytes, bytearray] = {}
        self.requests: list[Any] = []
        self.errors: list[Exception | None] = []
        self.lies: dict[str, Callable[[Any], None]] = {}
        self.part = 1 << 20

    def call(self, method: str, request: Any, kind: Any, timeout: float) -> Any:
        self.requests.append(request)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        if request.training != "digits":
            raise InvalidInput(f"there is no training {request.training!r}")
        name = method.removeprefix("Trainer/")
        answer = getattr(self, f"_{name}")(request)
        if name in self.lies:
            self.lies[name](answer)
        return answer

    def _GetTraining(self, request: Any) -> Any:
        return trainer_pb2.GetTrainingResponse(training=self.training)

    def _GetRound(self, request: Any) -> Any:
        answer = trainer_pb2.GetRoundResponse()
        answer.CopyFrom(self.round)
        return answer

    def _GetModel(self, request: Any) -> Any:
        data = self.models[request.model]
        part = data[request.offset : request.offset + self.part]
        return trainer_pb2.GetModelResponse(data=part, size=len(data))

    def _SubmitUpdate(self, request: Any) -> Any:
        if request.id in self.stored:
            return trainer_pb2.SubmitUpdateResponse(status=DUPLICATE)
        data = self.parts.setdefault(request.id, bytearray())
        if request.offset == len(data):
            data += request.data
        if len(data) < request.size:
            return trainer_pb2.SubmitUpdateResponse(status=RETRY, next=len(data))
        whole = trainer_pb2.SubmitUpdateRequest()
        whole.CopyFrom(request)
        whole.data = bytes(data)
        self.stored[request.id] = whole
        return trainer_pb2.SubmitUpdateResponse(status=STORED)

    def vectors(self) -> list[NDArray[np.float32]]:
        return [np.frombuffer(each.data, "<f4") for each in self.stored.values()]

    @property
    def submitted(self) -> list[trainer_pb2.SubmitUpdateRequest]:
        """The parts of updates that came, also where no answer left."""
        kind = trainer_pb2.SubmitUpdateRequest
        return [each for each in self.requests if isinstance(each, kind)]

    def open(self, round_: int, model: bytes | None = None) -> None:
        """Open a round, with another model where one is given."""
        self.round.round = round_
        if model is not None:
            self.round.model = hashlib.sha256(model).digest()
            self.models[self.round.model] = model

    def get_plan(self, survey: str, timeout: float) -> Any:
        raise Unreachable("there are no surveys here")

    def interrupt(self) -> None: ...

    def close(self) -> None: ...

    def after_fork(self, *, usable: bool) -> None: ...


class Steps:
    """An app's step that adds `change` to each parameter, and counts its calls."""

    def __init__(self, change: float = 0.125) -> None:
        self.change = change
        self.rounds: list[int] = []
        self.fails: Callable[[], Any] | None = None

    def __call__(self, model: dict[str, NDArray[np.float32]], round_: Round) -> Any:
        self.rounds.append(round_.number)
        if self.fails is not None:
            return self.fails()
        return {name: tensor + self.change for name, tensor in model.items()}


def client_of(trainer: Trainer, file: Path | Any, **options: Any) -> Client:
    """A client of a ledger, which is made unless it is there."""
    if isinstance(file, Path) and not file.exists():
        create_ledger(file)
    return Client(
        trainer,
        "daily",
        epsilon=1.0,
        ledger=file,
        delivery=options.pop("delivery", QUICK),
        **options,
    )


def participant_of(client: Any, step: Any, **options: Any) -> Participant:
    """Who takes part and consents; trainings with central noise are accepted where nothing else is
    said."""
    if not {"rho", "epsilon", "record_level"} & options.keys():
        options["rho"] = 10.0
    return Participant(client, "digits", steps={"linear": step}, **{"consent": True, **options})


def noisy_participant(client: Any, step: Any, epsilon: float = 3.0) -> Participant:
    """Who takes part in a training with local noise, with steps of a fixed time."""
    return participant_of(client, step, epsilon=epsilon, step_seconds=0.01)


@pytest.fixture
def trainer() -> Trainer:
    """A transport with a training that has central noise."""
    return Trainer(declared())


@pytest.fixture
def step() -> Steps:
    """A step that notes its rounds."""
    return Steps()
