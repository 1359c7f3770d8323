"""The server as a process: what it answers, how it stops, what it remembers."""

import signal
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hearsay.v1 import collector_pb2, collector_pb2_grpc
from hearsay_server.store import Store
from support import SURVEY, Server

from ldp import InvalidInput

Result = collector_pb2.Result


def batches(server: Server, count: int) -> list[collector_pb2.Batch]:
    """Batches of one row that say yes, no, sometimes, yes, ..."""
    revision = server.show("health").status.revision
    return [
        collector_pb2.Batch(
            id=number.to_bytes(16, "big"),
            survey="health",
            revision=revision,
            period="once",
            rows=1,
            columns=[
                collector_pb2.Column(
                    attribute="smokes", level="strict", codes=bytes([(number + 2) % 3])
                )
            ],
        )
        for number in range(count)
    ]


def statuses(response: collector_pb2.SubmitResponse) -> list[str]:
    return [Result.Status.Name(result.status) for result in response.results]


def tally(server: Server) -> list[int]:
    """Read what is stored, once the server is gone."""
    store = Store(server.folder)
    ((_, stored),) = store.tallies("health", "smokes").items()
    store.close()
    return stored.counts.tolist()


def test_good_and_bad_batches_of_one_request_are_told_apart(
    server: Server, collector: collector_pb2_grpc.CollectorStub
) -> None:
    good, again, bad = [*batches(server, 1), *batches(server, 1), *batches(server, 2)[1:]]
    bad.columns[0].codes = b"\x09"
    response = collector.Submit(collector_pb2.SubmitRequest(batches=[good, bad, again]))
    assert statuses(response) == ["STORED", "REFUSED", "DUPLICATE"]
    assert response.results[1].reason == collector_pb2.Reason.BAD_CODES
    assert response.results[1].detail == "'smokes': a krr code must be below 3, got 9"
    assert server.show("health").status.records == 1


def test_a_refused_batch_may_come_again_mended(
    server: Server, collector: collector_pb2_grpc.CollectorStub
) -> None:
    (batch,) = batches(server, 1)
    codes, batch.columns[0].codes = batch.columns[0].codes, b"\x09"
    request = collector_pb2.SubmitRequest(batches=[batch])
    assert statuses(collector.Submit(request)) == ["REFUSED"]
    request.batches[0].columns[0].codes = codes
    assert statuses(collector.Submit(request)) == ["STORED"]


def test_a_restart_changes_nothing(server: Server) -> None:
    sent = batches(server, 100)
    with server.channel() as channel:
        stub = collector_pb2_grpc.CollectorStub(channel)
        stub.Submit(collector_pb2.SubmitRequest(batches=sent))
    before = server.show("health")
    assert server.stop() == 0
    assert tally(server) == [33, 33, 34]
    server.start()
    assert server.show("health") == before
    with server.channel() as channel:
        stub = collector_pb2_grpc.CollectorStub(channel)
        response = stub.Submit(collector_pb2.SubmitRequest(batches=sent))
    assert set(statuses(response)) == {"DUPLICATE"}
    server.stop()
    assert tally(server) == [33, 33, 34]


def test_concurrent_replays_of_one_batch_count_once(
    server: Server, collector: collector_pb2_grpc.CollectorStub
) -> None:
    request = collector_pb2.SubmitRequest(batches=batches(server, 1))
    calls = [collector.Submit.future(request) for _ in range(50)]
    answers = [statuses(call.result())[0] for call in calls]
    assert sorted(answers) == ["DUPLICATE"] * 49 + ["STORED"]


def test_a_client_that_goes_away_does_not_disturb_the_others(
    server: Server, collector: collector_pb2_grpc.CollectorStub
) -> None:
    sent = batches(server, 40)
    calls = [collector.Submit.future(collector_pb2.SubmitRequest(batches=[b])) for b in sent]
    for call in calls[::2]:
        call.cancel()
    assert {statuses(call.result())[0] for call in calls[1::2]} == {"STORED"}
    again = collector.Submit(collector_pb2.SubmitRequest(batches=sent))
    assert set(statuses(again)) <= {"STORED", "DUPLICATE"}
    assert server.show("health").status.records == 40


def test_an_empty_request_is_refused(collector: collector_pb2_grpc.CollectorStub) -> None:
    with pytest.raises(grpc.RpcError) as error:
        collector.Submit(collector_pb2.SubmitRequest())
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details() == "a request holds no batch"


def test_sigterm_ends_the_calls_under_way_and_exits_cleanly(
    server: Server, collector: collector_pb2_grpc.CollectorStub
) -> None:
    sent = batches(server, 300)
    calls = [collector.Submit.future(collector_pb2.SubmitRequest(batches=[b])) for b in sent]
    calls[0].result()
    assert server.stop(signal.SIGTERM) == 0
    assert "Traceback" not in server.log
    stored = sum(call.exception() is None for call in calls)
    assert stored >= 1
    assert sum(tally(server)) >= stored  # one more may be stored whose answer was not sent


def test_registering_the_same_survey_again_is_fine_and_another_is_not(server: Server) -> None:
    assert server.create() == server.create()
    with pytest.raises(grpc.RpcError) as error:
        server.create(SURVEY.replace("high = 60", "high = 61"))
    assert error.value.code() == grpc.StatusCode.ALREADY_EXISTS
    assert "a survey 'health' exists, with another plan" in error.value.details()


def test_the_server_resolves_and_refuses_a_survey_itself(server: Server) -> None:
    with pytest.raises(grpc.RpcError) as error:
        server.create(SURVEY.replace("strict = 1.0", "strict = -1.0"))
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details() == "levels.strict: epsilon must be finite and > 0, got -1.0"


def test_health_and_reflection_answer(server: Server) -> None:
    with server.channel() as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "hearsay.v1.Collector", "hearsay.v1.Analyst", "hearsay.v1.Admin"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="hearsay.v1.Collector"),
        ]
        listed, described = reflection.ServerReflectionInfo(iter(requests))
        names = {service.name for service in listed.list_services_response.service}
        assert {"hearsay.v1.Collector", "hearsay.v1.Analyst", "hearsay.v1.Admin"} <= names
        (raw,) = described.file_descriptor_response.file_descriptor_proto[:1]
        file = descriptor_pb2.FileDescriptorProto.FromString(raw)
        assert [method.name for method in file.service[0].method] == ["GetPlan", "Submit"]


def test_a_folder_has_one_server(server: Server) -> None:
    with pytest.raises(InvalidInput, match="is in use by another hearsay server"):
        Store(server.folder)


def test_data_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    import sqlite3

    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / "hearsay.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(InvalidInput, match="holds data of schema 99; this version knows up to 1"):
        Store(tmp_path)


def test_a_commit_is_synced_to_the_disk(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
    store.close()


def test_a_broken_disk_is_not_acknowledged(
    server: Server,
    collector: collector_pb2_grpc.CollectorStub,
    eventually: Callable[[Callable[[], bool]], None],
) -> None:
    import sqlite3

    (batch,) = batches(server, 1)
    holder = sqlite3.connect(server.folder / "hearsay.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")  # the server cannot write while this lasts
    with pytest.raises(grpc.RpcError) as error:
        collector.Submit(collector_pb2.SubmitRequest(batches=[batch]), timeout=20)
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    assert error.value.details() == "the batches could not be stored"
    holder.execute("ROLLBACK")
    holder.close()
    response = collector.Submit(collector_pb2.SubmitRequest(batches=[batch]), timeout=20)
    assert statuses(response) == ["STORED"]
