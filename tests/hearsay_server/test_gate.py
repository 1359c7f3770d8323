"""Calls that do not end, or do not come, take nobody else's place."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import analysed
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from serving import batch, connected, register, serving, submit, tokens_of

from hearsay.v1 import analyst_pb2, analyst_pb2_grpc, collector_pb2
from hearsay_server.serving.guard import FOR_EVERYBODY
from hearsay_server.serving.status import LIVE
from hearsay_server.storage import tokens

CHECK = "/grpc.health.v1.Health/Check"
SUBMIT = "/hearsay.v1.Collector/Submit"
STORED = [collector_pb2.Result.STORED]
WATCHED = analyst_pb2.WatchRequest(
    question=analyst_pb2.EstimateRequest(survey="health", attribute="smokes"), interval=0.1
)


def live(address: str) -> bool:
    with connected(address) as channel:
        request = health_pb2.HealthCheckRequest(service=LIVE)
        answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=20)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def stored(address: str, revision: bytes, number: int, token: str | None = None) -> bool:
    results = submit(address, batch(revision, number), token=token)
    return [result.status for result in results] == STORED


@contextlib.asynccontextmanager
async def half_sent(address: str, method: str, count: int) -> AsyncIterator[list[Any]]:
    """Make calls on four connections, whose messages never come; wait until they are there."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with contextlib.AsyncExitStack() as stack:
        calls = []
        for _ in range(4):
            channel = grpc.aio.insecure_channel(address, options)
            await stack.enter_async_context(channel)
            calls += [channel.stream_unary(method)() for _ in range(count // 4)]
        await asyncio.sleep(1)
        yield calls
        for call in calls:
            call.cancel()


def test_messages_of_nobody_that_never_come_keep_no_device_out(tmp_path: Path) -> None:
    known = tokens_of(tmp_path)
    admin, device = (known.create(role)[1] for role in ("admin", "device"))

    async def test(address: str) -> None:
        revision = await asyncio.to_thread(register, address, admin)
        for number, method in enumerate((CHECK, SUBMIT)):
            async with half_sent(address, method, 3 * FOR_EVERYBODY):
                assert await asyncio.to_thread(live, address)
                assert await asyncio.to_thread(stored, address, revision, number, device)

    with serving(tmp_path, require_device_token=True, max_open_calls=4) as address:
        asyncio.run(test(address))


def test_watchers_of_health_keep_nobody_out_and_the_oldest_makes_room(tmp_path: Path) -> None:
    with serving(tmp_path, max_open_calls=4) as address, connected(address) as channel:
        revision = register(address)
        watch = health_pb2_grpc.HealthStub(channel).Watch
        watching = []
        for _ in range(FOR_EVERYBODY):
            watching.append(watch(health_pb2.HealthCheckRequest()))
            next(watching[-1])  # so that the first is the oldest
        assert stored(address, revision, 1)
        assert live(address)
        with pytest.raises(grpc.RpcError) as error:
            next(watching[0])
        assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not watching[1].done()
        for call in watching:
            call.cancel()


def test_a_message_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    async def test(address: str) -> None:
        revision = await asyncio.to_thread(register, address)
        async with half_sent(address, SUBMIT, 8) as calls:
            codes = [await call.code() for call in calls]
            assert codes == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 8
            late = [call for call in calls if "took too long" in await call.details()]
            assert len(late) == 4  # there was room for so many
            for call in calls:
                assert ("retry-after-ms", "1000") in list(await call.trailing_metadata())
            assert await asyncio.to_thread(stored, address, revision, 1)

    with serving(tmp_path, max_open_calls=4, max_upload_seconds=3.0) as address:
        asyncio.run(test(address))


def test_a_revoked_token_ends_a_call_that_lasts(tmp_path: Path) -> None:
    known = tokens_of(tmp_path)
    admin = known.create("admin")[1]
    token, text = known.create("analyst")
    with serving(tmp_path) as address, connected(address, text) as channel:
        revision = register(address, admin)
        submit(address, batch(revision, 1))
        answers = analyst_pb2_grpc.AnswersStub(channel).Watch(WATCHED, timeout=30)
        assert next(answers).reports == 1
        known.revoke(token.id)
        with pytest.raises(grpc.RpcError) as error:  # though nothing has come in
            next(answers)
        assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED
        submit(address, batch(revision, 2), token=known.create("device")[1])


def test_analysts_keep_no_device_waiting_and_are_told_when_they_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearsay_server.answers.questions.estimate", analysed.take_for_ever)
    known = tokens_of(tmp_path)
    texts = {role: known.create(role)[1] for role in tokens.ROLES}
    with (
        serving(tmp_path, require_device_token=True) as address,
        connected(address, texts["analyst"]) as channel,
    ):
        revision = register(address, texts["admin"])
        assert stored(address, revision, 1, texts["device"])
        estimate = analyst_pb2_grpc.AnswersStub(channel).Estimate
        calls = [estimate.future(WATCHED.question) for _ in range(90)]
        while not any(call.done() for call in calls):
            time.sleep(0.01)
        time.sleep(1.1)  # so that tokens are looked up again
        assert stored(address, revision, 2, texts["device"])
        refused = [call for call in calls if call.done()]
        assert {call.code() for call in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert {dict(call.trailing_metadata())["retry-after-ms"] for call in refused} == {"1000"}
        for call in calls:
            call.cancel()
