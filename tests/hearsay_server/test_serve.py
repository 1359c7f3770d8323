"""The server as a process: what it answers, how it stops, what it remembers."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import clocked
import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from serving import Survey, connected, create, held, registered, serving

from hearsay.v1 import collector_pb2, collector_pb2_grpc
from hearsay_server.serving.summing import Summing
from hearsay_server.storage.store import Store
from support import SURVEY, Server, at_once, wait_until

Result = collector_pb2.Result


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server in a process of its own, for the tests that need not stop or hold it."""
    running = Server(tmp_path_factory.mktemp("shared") / "data")
    running.start()
    yield running.address
    running.stop()


@pytest.fixture
def calls(survey: Survey) -> Iterator[collector_pb2_grpc.CollectorStub]:
    """The calls of devices at the server that is shared."""
    with connected(survey.address) as channel:
        yield collector_pb2_grpc.CollectorStub(channel)


def batches(survey: Survey, count: int) -> list[collector_pb2.Batch]:
    """Batches of one row that say yes, no, sometimes, yes, ..."""
    return [survey.batch(number, code=(number + 2) % 3) for number in range(count)]


def statuses(response: collector_pb2.SubmitResponse) -> list[str]:
    return [Result.Status.Name(result.status) for result in response.results]


def tally(server: Server) -> list[int]:
    """Read what is stored, once the server is gone."""
    store = Store(server.folder)
    ((_, stored),) = store.tallies("health", "smokes").items()
    store.close()
    return stored.counts.tolist()


def test_good_and_bad_batches_of_one_request_are_told_apart(
    survey: Survey, calls: collector_pb2_grpc.CollectorStub
) -> None:
    good, again, bad = [*batches(survey, 1), *batches(survey, 1), *batches(survey, 2)[1:]]
    bad.columns[0].codes = b"\x09"
    response = calls.Submit(collector_pb2.SubmitRequest(batches=[good, bad, again]))
    assert statuses(response) == ["STORED", "REFUSED", "DUPLICATE"]
    assert response.results[1].reason == collector_pb2.Reason.BAD_CODES
    assert response.results[1].detail == "'smokes': a krr code must be below 3, got 9"
    assert survey.status().records == 1


def test_a_refused_batch_may_come_again_mended(
    survey: Survey, calls: collector_pb2_grpc.CollectorStub
) -> None:
    (sent,) = batches(survey, 1)
    codes, sent.columns[0].codes = sent.columns[0].codes, b"\x09"
    request = collector_pb2.SubmitRequest(batches=[sent])
    assert statuses(calls.Submit(request)) == ["REFUSED"]
    request.batches[0].columns[0].codes = codes
    assert statuses(calls.Submit(request)) == ["STORED"]


def test_a_restart_changes_nothing(server: Server) -> None:
    sent = batches(registered(server.address), 100)
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
    survey: Survey, calls: collector_pb2_grpc.CollectorStub
) -> None:
    request = collector_pb2.SubmitRequest(batches=batches(survey, 1))
    sending = [calls.Submit.future(request) for _ in range(50)]
    answers = [statuses(call.result())[0] for call in sending]
    assert sorted(answers) == ["DUPLICATE"] * 49 + ["STORED"]


def test_a_client_that_goes_away_does_not_disturb_the_others(
    survey: Survey, calls: collector_pb2_grpc.CollectorStub
) -> None:
    sent = batches(survey, 40)
    sending = [calls.Submit.future(collector_pb2.SubmitRequest(batches=[b])) for b in sent]
    for call in sending[::2]:
        call.cancel()
    assert {statuses(call.result())[0] for call in sending[1::2]} == {"STORED"}
    again = calls.Submit(collector_pb2.SubmitRequest(batches=sent))
    assert set(statuses(again)) <= {"STORED", "DUPLICATE"}
    assert survey.status().records == 40


def test_an_empty_request_is_refused(calls: collector_pb2_grpc.CollectorStub) -> None:
    with pytest.raises(grpc.RpcError) as error:
        calls.Submit(collector_pb2.SubmitRequest())
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details() == "a request holds 1 to 256 batches, got 0"


def test_a_request_of_too_many_batches_is_refused_whole(
    survey: Survey, calls: collector_pb2_grpc.CollectorStub
) -> None:
    with pytest.raises(grpc.RpcError) as error:
        calls.Submit(collector_pb2.SubmitRequest(batches=batches(survey, 257)))
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details() == "a request holds 1 to 256 batches, got 257"
    assert survey.status().records == 0


def test_more_than_the_server_will_hold_is_turned_away_and_may_come_again(
    server: Server, collector: collector_pb2_grpc.CollectorStub
) -> None:
    sent = batches(registered(server.address), 256 * 20)
    requests = [
        collector_pb2.SubmitRequest(batches=sent[start : start + 256])
        for start in range(0, len(sent), 256)
    ]
    with held(server.folder):
        calls = [collector.Submit.future(request) for request in requests]
        wait_until(lambda: any(call.done() for call in calls))
        refused = next(call for call in calls if call.done())
        assert dict(refused.trailing_metadata())["retry-after-ms"] == "1000"
    codes = [call.code() for call in calls]
    assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert server.show("health").status.records == 256 * codes.count(grpc.StatusCode.OK)
    for request in requests:
        assert set(statuses(collector.Submit(request))) <= {"STORED", "DUPLICATE"}
    assert server.show("health").status.records == len(sent)


def test_an_id_with_other_content_is_no_duplicate(
    survey: Survey, calls: collector_pb2_grpc.CollectorStub
) -> None:
    first, second = batches(survey, 2)
    second.id = first.id
    response = calls.Submit(collector_pb2.SubmitRequest(batches=[first]))
    assert statuses(response) == ["STORED"]
    response = calls.Submit(collector_pb2.SubmitRequest(batches=[second]))
    assert statuses(response) == ["REFUSED"]
    assert response.results[0].reason == collector_pb2.Reason.BAD_ID
    assert f"another batch has the id {first.id.hex()}" in response.results[0].detail


def test_surveys_are_registered_while_devices_send(survey: Survey) -> None:
    sent = iter(batches(survey, 300))
    failed: list[str] = []

    def send(mine: list[collector_pb2.Batch]) -> None:
        with connected(survey.address) as channel:
            stub = collector_pb2_grpc.CollectorStub(channel)
            for each in mine:
                response = stub.Submit(collector_pb2.SubmitRequest(batches=[each]))
                failed.extend(status for status in statuses(response) if status != "STORED")

    shares = [[next(sent) for _ in range(100)] for _ in range(3)]

    def register() -> None:
        for number in range(30):
            registered(survey.address, f"{survey.name}_{number}")

    at_once(register, *(partial(send, share) for share in shares))
    assert failed == []
    assert survey.status().records == 300


def test_sigterm_answers_the_calls_under_way_and_exits_cleanly(
    server: Server, collector: collector_pb2_grpc.CollectorStub
) -> None:
    sent = batches(registered(server.address), 20)
    with held(server.folder):  # only then can anything be stored
        calls = [collector.Submit.future(collector_pb2.SubmitRequest(batches=[b])) for b in sent]
        with server.channel() as channel:  # another client has been answered: the calls are in
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20)
            time.sleep(0.5)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        time.sleep(0.5)
    assert [statuses(call.result()) for call in calls] == [["STORED"]] * 20
    stopping.join()
    assert "Traceback" not in server.log
    assert sum(tally(server)) == 20


def test_sigterm_does_not_wait_for_watchers_of_health(server: Server) -> None:
    with server.channel() as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        begin = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begin < 8  # the grace for calls under way is 10 s
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING


def test_registering_the_same_survey_again_is_fine_and_another_is_not(survey: Survey) -> None:
    assert registered(survey.address, survey.name) == survey
    other = SURVEY.replace('"health"', f'"{survey.name}"').replace("high = 60", "high = 61")
    with pytest.raises(grpc.RpcError) as error:
        create(survey.address, other)
    assert error.value.code() == grpc.StatusCode.ALREADY_EXISTS
    assert f"a survey '{survey.name}' exists, with another plan" in error.value.details()


def test_the_server_resolves_and_refuses_a_survey_itself(address: str) -> None:
    with pytest.raises(grpc.RpcError) as error:
        create(address, SURVEY.replace("strict = 1.0", "strict = -1.0"))
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details() == "levels.strict: epsilon must be finite and > 0, got -1.0"


def test_health_and_reflection_answer(address: str) -> None:
    with connected(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "hearsay.v1.Collector", "hearsay.v1.Answers", "hearsay.v1.Admin"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="hearsay.v1.Collector"),
        ]
        listed, described = reflection.ServerReflectionInfo(iter(requests))
        names = {service.name for service in listed.list_services_response.service}
        assert {"hearsay.v1.Collector", "hearsay.v1.Answers", "hearsay.v1.Admin"} <= names
        (raw,) = described.file_descriptor_response.file_descriptor_proto[:1]
        file = descriptor_pb2.FileDescriptorProto.FromString(raw)
        assert [method.name for method in file.service[0].method] == ["GetPlan", "Submit", "Forget"]


@pytest.mark.slow
def test_a_broken_disk_is_not_acknowledged(
    server: Server, collector: collector_pb2_grpc.CollectorStub
) -> None:
    (sent,) = batches(registered(server.address), 1)
    with held(server.folder), pytest.raises(grpc.RpcError) as error:
        collector.Submit(collector_pb2.SubmitRequest(batches=[sent]), timeout=90)
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    assert error.value.details() == "the batches could not be stored"
    response = collector.Submit(collector_pb2.SubmitRequest(batches=[sent]), timeout=90)
    assert statuses(response) == ["STORED"]


@pytest.mark.slow
def test_every_answer_to_a_device_has_the_servers_time(tmp_path: Path) -> None:
    now, clock = datetime(2031, 5, 6, 7, 8, 9, 500_000, UTC), tmp_path / "clock"
    clocked.write(clock, now)
    server = Server(tmp_path / "data", command=(clocked.__file__, str(clock), "0"))
    server.start()
    try:
        server.create()
        (sent,) = batches(registered(server.address), 1)
        calls = (
            ("GetPlan", collector_pb2.GetPlanRequest(survey="health")),
            ("Submit", collector_pb2.SubmitRequest(batches=[sent])),
            ("Submit", collector_pb2.SubmitRequest(batches=[collector_pb2.Batch()])),
            ("Forget", collector_pb2.ForgetRequest(survey="health", period="once", ids=[sent.id])),
        )
        with server.channel() as channel:
            stub = collector_pb2_grpc.CollectorStub(channel)
            for number, (method, request) in enumerate(calls):
                clocked.write(clock, now + timedelta(seconds=number))
                answer = getattr(stub, method)(request, timeout=20)
                assert answer.server_time == int(now.timestamp()) + number
    finally:
        server.stop()


def test_the_store_is_closed_after_the_last_thread_that_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, done = threading.Event(), list[str]()
    close = Store.close

    def once(_: Summing) -> None:
        began.set()
        time.sleep(0.3)
        done.append("summed")

    def closed(store: Store) -> None:
        done.append("closed")
        close(store)

    monkeypatch.setattr(Summing, "once", once)
    monkeypatch.setattr(Store, "close", closed)
    with serving(tmp_path, helper="127.0.0.1:1", helper_seconds=60.0):
        assert began.wait(10)
    assert done == ["summed", "closed"]
