"""The Trainer service, and what operators call about trainings, at both doors of a server."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.message import Message
from over_http import PROTO, Door, answering
from serving import connected, create, own_name, tokens_of
from trained import declared, first_model, vector

from hearsay.federated import models
from hearsay.federated.calls import PART
from hearsay.federated.parsing import parse
from hearsay.v1 import admin_pb2, admin_pb2_grpc, collector_pb2, trainer_pb2, trainer_pb2_grpc
from support import SURVEY, wait_until

Result = collector_pb2.Result
_BIG = 300_000
"""Parameters of a model whose file, and updates, have two parts."""


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with answering(tmp_path_factory.mktemp("trained")) as found:
        yield found


class Calls:
    """Calls of both services over gRPC."""

    def __init__(self, door: Door, token: str | None = None) -> None:
        self.door = door
        self.token = token

    def __call__(self, method: str, request: Message) -> Any:
        service, _, name = method.partition("/")
        stubs = {"Admin": admin_pb2_grpc.AdminStub, "Trainer": trainer_pb2_grpc.TrainerStub}
        with connected(self.door.grpc, self.token) as channel:
            return getattr(stubs[service](channel), name)(request, timeout=20)


class OverHttp(Calls):
    """The same calls by Connect, in binary."""

    def __call__(self, method: str, request: Message) -> Any:
        body = request.SerializeToString()
        answer = self.door.ask(f"/hearsay.v1.{method}", body, PROTO)
        assert answer.status == 200, answer.body
        module = {"Admin": admin_pb2, "Trainer": trainer_pb2}[method.partition("/")[0]]
        names = {"CreateTraining": "TrainingStatus", "CloseTraining": "TrainingStatus"}
        name = method.partition("/")[2]
        return getattr(module, names.get(name, f"{name}Response")).FromString(answer.body)


@pytest.fixture(params=[Calls, OverHttp], ids=["grpc", "http"])
def call(request: pytest.FixtureRequest, door: Door) -> Calls:
    made: Calls = request.param(door)
    return made


def _upload(call: Calls, file: bytes) -> bytes:
    model, offset = sha256(file).digest(), 0
    while offset < len(file):
        data = file[offset : offset + PART]
        part = admin_pb2.UploadModelRequest(model=model, size=len(file), offset=offset, data=data)
        offset = call("Admin/UploadModel", part).next
    return model


def _created(call: Calls, name: str, dimension: int = 6, **fields: Any) -> bytes:
    data = declared(dimension=dimension, name=name, **fields)
    _upload(call, first_model(dimension))
    status = call("Admin/CreateTraining", admin_pb2.CreateTrainingRequest(training=data))
    assert status.state == admin_pb2.TrainingStatus.RUNNING
    assert status.revision == sha256(data).digest()
    return data


def _round(call: Calls, name: str) -> trainer_pb2.GetRoundResponse:
    found: trainer_pb2.GetRoundResponse = call(
        "Trainer/GetRound", trainer_pb2.GetRoundRequest(training=name)
    )
    return found


def _model(call: Calls, name: str, model: bytes) -> bytes:
    file = b""
    while True:
        asked = trainer_pb2.GetModelRequest(training=name, model=model, offset=len(file))
        answer = call("Trainer/GetModel", asked)
        file += answer.data
        if not answer.data:
            assert len(file) == answer.size
            return file


def _update(call: Calls, of: bytes, number: int, **fields: Any) -> trainer_pb2.SubmitUpdateRequest:
    training = parse(of)
    now = _round(call, training.name)
    payload = vector(number, training.dimension).tobytes()
    known = {
        "id": number.to_bytes(16, "little"),
        "training": training.name,
        "revision": training.revision,
        "round": now.round,
        "model": now.model,
        "size": len(payload),
        "data": payload[:PART],
    }
    return trainer_pb2.SubmitUpdateRequest(**{**known, **fields})


def _submit(call: Calls, sent: trainer_pb2.SubmitUpdateRequest) -> Any:
    return call("Trainer/SubmitUpdate", sent)


def test_a_round_goes_from_the_first_update_to_the_next_model(
    call: Calls, request: pytest.FixtureRequest
) -> None:
    name = own_name(request)
    data = _created(call, name)
    asked = trainer_pb2.GetTrainingRequest(training=name)
    assert call("Trainer/GetTraining", asked).training == data
    first = _round(call, name)
    assert (first.state, first.round) == (trainer_pb2.GetRoundResponse.OPEN, 1)
    assert first.deadline > first.server_time
    assert _model(call, name, first.model) == first_model()
    for number in (1, 2, 3):
        assert _submit(call, _update(call, data, number)).status == Result.STORED
    wait_until(lambda: _round(call, name).round == 2)
    model = models.to_vector(models.read(_model(call, name, _round(call, name).model)))
    expected = np.median([vector(number) for number in (1, 2, 3)], axis=0)
    assert np.allclose(model, expected, atol=1e-6)
    shown = call("Admin/ShowTraining", admin_pb2.ShowTrainingRequest(training=name))
    states = [(each.round, each.state, each.updates, each.update_bytes) for each in shown.rounds]
    kinds = admin_pb2.TrainingRound
    assert states == [(1, kinds.AGGREGATED, 3, 72), (2, kinds.OPEN, 0, 0)]
    assert shown.training == data
    assert shown.status.trouble == ""


def test_a_large_update_comes_in_parts(call: Calls, request: pytest.FixtureRequest) -> None:
    name = own_name(request)
    data = _created(call, name, _BIG)
    assert _model(call, name, _round(call, name).model) == first_model(_BIG)
    payload = vector(1, _BIG).tobytes()
    first = _submit(call, _update(call, data, 1))
    assert (first.status, first.next) == (Result.RETRY, PART)
    late = _update(call, data, 1, offset=PART + 4, data=payload[PART + 4 :])
    assert _submit(call, late).next == PART
    last = _update(call, data, 1, offset=PART, data=payload[PART:])
    assert _submit(call, last).status == Result.STORED
    assert _submit(call, last).status == Result.DUPLICATE


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        ({"id": b"short"}, "BAD_UPDATE_ID"),
        ({"size": 20}, "BAD_LENGTH"),
        ({"data": bytes(25)}, "BAD_LENGTH"),
        ({"data": bytes(1)}, "BAD_LENGTH"),  # a part that is not the last, and small
        ({"data": np.full(6, np.nan, "<f4").tobytes()}, "NOT_FINITE"),
        ({"data": np.full(6, 0.5, "<f4").tobytes()}, "ABOVE_NORM"),
        ({"round": 0}, "ROUND_CLOSED"),
        ({"model": bytes(32)}, "OTHER_MODEL"),
        ({"revision": b""}, "OTHER_REVISION"),
        ({"training": "none"}, "UNKNOWN_TRAINING"),
    ],
)
def test_a_bad_update_is_refused_with_a_reason_and_the_round_unharmed(
    door: Door, request: pytest.FixtureRequest, wrong: dict[str, object], refusal: str
) -> None:
    call, name = Calls(door), own_name(request)
    data = _created(call, name)
    answer = _submit(call, _update(call, data, 1, **wrong))
    assert answer.status == Result.REFUSED
    assert trainer_pb2.Refusal.Name(answer.refusal) == refusal
    assert answer.detail
    assert _submit(call, _update(call, data, 1)).status == Result.STORED


def test_a_bad_update_in_parts_is_refused_once_it_is_whole_and_forgotten(
    door: Door, request: pytest.FixtureRequest
) -> None:
    call, name = Calls(door), own_name(request)
    data = _created(call, name, _BIG)
    bad = np.full(_BIG, 0.5, "<f4").tobytes()
    assert _submit(call, _update(call, data, 1, data=bad[:PART])).next == PART
    answer = _submit(call, _update(call, data, 1, offset=PART, data=bad[PART:]))
    assert answer.refusal == trainer_pb2.ABOVE_NORM
    assert _submit(call, _update(call, data, 1)).next == PART  # nothing of it is left


def _code(made: Callable[[], object]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        made()
    code: grpc.StatusCode = caught.value.code()
    return code


def test_a_training_is_created_once_by_a_name_that_no_survey_has(
    door: Door, request: pytest.FixtureRequest
) -> None:
    call, name = Calls(door), own_name(request)
    data = _created(call, name)

    def make(data: bytes) -> Any:
        return call("Admin/CreateTraining", admin_pb2.CreateTrainingRequest(training=data))

    assert make(data).round == 1
    codes = grpc.StatusCode
    assert _code(lambda: make(declared(name=name, title="Other."))) == codes.ALREADY_EXISTS
    assert _code(lambda: make(b"nonsense")) == codes.INVALID_ARGUMENT
    absent = declared(name=f"{name}_2", initial=bytes(32))
    assert _code(lambda: make(absent)) == codes.INVALID_ARGUMENT
    robust = declared(name=f"{name}_3", dimension=6_000_000, updates_per_round=100)
    assert _code(lambda: make(robust)) == codes.INVALID_ARGUMENT
    survey = SURVEY.replace('"health"', f'"{name}"')
    assert _code(lambda: create(door.grpc, survey)) == codes.ALREADY_EXISTS
    create(door.grpc, SURVEY.replace('"health"', f'"{name}_4"'))
    _upload(call, first_model())
    assert _code(lambda: make(declared(name=f"{name}_4"))) == codes.ALREADY_EXISTS


def test_a_model_with_another_digest_is_refused_and_may_come_again(door: Door) -> None:
    call, file = Calls(door), b"some bytes"
    wrong = admin_pb2.UploadModelRequest(model=sha256(b"").digest(), size=len(file), data=file)
    for _ in range(2):
        assert _code(lambda: call("Admin/UploadModel", wrong)) == grpc.StatusCode.INVALID_ARGUMENT
    model = _upload(call, file)
    data = declared(name="nonsense", initial=model)
    make = admin_pb2.CreateTrainingRequest(training=data)
    assert _code(lambda: call("Admin/CreateTraining", make)) == grpc.StatusCode.INVALID_ARGUMENT


def test_a_training_is_closed_and_deleted(door: Door, request: pytest.FixtureRequest) -> None:
    call, name = Calls(door), own_name(request)
    data = _created(call, name)
    late = _update(call, data, 2)
    _submit(call, _update(call, data, 1))
    closed = call("Admin/CloseTraining", admin_pb2.CloseTrainingRequest(training=name))
    assert (closed.state, closed.dropped) == (admin_pb2.TrainingStatus.CLOSED, 1)
    assert _round(call, name).state == trainer_pb2.GetRoundResponse.ENDED
    assert _submit(call, late).refusal == trainer_pb2.ROUND_CLOSED
    delete = admin_pb2.DeleteTrainingRequest(training=name)
    gone = call("Admin/DeleteTraining", delete)
    assert (gone.rounds, gone.updates) == (1, 1)
    codes = grpc.StatusCode
    assert _code(lambda: _round(call, name)) == codes.NOT_FOUND
    assert _code(lambda: call("Admin/DeleteTraining", delete)) == codes.NOT_FOUND
    assert _created(call, name) == data


def test_devices_need_a_token_where_one_is_required(tmp_path: Path) -> None:
    token = tokens_of(tmp_path / "data")
    _, device = token.create("device")
    _, admin = token.create("admin")
    served: AbstractContextManager[Door] = answering(
        tmp_path / "data", require_device_token=True, batches_per_second=0.001
    )
    with served as door:
        data = _created(Calls(door, admin), "digits")
        call, asked = Calls(door, device), trainer_pb2.GetRoundRequest(training="digits")
        first = _round(call, "digits")
        codes = grpc.StatusCode
        for other, code in ((None, codes.UNAUTHENTICATED), (admin, codes.PERMISSION_DENIED)):
            ask = Calls(door, other)
            assert _code(lambda ask=ask: ask("Trainer/GetRound", asked)) == code  # type: ignore[misc]
        assert _model(Calls(door, admin), "digits", first.model) == first_model()
        with connected(door.grpc, device) as channel, pytest.raises(grpc.RpcError) as caught:
            stub, sent = trainer_pb2_grpc.TrainerStub(channel), _update(call, data, 1)
            for _ in range(257):
                stub.SubmitUpdate(sent, timeout=20)
        assert caught.value.code() == codes.RESOURCE_EXHAUSTED
        names = [key for key, _ in caught.value.trailing_metadata()]
        assert "retry-after-ms" in names
