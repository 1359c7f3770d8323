"""Random bytes in every field of every call: each is answered, and the server lives."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import messages, values
from postgres import EITHER, Postgres
from serving import batch, connected, register, serving, submit

from hearsay.v1 import admin_pb2, analyst_pb2, collector_pb2
from hearsay_server.storage.store import Store
from hearsay_server.storage.verify import Verdict, verify

TEXTS = (
    *("health", "smokes", "age", "strict", "open", "once", "2030-01-01", "yes", "krr", "P1D"),
    *("\0", "smokes\0", "\ufffd", "\U0010ffff", "'; DROP TABLE batches; --"),
)
Result = collector_pb2.Result
FIELDS = [*collector_pb2.Batch.DESCRIPTOR.fields, *collector_pb2.Column.DESCRIPTOR.fields]
METHODS = [
    method
    for file in (collector_pb2, analyst_pb2, admin_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
DOCUMENTED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
ENDLESS = {"Watch"}
FINAL = {"CloseSurvey", "DeleteSurvey"}
"""Calls that would take the survey of these tests away."""


@dataclass(frozen=True)
class Target:
    """A server with a survey and a few reports."""

    address: str
    revision: bytes
    channel: grpc.Channel
    numbers: Iterator[int]

    def lives(self) -> bool:
        """Tell whether it stores a good batch."""
        good = batch(self.revision, next(self.numbers))
        return [r.status for r in submit(self.address, good)] == [Result.STORED]

    def call(self, method: MethodDescriptor, request: bytes) -> tuple[grpc.StatusCode, str]:
        """Make a call; return how it ended."""
        name = f"/{method.containing_service.full_name}/{method.name}"
        streams = method.server_streaming
        make: Any = self.channel.unary_stream if streams else self.channel.unary_unary
        call = make(name, lambda data: data, lambda data: data)
        try:
            if method.name in ENDLESS:
                call(request, timeout=0.2).next()
            elif streams:
                list(call(request, timeout=20))
            else:
                call(request, timeout=20)
        except grpc.RpcError as error:
            ended: Any = error
            if method.name in ENDLESS and ended.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                return grpc.StatusCode.OK, ""  # there was nothing yet to tell
            return ended.code(), ended.details()
        return grpc.StatusCode.OK, ""


@pytest.fixture(scope="module", params=EITHER)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("fuzz")
    where: Path | str = folder
    if request.param == "postgresql":
        cluster: Postgres = request.getfixturevalue("postgres")
        where = cluster.create()
    database = where if isinstance(where, str) else ""
    with serving(folder, database=database) as address, connected(address) as channel:
        found = Target(address, register(address), channel, count(1))
        assert found.lives()
        yield found
    store = Store(where)
    assert {checked.verdict for checked in verify(store.database)} == {Verdict.EQUAL}
    store.close()


on_each_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: str(method.name))
on_each_field = pytest.mark.parametrize("field", FIELDS, ids=lambda field: str(field.full_name))


@on_each_method
def test_random_fields_are_answered_with_what_is_wrong(
    target: Target, method: MethodDescriptor
) -> None:
    @settings(max_examples=30)
    @given(messages(method.input_type, (TEXTS, [target.revision])))
    def is_answered(request: Any) -> None:
        if method.name in FINAL and request.survey == "health":
            request.survey = "another"
        code, detail = target.call(method, request.SerializeToString())
        assert code in DOCUMENTED, detail

    is_answered()
    assert target.lives()


@on_each_field
def test_a_batch_with_a_random_field_is_refused_with_a_reason_or_stored(
    target: Target, field: FieldDescriptor
) -> None:
    @settings(max_examples=30)
    @given(values(field, (TEXTS, [target.revision])))
    def is_judged(value: Any) -> None:
        changed = batch(target.revision, next(target.numbers), rows=3)
        part: Any = changed if field.containing_type == changed.DESCRIPTOR else changed.columns[0]
        part.ClearField(field.name)
        if field.is_repeated:
            getattr(part, field.name).extend(value)
        else:
            setattr(part, field.name, value)
        good = batch(target.revision, next(target.numbers))
        found, beside = submit(target.address, changed, good)  # in one commit
        assert beside.status == Result.STORED
        assert (found.status in (Result.REFUSED, Result.RETRY)) == bool(found.reason)

    is_judged()


@on_each_method
def test_random_bytes_for_a_message_are_answered(target: Target, method: MethodDescriptor) -> None:
    @settings(max_examples=10)
    @given(st.binary(max_size=100))
    def is_answered(request: bytes) -> None:
        code, detail = target.call(method, request)
        assert code in DOCUMENTED, detail

    is_answered()
    code, detail = target.call(method, b"\xff")
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert detail == "the message is not of the type that this method takes"
    assert target.lives()
