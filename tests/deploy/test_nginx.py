"""What devices get through a real nginx with `deploy/nginx/hearsay.conf`."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from proxied import Nginx, in_front
from serving import batch, connected, create, serving
from test_web_sdk import FOUR, People, why_missing

from hearsay import MEMORY, Client
from hearsay.sending.grpc_failures import explained, retry_after
from hearsay.sending.over_http import HttpTransport
from hearsay.sending.transport import Tls, Unreachable
from hearsay.trouble import Reason
from hearsay.v1 import admin_pb2, admin_pb2_grpc, collector_pb2, collector_pb2_grpc
from support import Server, free_port

FEW = {"rate=50r/s": "rate=1r/s", "burst=200": "burst=3"}
"""One call, three more at once, and then one a second."""


@pytest.fixture
def proxy(server: Server, tmp_path: Path) -> Iterator[Nginx]:
    """An nginx before the server, with the limits of the file."""
    proxy = in_front(tmp_path / "nginx", server.address)
    with proxy.running():
        yield proxy


@pytest.fixture
def strict(server: Server, tmp_path: Path) -> Iterator[Nginx]:
    """An nginx before the server that lets few calls through."""
    proxy = in_front(tmp_path / "nginx", server.address, **FEW)
    with proxy.running():
        yield proxy


def calls(proxy: Nginx, count: int, source: str = "192.0.2.1") -> list[grpc.RpcError | None]:
    """Ask for a plan so many times from an address; return what became of each call."""
    found: list[grpc.RpcError | None] = []
    with connected(proxy.address, tls=Tls(proxy.authority.file)) as channel:
        stub = collector_pb2_grpc.CollectorStub(channel)
        for _ in range(count):
            try:
                request = collector_pb2.GetPlanRequest(survey="health")
                stub.GetPlan(request, timeout=20, metadata=[("x-from", source)])
                found.append(None)
            except grpc.RpcError as error:
                found.append(error)
    return found


def passed(proxy: Nginx, count: int, source: str) -> int:
    """Return how many of the calls were answered."""
    return calls(proxy, count, source).count(None)


def test_nginx_reads_the_configuration(tmp_path: Path) -> None:
    checked = in_front(tmp_path / "nginx", "127.0.0.1:1").check()
    assert checked.returncode == 0, checked.stderr
    assert "[warn]" not in checked.stderr


def test_a_devices_report_is_stored_through_nginx(server: Server, proxy: Nginx) -> None:
    options = {"ledger": MEMORY, "consent": True, "strict": True, "epsilon": 64.0, "level": "open"}
    tls = Tls(proxy.authority.file)
    with Client(proxy.address, "health", tls=tls, **options) as client:
        assert client.wait_ready(), client.status()
        client.record(smokes="yes", age=40)
        assert client.flush()
    assert server.show("health").status.records == 1


def test_calls_above_the_limit_are_told_to_come_again(strict: Nginx) -> None:
    *answered, refused = calls(strict, 5)
    assert answered == [None] * 4
    assert refused is not None
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.details() == "too many calls from this address"
    assert retry_after(refused) == 1.0
    assert explained(refused, "here")[0] is Reason.SERVER_REFUSED


def over_http(proxy: Nginx, size: int = 0) -> Unreachable:
    """Submit a batch over HTTP; return why it was not taken."""
    transport = HttpTransport(f"https://{proxy.address}", tls=Tls(proxy.authority.file))
    request = collector_pb2.SubmitRequest(batches=[collector_pb2.Batch(revision=bytes(size))])
    with pytest.raises(Unreachable) as raised:
        transport.call("Collector/Submit", request, collector_pb2.SubmitResponse, 20)
    transport.close()
    return raised.value


def test_over_http_nginx_itself_answers_as_the_server_does(tmp_path: Path) -> None:
    proxy = in_front(tmp_path / "nginx", "127.0.0.1:1", **FEW)
    with proxy.running():
        large = over_http(proxy, 6 << 20)
        away = over_http(proxy)
        while (limited := over_http(proxy)).retry_after == away.retry_after:
            pass
    assert "the message is larger than 5 MiB (RESOURCE_EXHAUSTED)" in str(large)
    assert "no server answers" in str(away)
    assert "too many calls from this address (RESOURCE_EXHAUSTED)" in str(limited)
    assert (large.retry_after, away.retry_after, limited.retry_after) == (0, 5, 1)


@pytest.mark.slow
def test_a_watch_that_stays_silent_outlasts_the_time_for_answers(
    server: Server, tmp_path: Path
) -> None:
    proxy = in_front(
        tmp_path / "nginx", server.address, **{"grpc_read_timeout 60s": "grpc_read_timeout 1s"}
    )
    tls = Tls(proxy.authority.file)
    with proxy.running(), connected(proxy.address, tls=tls) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(), timeout=60
        )
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        time.sleep(2.5)
        server.stop()
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
def test_both_versions_of_http_reach_the_http_door(tmp_path: Path, version: str) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl here")
    doors = {door: f"127.0.0.1:{free_port()}" for door in ("listen", "http")}
    proxy = in_front(tmp_path / "nginx", *doors.values())
    url = f"https://{proxy.address}/hearsay.v1.Collector/GetPlan"
    with serving(tmp_path / "data", **doors), proxy.running():
        command = [curl, version, "--silent", "--cacert", str(proxy.authority.file), url]
        command += ["--header", "content-type: application/json", "--data", '{"survey": "none"}']
        command += ["--write-out", "%{http_version}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert json.loads(done.stdout.rpartition("}")[0] + "}")["code"] == "not_found"
    assert done.stdout.endswith({"--http1.1": "1.1", "--http2": "2"}[version])


def test_each_address_has_an_allowance_of_its_own(strict: Nginx) -> None:
    assert passed(strict, 10, "192.0.2.1") < 10
    assert passed(strict, 4, "192.0.2.2") == 4


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("2001:db8:1:2::5", "2001:db8:1:2:a:b:c:d", True),
        ("2001:db8::5", "2001:db8:0:0:a:b:c:d", True),
        ("2001:db8:1:2::5", "2001:db8:1:3::5", False),
        ("2001:db8:1::5", "2001:db8:2::5", False),
    ],
)
def test_a_network_of_ipv6_shares_one_allowance(
    strict: Nginx, one: str, other: str, shared: bool
) -> None:
    assert passed(strict, 10, one) < 10
    assert passed(strict, 4, other) == (0 if shared else 4)


def test_calls_under_way_are_limited_by_address(server: Server, tmp_path: Path) -> None:
    strict = {"limit_conn hearsay_open 100": "limit_conn hearsay_open 2"}
    proxy = in_front(tmp_path / "nginx", server.address, **strict)
    metadata, asked = [("x-from", "192.0.2.1")], health_pb2.HealthCheckRequest()
    tls = Tls(proxy.authority.file)
    with proxy.running(), connected(proxy.address, tls=tls) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watching = [stub.Watch(asked, timeout=60, metadata=metadata) for _ in range(2)]
        for watch in watching:
            next(watch)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Check(asked, timeout=20, metadata=metadata)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        stub.Check(asked, timeout=20, metadata=[("x-from", "192.0.2.2")])
        for watch in watching:
            watch.cancel()


def test_a_device_is_not_told_that_its_token_is_bad_where_a_call_is_not_served(
    proxy: Nginx,
) -> None:
    with connected(proxy.address, tls=Tls(proxy.authority.file), token="secret") as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.ListSurveys(admin_pb2.ListSurveysRequest(), timeout=20)
    assert explained(refused.value, "here")[0] is Reason.SERVER_REFUSED


@pytest.mark.parametrize(
    ("limit", "told"), [("5m", "Received message larger than max"), ("1k", "larger than 5 MiB")]
)
def test_a_message_that_is_too_large_is_refused(
    server: Server, tmp_path: Path, limit: str, told: str
) -> None:
    """By the server, whose limit is below nginx's, and by nginx where its own is the lower one."""
    limits = {"client_max_body_size 5m": f"client_max_body_size {limit}"}
    proxy = in_front(tmp_path / "nginx", server.address, **limits)
    large = collector_pb2.Batch(id=bytes(16), revision=bytes(5 << 20 if limit == "5m" else 1 << 16))
    tls = Tls(proxy.authority.file)
    with proxy.running(), connected(proxy.address, tls=tls) as channel:
        stub = collector_pb2_grpc.CollectorStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Submit(collector_pb2.SubmitRequest(batches=[large]), timeout=20)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert told in str(refused.value.details())


def test_without_a_server_devices_are_told_to_come_again(tmp_path: Path) -> None:
    proxy = in_front(tmp_path / "nginx", "127.0.0.1:1")
    with proxy.running():
        (refused,) = calls(proxy, 1)
    assert refused is not None
    assert refused.code() is grpc.StatusCode.UNAVAILABLE
    assert retry_after(refused) == 5.0


def test_nginx_logs_no_address_of_a_device(server: Server, tmp_path: Path) -> None:
    proxy = in_front(tmp_path / "nginx", server.address, **FEW)
    with proxy.running():
        assert passed(proxy, 10, "192.0.2.77") < 10
    (own,) = (proxy.folder).glob("hearsay.log")
    assert own.read_text() == ""


def test_many_batches_pass_one_after_another(server: Server, proxy: Nginx) -> None:
    """The connection to the server is kept and used again."""
    revision = server.show("health").status.revision
    tls = Tls(proxy.authority.file)
    with connected(proxy.address, tls=tls) as channel:
        stub = collector_pb2_grpc.CollectorStub(channel)
        for number in range(50):
            request = collector_pb2.SubmitRequest(batches=[batch(revision, number)])
            (result,) = stub.Submit(request, timeout=20).results
            assert result.status == collector_pb2.Result.STORED


@pytest.mark.slow
def test_the_typescript_sdk_reports_through_nginx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := why_missing():
        pytest.skip(why)
    doors = {door: f"127.0.0.1:{free_port()}" for door in ("listen", "http")}
    proxy = in_front(tmp_path / "nginx", *doors.values())
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(proxy.authority.file))
    with serving(tmp_path / "data", **doors) as address, proxy.running():
        create(address, FOUR)
        with People(f"https://{proxy.address}") as people:
            assert people.do("ready", timeout=20_000)
            assert people.do("record", **{"from": 0, "to": 5}) == 20
            assert people.do("flush", timeout=20_000)
