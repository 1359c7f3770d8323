"""Who may call what."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from serving import (
    batch,
    connected,
    held,
    own_name,
    register,
    registered,
    serving,
    submit,
    tokens_of,
)

from hearsay import Analyst, Unreachable
from hearsay.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    analyst_pb2,
    analyst_pb2_grpc,
    collector_pb2,
    collector_pb2_grpc,
    shuffler_pb2,
    shuffler_pb2_grpc,
)
from hearsay_server.serving.auth import ROLES, Denied, Policy
from hearsay_server.storage import tokens

CALLS: dict[str, Callable[[grpc.Channel], Any]] = {
    "device": lambda channel: collector_pb2_grpc.CollectorStub(channel).Forget(
        collector_pb2.ForgetRequest(survey="health", period="once", ids=[bytes(16)]), timeout=5
    ),
    "shuffler": lambda channel: shuffler_pb2_grpc.SealedCollectorStub(channel).SubmitSealed(
        shuffler_pb2.SubmitSealedRequest(records=[{"survey": "health"}]), timeout=5
    ),
    "analyst": lambda channel: analyst_pb2_grpc.AnswersStub(channel).Estimate(
        analyst_pb2.EstimateRequest(survey="health", attribute="smokes"), timeout=5
    ),
    "admin": lambda channel: admin_pb2_grpc.AdminStub(channel).CloseSurvey(
        admin_pb2.CloseSurveyRequest(survey="health"), timeout=5
    ),
}
LET_IN = {grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND}  # there is no survey here


def code(address: str, role: str, token: str | None = None) -> grpc.StatusCode:
    with connected(address, token) as channel:
        try:
            CALLS[role](channel)
        except grpc.RpcError as error:
            found: grpc.StatusCode = error.code()
            return found
    return grpc.StatusCode.OK


def made(folder: Path, *roles: str) -> dict[str, str]:
    known = tokens_of(folder)
    return {role: known.create(role)[1] for role in roles}


@dataclass(frozen=True)
class Guarded:
    """A server that asks everybody for a token, and one of each role."""

    folder: Path
    address: str
    texts: dict[str, str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    texts = made(folder, *tokens.ROLES)
    with serving(folder, require_device_token=True) as address:
        yield Guarded(folder, address, texts)


def test_a_role_opens_its_own_service_and_no_other(guarded: Guarded) -> None:
    for role in CALLS:
        assert code(guarded.address, role) == grpc.StatusCode.UNAUTHENTICATED
        assert code(guarded.address, role, "hearsay-guess") == grpc.StatusCode.UNAUTHENTICATED
        for other, text in guarded.texts.items():
            found = code(guarded.address, role, text)
            if other == role:
                assert found in LET_IN
            else:
                assert found == grpc.StatusCode.PERMISSION_DENIED


def test_an_analyst_may_see_what_surveys_there_are_and_a_device_may_not(
    guarded: Guarded, request: pytest.FixtureRequest
) -> None:
    address, texts = guarded.address, guarded.texts
    name = registered(address, own_name(request), texts["admin"]).name
    with Analyst(address, token=texts["analyst"]) as analyst:
        assert name in [status.survey for status in analyst.list_surveys()]
        assert analyst.show_survey(name).status.records == 0
    with Analyst(address, token=texts["device"]) as analyst:
        for call in (analyst.list_surveys, lambda: analyst.show_survey(name)):
            with pytest.raises(Unreachable, match="token of role admin, this one is of role d"):
                call()


def test_without_any_token_loopback_is_open_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path) as address:
        open_ = CALLS.keys() - {"shuffler"}  # whose sealed records are never anybody's
        assert {code(address, role) for role in open_} <= LET_IN
        assert code(address, "shuffler") == grpc.StatusCode.UNAUTHENTICATED
        assert code(address, "admin", "left-over") in LET_IN
    assert "no token was ever made" in caplog.text


def test_the_first_token_closes_an_open_server_within_a_second(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        assert code(address, "admin") in LET_IN
        texts = made(tmp_path, "admin")
        time.sleep(1.1)
        assert code(address, "admin") == grpc.StatusCode.UNAUTHENTICATED
        assert code(address, "admin", texts["admin"]) in LET_IN


def test_where_there_are_tokens_the_very_first_calls_are_asked_for_one(tmp_path: Path) -> None:
    made(tmp_path, "admin")
    policy = Policy(tokens_of(tmp_path), loopback=True, require_device_token=False)

    async def at_once() -> list[object]:
        calls = [policy.admit("hearsay.v1.Admin/ListSurveys", None) for _ in range(3)]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert [type(answer) for answer in asyncio.run(at_once())] == [Denied] * 3


def test_off_loopback_analysts_and_admins_need_a_token_though_none_was_made(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, listen="0.0.0.0:0", insecure=True) as address:
        assert code(address, "admin") == grpc.StatusCode.UNAUTHENTICATED
        assert code(address, "analyst") == grpc.StatusCode.UNAUTHENTICATED
        assert code(address, "device") in LET_IN


def test_a_device_token_is_asked_for_only_where_it_is_required(tmp_path: Path) -> None:
    made(tmp_path, "admin")
    with serving(tmp_path) as address:
        assert code(address, "device") in LET_IN
        assert code(address, "device", "hearsay-guess") == grpc.StatusCode.UNAUTHENTICATED
    with serving(tmp_path / "empty", require_device_token=True) as address:
        assert code(address, "device") == grpc.StatusCode.UNAUTHENTICATED


def test_a_revoked_token_opens_nothing_within_a_second(tmp_path: Path) -> None:
    known = tokens_of(tmp_path)
    token, text = known.create("admin")
    with serving(tmp_path) as address:
        assert code(address, "admin", text) in LET_IN
        known.revoke(token.id)
        time.sleep(1.1)
        assert code(address, "admin", text) == grpc.StatusCode.UNAUTHENTICATED
        assert code(address, "admin") == grpc.StatusCode.UNAUTHENTICATED


def test_an_expired_and_a_revoked_token_are_told_so(guarded: Guarded) -> None:
    known = tokens_of(guarded.folder)
    expiring, brief = known.create("analyst", expires=time.time() + 0.3)
    revoked, gone = known.create("analyst")
    known.revoke(revoked.id)
    time.sleep(0.3)
    for token, text, why in ((expiring, brief, "has expired"), (revoked, gone, "was revoked")):
        with connected(guarded.address, text) as channel, pytest.raises(grpc.RpcError) as error:
            CALLS["analyst"](channel)
        assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED
        detail = f"the token {token.id} {why}: ask the operator for another one"
        assert error.value.details() == detail


@pytest.mark.slow
def test_a_token_that_expires_ends_a_call_that_streams(tmp_path: Path) -> None:
    texts = made(tmp_path, "admin", "analyst")
    with serving(tmp_path) as address:
        submit(address, batch(register(address, texts["admin"])))
        code(address, "analyst", texts["analyst"])  # the first question starts a process
        _, brief = tokens_of(tmp_path).create("analyst", expires=time.time() + 3)
        question = analyst_pb2.EstimateRequest(survey="health", attribute="smokes")
        with connected(address, brief) as channel:
            request = analyst_pb2.WatchRequest(question=question)
            answers = analyst_pb2_grpc.AnswersStub(channel).Watch(request, timeout=30)
            assert next(answers).tables
            with pytest.raises(grpc.RpcError, match="has expired"):
                next(answers)


def test_the_last_use_of_a_token_is_written_once_a_day_and_a_devices_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = ("admin", "analyst", "device", "shuffler")  # a leader calls another process
    texts = made(tmp_path, *roles)
    written = []
    use = tokens.Tokens.use
    monkeypatch.setattr(tokens.Tokens, "use", lambda self, h: (written.append(h), use(self, h)))
    monkeypatch.setattr("hearsay_server.serving.auth._FRESH", 0.0)  # every call looks
    with serving(tmp_path, require_device_token=True) as address:
        for _ in range(3):
            for role, text in texts.items():
                code(address, role, text)
        used = {token.role: token.used for token in tokens_of(tmp_path).list()}
    today = int(time.time()) // 86400
    others = ("admin", "analyst", "shuffler")
    assert used == {**dict.fromkeys(others, today), "device": None}
    assert sorted(written) == sorted(tokens.hashed(texts[role]) for role in others)


def test_a_call_does_not_wait_for_its_tokens_use_to_be_recorded(tmp_path: Path) -> None:
    texts = made(tmp_path, "analyst")
    with serving(tmp_path) as address, held(tmp_path):
        begin = time.monotonic()
        assert code(address, "analyst", texts["analyst"]) in LET_IN
        assert time.monotonic() - begin < 5


def test_the_answer_says_what_is_missing(guarded: Guarded) -> None:
    with connected(guarded.address, guarded.texts["analyst"]) as channel:
        with pytest.raises(grpc.RpcError) as error:
            CALLS["admin"](channel)
        assert error.value.details() == (
            "hearsay.v1.Admin needs a token of role admin, this one is of role analyst"
        )


def test_a_stream_of_requests_is_guarded_like_any_call(guarded: Guarded) -> None:
    with connected(guarded.address) as channel:
        estimate = channel.stream_stream("/hearsay.v1.Answers/Estimate")
        with pytest.raises(grpc.RpcError) as error:
            list(estimate(iter([b"x"]), timeout=5))
        assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_a_service_whose_role_is_not_declared_is_for_admins(tmp_path: Path) -> None:
    texts = made(tmp_path, *tokens.ROLES)
    policy = Policy(tokens_of(tmp_path), loopback=True, require_device_token=False)
    method = "hearsay.v1.Tomorrow/Export"
    assert asyncio.run(policy.admit(method, texts["admin"]))
    for text in (None, texts["analyst"], texts["device"]):
        with pytest.raises(Denied):
            asyncio.run(policy.admit(method, text))


def test_health_and_reflection_are_for_everybody(guarded: Guarded) -> None:
    with connected(guarded.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=5)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        (listed,) = reflection.ServerReflectionInfo(iter([request]), timeout=5)
        names = {service.name for service in listed.list_services_response.service}
        assert set(ROLES) - {"hearsay.v1.Shuffler", "hearsay.v1.Helper"} <= names


def test_an_analyst_with_a_token_is_answered(
    guarded: Guarded, request: pytest.FixtureRequest
) -> None:
    address, texts = guarded.address, guarded.texts
    survey = registered(address, own_name(request), texts["admin"])
    submit(address, survey.batch(), token=texts["device"])
    with Analyst(address, token=texts["analyst"]) as analyst:
        assert analyst.estimate(survey.name, "smokes").reports == 1
    with Analyst(address) as nobody, pytest.raises(Unreachable, match="does not accept"):
        nobody.estimate(survey.name, "smokes")


def test_a_device_token_sends_so_many_rows_of_a_period_for_ever(tmp_path: Path) -> None:
    texts = made(tmp_path, "admin", "device")
    keys = {"require_device_token": True, "rows_per_token_and_period": 10}
    Result = collector_pb2.Result
    with serving(tmp_path, **keys) as address:
        revision = register(address, texts["admin"])
        batches = [batch(revision, number, rows=4) for number in range(3)]
        results = submit(address, *batches, batches[0], token=texts["device"])
        assert [result.status for result in results] == [
            Result.STORED,
            Result.STORED,
            Result.REFUSED,
            Result.DUPLICATE,
        ]
        assert results[2].reason == collector_pb2.Reason.OVER_QUOTA
    with serving(tmp_path, **keys) as address:  # a restart changes nothing
        (again,) = submit(address, batches[2], token=texts["device"])
        assert again.reason == collector_pb2.Reason.OVER_QUOTA
        (small,) = submit(address, batch(revision, 9, rows=2), token=texts["device"])
        assert small.status == Result.STORED
        fresh = made(tmp_path, "device")["device"]
        (other,) = submit(address, batches[2], token=fresh)
        assert other.status == Result.STORED
