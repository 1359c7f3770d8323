"""The HTTP door: Connect in binary and JSON, gRPC-Web, probes, metrics, TLS, and a clean stop."""

import asyncio
import base64
import contextlib
import http.client
import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import analysed
import pytest
from certificates import Authority
from over_http import (
    ESTIMATE,
    GET_PLAN,
    JSON,
    LIST,
    PROTO,
    ROWS,
    SUBMIT,
    WATCH,
    Door,
    answering,
    envelope,
    envelopes,
)
from serving import batch, connected, held, register, submit, tokens_of

from hearsay.v1 import admin_pb2, analyst_pb2, answer_pb2, collector_pb2, collector_pb2_grpc
from hearsay_server.config import Config
from hearsay_server.serving import serve
from ldp.errors import InvalidInput, ServerFailed
from support import FROM_NOTHING, Server, free_port, wait_until

QUESTION = analyst_pb2.EstimateRequest(survey="health", attribute="smokes")
WEB = {"content-type": "application/grpc-web+proto"}
STREAM = {"content-type": "application/connect+proto"}
STREAM_JSON = {"content-type": "application/connect+json"}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A server without tokens that has the survey and a report."""
    with answering(tmp_path_factory.mktemp("served")) as found:
        submit(found.grpc, batch(register(found.grpc), 1))
        yield found


def revision(door: Door) -> bytes:
    answer = admin_pb2.ListSurveysResponse.FromString(door.ask(LIST, b"", PROTO).body)
    return answer.surveys[0].revision


def test_a_plan_is_the_same_at_both_doors_and_in_both_forms(door: Door) -> None:
    asked = collector_pb2.GetPlanRequest(survey="health").SerializeToString()
    binary = door.ask(GET_PLAN, asked, PROTO)
    written = door.ask(GET_PLAN, '{"survey": "health"}')
    assert binary.headers["content-type"] == "application/proto"
    assert written.headers["content-type"] == "application/json"
    plan = collector_pb2.GetPlanResponse.FromString(binary.body).plan
    assert base64.b64decode(written.json()["plan"]) == plan
    with connected(door.grpc) as channel:
        stub = collector_pb2_grpc.CollectorStub(channel)
        assert stub.GetPlan(collector_pb2.GetPlanRequest(survey="health"), timeout=20).plan == plan


def test_batches_in_either_form_count_once(door: Door) -> None:
    new = batch(revision(door), 7)
    request = collector_pb2.SubmitRequest(batches=[new]).SerializeToString()
    first = collector_pb2.SubmitResponse.FromString(door.ask(SUBMIT, request, PROTO).body)
    assert [result.status for result in first.results] == [collector_pb2.Result.STORED]
    again = {
        "id": base64.b64encode(new.id).decode(),
        "survey": "health",
        "revision": base64.b64encode(new.revision).decode(),
        "period": "once",
        "rows": 1,
        "columns": [{"attribute": "smokes", "level": "strict", "codes": "AA=="}],
    }
    answer = door.ask(SUBMIT, json.dumps({"batches": [again]}))
    assert [result["status"] for result in answer.json()["results"]] == ["DUPLICATE"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_is_a_client(door: Door) -> None:
    command = ["curl", "--silent", "--show-error", "--fail", "--json", '{"survey": "health"}']
    url = f"http://localhost:{door.port}{GET_PLAN}"
    done = subprocess.run([*command, url], capture_output=True, timeout=20, check=True)
    assert json.loads(done.stdout)["plan"]


def test_a_stream_of_answers_is_the_same_in_every_form(door: Door) -> None:
    data = analyst_pb2.ExportRowsRequest(survey="health").SerializeToString()
    *parts, end = envelopes(door.ask(ROWS, envelope(data), STREAM).body)
    assert [flag for flag, _ in parts] == [0] * len(parts)
    assert end == (2, b"{}")
    *web, end = envelopes(door.ask(ROWS, envelope(data), WEB).body)
    assert end == (0x80, b"grpc-status: 0\r\n")
    assert web[0] == parts[0]
    asked = envelope(b'{"survey": "health"}')
    *written, end = envelopes(door.ask(ROWS, asked, STREAM_JSON).body)
    assert end == (2, b"{}")
    told = analyst_pb2.ExportRowsResponse.FromString(parts[0][1])
    assert told.plan == base64.b64decode(json.loads(written[0][1])["plan"])


def test_an_answer_is_json_to_a_plain_post(door: Door) -> None:
    told = door.ask(ESTIMATE, '{"survey": "health", "attribute": "smokes"}').json()
    data = door.ask(ESTIMATE, QUESTION.SerializeToString(), PROTO).body
    answer = answer_pb2.Answer.FromString(data)
    assert told["view"] == answer.view == "estimate"
    assert told["tables"][0]["index"][0]["labels"] == ["no", "sometimes", "yes"]
    numbers = [each.numbers for each in answer.tables[0].columns]
    assert [each["numbers"] for each in told["tables"][0]["columns"]] == numbers


def test_a_unary_call_by_grpc_web(door: Door) -> None:
    answer = door.ask(LIST, envelope(b""), WEB)
    (flag, data), end = envelopes(answer.body)
    assert flag == 0
    assert admin_pb2.ListSurveysResponse.FromString(data).surveys[0].survey == "health"
    assert end == (0x80, b"grpc-status: 0\r\n")


def test_an_error_has_its_code_in_every_form(door: Door) -> None:
    plain = door.ask(GET_PLAN, '{"survey": "élan"}')
    assert (plain.status, plain.code) == (404, "not_found")
    assert plain.json()["message"] == "there is no survey 'élan' here"
    lost = analyst_pb2.ExportRowsRequest(survey="élan").SerializeToString()
    streamed = door.ask(ROWS, envelope(lost), STREAM)
    ((flag, end),) = envelopes(streamed.body)
    assert (streamed.status, flag) == (200, 2)
    assert json.loads(end)["error"] == plain.json()
    ((flag, end),) = envelopes(door.ask(ROWS, envelope(lost), WEB).body)
    assert flag == 0x80
    assert end.startswith(b"grpc-status: 5\r\ngrpc-message: there is no survey %27%C3%A9lan%27")


def next_part(answer: http.client.HTTPResponse) -> tuple[int, bytes]:
    head = answer.read(5)
    return head[0], answer.read(int.from_bytes(head[1:], "big"))


def test_a_watched_answer_comes_at_each_change_and_ends_with_its_reader(tmp_path: Path) -> None:
    with answering(tmp_path) as door:
        revision = register(door.grpc)
        submit(door.grpc, batch(revision, 1))
        watch = {"question": {"survey": "health", "attribute": "smokes"}, "interval": 0.1}
        asked = envelope(json.dumps(watch).encode())
        line = http.client.HTTPConnection("127.0.0.1", door.port, timeout=30)
        line.request("POST", WATCH, asked, STREAM_JSON)
        answer = line.getresponse()
        assert json.loads(next_part(answer)[1])["reports"] == "1"
        submit(door.grpc, batch(revision, 2))
        assert json.loads(next_part(answer)[1])["reports"] == "2"
        assert door.open_calls() == 1
        answer.close()
        line.close()
        wait_until(lambda: door.open_calls() == 0)


def test_probes_need_no_token_and_metrics_one_of_an_admin_or_analyst(tmp_path: Path) -> None:
    known = tokens_of(tmp_path)
    texts = {role: known.create(role)[1] for role in ("admin", "analyst", "device")}
    with answering(tmp_path) as door:
        for path in ("/healthz", "/readyz"):
            probed = door.ask(path, None, {"host": "10.1.2.3:8080"}, "GET")
            assert (probed.status, probed.body) == (200, b"ok\n")
        for role, status in (("admin", 200), ("analyst", 200), ("device", 403)):
            bearer = {"authorization": f"Bearer {texts[role]}"}
            assert door.ask("/metrics", None, bearer, "GET").status == status
        refused = door.ask("/metrics", None, {}, "GET")
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.slow
def test_readiness_ends_where_the_database_cannot_be_written(tmp_path: Path) -> None:
    with answering(tmp_path, probe_seconds=0.1) as door, held(tmp_path):
        wait_until(lambda: door.ask("/readyz", None, {}, "GET").status == 503, 60)
        assert door.ask("/healthz", None, {}, "GET").status == 200


def test_roles_are_those_of_the_other_door(tmp_path: Path) -> None:
    known = tokens_of(tmp_path)
    texts = {role: known.create(role)[1] for role in ("admin", "analyst", "device")}
    with answering(tmp_path, require_device_token=True) as door:
        for path, role in ((LIST, "admin"), (LIST, "analyst"), (GET_PLAN, "device")):
            sent = JSON | {"authorization": f"Bearer {texts[role]}"}
            assert door.ask(path, headers=sent).status in (200, 404)
        for path, role in ((LIST, "device"), (GET_PLAN, "analyst"), (SUBMIT, "admin")):
            sent = JSON | {"authorization": f"Bearer {texts[role]}"}
            answer = door.ask(path, headers=sent)
            assert (answer.status, answer.code) == (403, "permission_denied")
        for path in (LIST, GET_PLAN, SUBMIT):
            for sent in (JSON, JSON | {"authorization": "Bearer hearsay-guess"}):
                answer = door.ask(path, headers=sent)
                assert (answer.status, answer.code) == (401, "unauthenticated")
        asked = envelope(b'{"survey": "health"}')
        ((_, end),) = envelopes(door.ask(ROWS, asked, STREAM_JSON).body)
        assert json.loads(end)["error"]["code"] == "unauthenticated"


def test_more_than_the_rate_is_told_when_to_come_again(tmp_path: Path) -> None:
    admin, device = (tokens_of(tmp_path).create(role)[1] for role in ("admin", "device"))
    keys = {"require_device_token": True, "batches_per_second": 100.0}
    with answering(tmp_path, **keys) as door:
        revision = register(door.grpc, admin)
        many = [batch(revision, number) for number in range(256)]
        request = collector_pb2.SubmitRequest(batches=many).SerializeToString()
        sent = PROTO | {"authorization": f"Bearer {device}"}
        assert door.ask(SUBMIT, request, sent).status == 200
        answer = door.ask(SUBMIT, request, sent)
        assert (answer.status, answer.code) == (429, "resource_exhausted")
        wait = int(answer.headers["retry-after-ms"])
        assert 0 < wait < 3000
        assert int(answer.headers["retry-after"]) == -(-wait // 1000)
        ((_, end),) = envelopes(door.ask(SUBMIT, envelope(request), sent | WEB).body)
        assert b"retry-after-ms: " in end


def test_a_caller_that_waits_no_longer_is_told_so(door: Door) -> None:
    watch = analyst_pb2.WatchRequest(question=QUESTION, interval=60).SerializeToString()
    for header in ({"connect-timeout-ms": "300"}, {"grpc-timeout": "300m"}):
        *_, (_, end) = envelopes(door.ask(WATCH, envelope(watch), STREAM | header).body)
        assert json.loads(end)["error"]["code"] == "deadline_exceeded"
    answer = door.ask(LIST, headers=JSON | {"connect-timeout-ms": "soon"})
    assert (answer.status, answer.code) == (400, "invalid_argument")


def test_a_question_ends_when_its_caller_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearsay_server.answers.questions.distribution", analysed.take_for_ever)
    with answering(tmp_path) as door:
        submit(door.grpc, batch(register(door.grpc)))
        asked = b'{"survey": "health", "attribute": "smokes"}'
        head = door.head("/hearsay.v1.Answers/Distribution")
        with door.plugged(head + b"Content-Length: %d\r\n\r\n" % len(asked) + asked):
            wait_until(lambda: running(door) == 1)
        wait_until(lambda: door.open_calls() == running(door) == 0)


def running(door: Door) -> float:
    """Return how many questions are being answered."""
    text = door.ask("/metrics", None, {}, "GET").body.decode()
    found = re.search(r'hearsay_questions_running{kind="analysis"} (\S+)', text)
    assert found
    return float(found[1])


def test_pages_of_listed_origins_may_call(tmp_path: Path) -> None:
    page = "https://app.example"
    keys = {"http_hosts": "stats.example", "http_origins": f"{page}, https://b.example:8443"}
    with answering(tmp_path, **keys) as door:
        sent = JSON | {"origin": page, "host": "stats.example"}
        answer = door.ask(GET_PLAN, '{"survey": "x"}', sent)
        assert answer.status == 404  # an error is as readable as an answer
        assert answer.headers["access-control-allow-origin"] == page
        assert "retry-after-ms" in answer.headers["access-control-expose-headers"]
        assert answer.headers["vary"] == "origin"
        asked = {"origin": page, "access-control-request-method": "POST"}
        flight = door.ask(LIST, None, asked, "OPTIONS")
        assert (flight.status, flight.body) == (204, b"")
        assert "content-length" not in flight.headers
        assert flight.headers["access-control-allow-methods"] == "POST"
        assert "authorization" in flight.headers["access-control-allow-headers"]
        own = JSON | {"origin": "https://stats.example", "host": "stats.example"}  # behind a proxy
        assert door.ask(LIST, headers=own).status == 200


def test_tls_is_that_of_the_other_door_and_renewed_with_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    keys = {"tls_certificate": tmp_path / "server.pem", "tls_key": tmp_path / "server.key"}
    first = authority.issue(*keys.values())
    context = ssl.create_default_context(cafile=str(authority.file))

    def served(door: Door) -> int:
        line = socket.create_connection(("127.0.0.1", door.port), 20)
        with line, context.wrap_socket(line, server_hostname="localhost") as secure:
            secure.sendall(door.head() + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}")
            assert secure.recv(12) == b"HTTP/1.1 200"
            shown = secure.getpeercert()
            assert shown is not None
            return int(str(shown["serialNumber"]), 16)

    with answering(tmp_path / "data", **keys) as door:
        assert served(door) == first
        renewed = authority.issue(*keys.values())
        assert served(door) == renewed != first
        with contextlib.suppress(ConnectionError), door.plugged(door.head()) as line:
            assert not line.recv(1)  # in the clear


def test_mutual_tls_takes_only_clients_of_its_authority(tmp_path: Path) -> None:
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    keys = {"tls_certificate": tmp_path / "server.pem", "tls_key": tmp_path / "server.key"}
    authority.issue(*keys.values())
    own = (tmp_path / "own.pem", tmp_path / "own.key")
    clients.issue(*own)

    def status(door: Door, pair: tuple[Path, Path] | None) -> int:
        context = ssl.create_default_context(cafile=str(authority.file))
        context.check_hostname = False
        if pair:
            context.load_cert_chain(*pair)
        line = http.client.HTTPSConnection("127.0.0.1", door.port, timeout=20, context=context)
        with contextlib.closing(line):
            line.request("GET", "/healthz")
            return line.getresponse().status

    def session(door: Door) -> object:
        """Return the session that a client of ours could resume, after an answer."""
        context = ssl.create_default_context(cafile=str(authority.file))
        context.check_hostname = False
        context.load_cert_chain(*own)
        with (
            socket.create_connection(("127.0.0.1", door.port), 20) as plain,
            context.wrap_socket(plain) as line,
        ):
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert line.recv(4096).startswith(b"HTTP/1.1 200")
            return line.session and line.session.has_ticket

    with answering(tmp_path / "data", **keys, tls_client_ca=clients.file) as door:
        assert status(door, own) == 200
        assert not session(door)  # a resumed one would show no certificate, for ever
        for pair in (None, (keys["tls_certificate"], keys["tls_key"])):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                status(door, pair)
        clients = Authority(tmp_path, "clients")  # a renewed authority: the old one's are out
        with pytest.raises((ssl.SSLError, ConnectionError)):
            status(door, own)
        clients.issue(*own)
        assert status(door, own) == 200


@pytest.mark.slow
def test_a_stop_ends_streams_with_their_last_envelope(tmp_path: Path) -> None:
    port = free_port()
    server = Server(tmp_path, "--http", f"127.0.0.1:{port}", command=FROM_NOTHING)
    server.start()
    try:
        server.create()
        door = Door(port, server.address)
        submit(server.address, batch(revision(door), 1))
        watch = analyst_pb2.WatchRequest(question=QUESTION).SerializeToString()
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        line.request("POST", WATCH, envelope(watch), STREAM)
        answer = line.getresponse()
        next_part(answer)
        idle = door.plugged()
    finally:
        begin = time.monotonic()
        server.stop(signal.SIGTERM)
    assert time.monotonic() - begin < 10
    assert next_part(answer) == (2, b"{}")
    assert answer.read() == b""
    assert idle.recv(1) == b""
    idle.close()
    line.close()
    assert "ERROR" not in server.log


def start(folder: Path, address: str) -> None:
    async def run() -> None:
        async with serve.running(Config(data=folder, listen="127.0.0.1:0", http=address)):
            raise AssertionError("it started")

    asyncio.run(run())


def test_an_address_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServerFailed, match=f"cannot serve HTTP at '{address}': .*in use"):
            start(tmp_path, address)


@pytest.mark.parametrize("address", ["localhost:http", "127.0.0.1:", "[::1]:-1"])
def test_an_address_without_a_port_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(ValueError, match="must be HOST:PORT, with a port from 0 to 65535"):
        start(tmp_path, address)


def test_an_address_that_is_not_loopback_needs_tls(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"0\.0\.0\.0:0 is not loopback: set tls_certificate"):
        start(tmp_path, "0.0.0.0:0")
