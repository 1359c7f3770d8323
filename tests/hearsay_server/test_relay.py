"""A device sends by way of a relay: who learns what, and what a relay that lies can do."""

import contextlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import hearsay
from relaying import Answer, Relay, relaying
from sealing import Sealed, collector, sealed_server
from shuffling import Shuffler, shuffling

from hearsay import Delivery, InvalidInput
from hearsay.sealed import binary_http, hpke, keys, oblivious
from hearsay.sending.relayed import RelayedTransport
from hearsay.sending.transport import Unreachable
from hearsay.trouble import Reason
from hearsay.v1 import collector_pb2, shuffler_pb2
from hearsay_server.config import ShufflerConfig, read
from hearsay_server.shuffler import pools
from hearsay_server.storage.database import open_database
from hearsay_server.storage.tokens import Tokens
from support import free_port, new_client

__all__ = ["collector", "sealed_server"]

Result = collector_pb2.Result


def device_token(folder: Path) -> str:
    with contextlib.closing(open_database(folder)) as database:
        return Tokens(database).create("device")[1]


@pytest.fixture
def shuffler(collector: Sealed, tmp_path: Path) -> Iterator[tuple[Shuffler, str]]:
    """A shuffler that asks devices for a token, and the host and port of its gateway."""
    door = f"127.0.0.1:{free_port()}"
    keys = {"http": door, "ohttp": True, "require_device_token": True}
    with shuffling(tmp_path / "shuffler", collector, **keys) as running:
        yield running, door


@pytest.fixture
def relay(shuffler: tuple[Shuffler, str]) -> Iterator[Relay]:
    with relaying(shuffler[1]) as found:
        yield found


def key_of(shuffler: Shuffler) -> str:
    """Return the key as the operator prints it, while the shuffler runs."""
    printed = hearsay("shuffler", "key", "--data", shuffler.data)
    assert printed.returncode == 0, printed.stderr
    return printed.stdout.strip()


def device(collector: Sealed, shuffler: tuple[Shuffler, str], relay: Relay, **given: Any) -> Any:
    chosen = {
        "shuffler": f"http://{shuffler[1]}",
        "relay": relay.url,
        "shuffler_key": key_of(shuffler[0]),
        "delivery": Delivery(first_wait=0.02, longest_wait=0.05, exit_timeout=0),
        "clock": collector.clock,
    }
    return new_client(collector.address, collector.survey, **(chosen | given))


def test_the_relay_learns_nothing_of_what_it_passes_on(
    collector: Sealed, shuffler: tuple[Shuffler, str], relay: Relay
) -> None:
    token = device_token(shuffler[0].data)
    with device(collector, shuffler, relay, shuffler_token=token) as client:
        assert client.wait_ready(), client.status()
        for name in ("ada", "ben", "cem"):
            person = client.person(name)
            person.grant()
            person.record(smokes="yes", age=30)
        assert client.flush()
        assert client.counters["stored"] == 3
    assert shuffler[0].pool(collector.today).gathering == 3
    assert len(relay.requests) == 3
    secrets = (token.encode(), collector.survey.encode(), collector.plan().revision)
    for headers, body in relay.requests:
        assert set(headers) == {"Host", "Content-Type", "Accept-Encoding", "Content-Length"}
        assert not any(secret in body for secret in secrets)
    # All are of one size, and so are the answers.
    assert len({len(body) for _, body in relay.requests}) == 1
    assert len({len(answer) for _, _, answer in relay.answers}) == 1


def test_a_refusal_cannot_be_told_from_an_acknowledgement(
    collector: Sealed, shuffler: tuple[Shuffler, str], relay: Relay
) -> None:
    way = RelayedTransport(
        relay.url,
        f"http://{shuffler[1]}",
        key_of(shuffler[0]),
        token=device_token(shuffler[0].data),
    )
    (good,) = collector.seal(collector.batch(1))
    bad = shuffler_pb2.SealedRecord.FromString(good.SerializeToString())
    bad.key = 2
    found = []
    for record in (good, good, bad):
        request = shuffler_pb2.SubmitSealedRequest(records=[record])
        kind = shuffler_pb2.SubmitSealedResponse
        (result,) = way.call("Shuffler/SubmitSealed", request, kind, 20).results
        found.append(result.status)
    assert found == [Result.STORED, Result.DUPLICATE, Result.REFUSED]
    assert len({len(answer) for _, _, answer in relay.answers}) == 1
    assert {status for status, _, _ in relay.answers} == {200}
    way.close()


def test_a_repeat_by_the_relay_counts_once(
    collector: Sealed, shuffler: tuple[Shuffler, str], relay: Relay
) -> None:
    token = device_token(shuffler[0].data)
    with device(collector, shuffler, relay, shuffler_token=token) as client:
        assert client.wait_ready(), client.status()
        client.record(smokes="yes")
        assert client.flush()
    (_, body), *_ = relay.requests
    assert relay.passed(body)[0] == 200
    assert shuffler[0].pool(collector.today).gathering == 1


@pytest.mark.parametrize(
    "lie",
    [
        (200, oblivious.RESPONSE_TYPE, b"stored!" * 20),
        (200, oblivious.RESPONSE_TYPE, b""),
        (200, "application/proto", b"\x0a\x02\x08\x01"),
        (401, "application/json", b'{"code":"unauthenticated"}'),
        (404, "application/json", b'{"code":"not_found"}'),
        (302, "text/html", b""),
        (500, "text/html", b"<p>"),
        (400, "application/problem+json", b"{}"),
        None,
    ],
)
def test_nothing_that_a_relay_says_counts_as_the_shufflers(
    collector: Sealed, shuffler: tuple[Shuffler, str], relay: Relay, lie: Answer | None
) -> None:
    token = device_token(shuffler[0].data)
    with device(collector, shuffler, relay, shuffler_token=token) as client:
        assert client.wait_ready(), client.status()
        if lie is None:
            answer = answer_to_another(relay, key_of(shuffler[0]))
            relay.lie = lambda _: (200, oblivious.RESPONSE_TYPE, answer)
        else:
            relay.lie = lambda _: lie
        client.record(smokes="yes")
        assert not client.flush(0.3)
        assert len(client.outbox().batches) == 1  # nothing is lost, and nothing is told apart
        assert not {"refused", "stored"} & set(client.counters)
        relay.lie = None
        assert client.flush()
        assert client.counters["stored"] == 1


def answer_to_another(relay: Relay, key: str) -> bytes:
    """Return a real answer, to a request of somebody else's."""
    inner = binary_http.Request("GET", "http", relay.gateway, "/healthz", (), b"")
    request, _ = oblivious.encapsulated(oblivious.read_key(key), inner.encode(1))
    return relay.passed(request)[2]


def test_a_key_is_renewed_and_the_one_before_works_on(collector: Sealed, tmp_path: Path) -> None:
    folder, door = tmp_path / "s", f"127.0.0.1:{free_port()}"
    old: list[str] = []
    for _ in range(3):
        shown = hearsay("shuffler", "key", *(["--new"] if old else []), "--data", folder)
        assert shown.returncode == 0, shown.stderr
        old.append(shown.stdout.strip())
    assert len(set(old)) == 3
    assert [config.hex() for config in pools.look_for_keys(folder)] == [old[2], old[1]]
    with shuffling(folder, collector, http=door, ohttp=True), relaying(door) as relay:
        for key, takes in zip(old, (False, True, True), strict=True):
            way = RelayedTransport(relay.url, f"http://{door}", key)
            request = shuffler_pb2.SubmitSealedRequest(records=collector.seal(collector.batch(1)))
            kind = shuffler_pb2.SubmitSealedResponse
            if takes:
                assert len(way.call("Shuffler/SubmitSealed", request, kind, 20).results) == 1
            else:
                with pytest.raises(Unreachable, match="hearsay shuffler key") as raised:
                    way.call("Shuffler/SubmitSealed", request, kind, 20)
                assert raised.value.reason is Reason.SERVER_REFUSED
            way.close()
        refused = hearsay("shuffler", "key", "--new", "--data", folder)
        assert "another shuffler has" in refused.stderr


def test_a_gateway_answers_what_a_relay_may_ask(shuffler: tuple[Shuffler, str]) -> None:
    def asked(method: str, body: bytes = b"", kind: str = oblivious.REQUEST_TYPE) -> Answer:
        connection = http.client.HTTPConnection(shuffler[1], timeout=20)
        with contextlib.closing(connection):
            connection.request(method, oblivious.PATH, body, {"Content-Type": kind})
            response = connection.getresponse()
            return response.status, response.headers["content-type"], response.read()

    key = oblivious.read_key(key_of(shuffler[0]))
    status, kind, listed = asked("GET")
    assert (status, kind) == (200, oblivious.KEYS_TYPE)
    assert listed == len(key).to_bytes(2, "big") + key
    assert asked("POST", b"short")[0] == 400
    status, kind, problem = asked("POST", bytes([key[0] + 1]) + bytes(100))
    assert (status, kind) == (400, "application/problem+json")
    assert b"#ohttp-key" in problem
    assert asked("POST", kind="application/proto")[0] == 501
    assert asked("PUT")[0] == 501
    assert asked("POST", bytes(5 << 20))[0] == 429
    # Inside, a gateway is no relay: another host, and the gateway itself, are refused.
    for authority, path, expected in (
        ("elsewhere.example", "/healthz", 200),  # a probe of ours
        ("elsewhere.example", "/hearsay.v1.Shuffler/SubmitSealed", 421),
        (shuffler[1], oblivious.PATH, 404),
        (shuffler[1], "/hearsay.v1.Collector/Submit", 404),
        (shuffler[1], "/hearsay.v1.Shuffler/SubmitSealed", 401),  # without a token
    ):
        inner = binary_http.Request(
            "POST" if "/h" in path and path != "/healthz" else "GET",
            "http",
            authority,
            path,
            ((b"content-type", b"application/proto"), (b"content-length", b"99")),
            b"",
        )
        request, opener = oblivious.encapsulated(key, inner.encode(1))
        status, _, answer = asked("POST", request)
        assert status == 200
        assert binary_http.read_response(opener.opened(answer)).status == expected, path


def test_calls_without_a_relay_go_on(collector: Sealed, shuffler: tuple[Shuffler, str]) -> None:
    token = device_token(shuffler[0].data)
    straight = f"http://{shuffler[1]}"
    name, clock = collector.survey, collector.clock
    with new_client(
        collector.address, name, clock=clock, shuffler=straight, shuffler_token=token
    ) as client:
        assert client.wait_ready(), client.status()
        client.record(smokes="yes")
        assert client.flush()
        assert client.counters["stored"] == 1


def test_arguments_that_do_not_fit_are_refused() -> None:
    key = "01" + "00" * 40

    def client(**given: Any) -> None:
        new_client("127.0.0.1:1", "daily", **given).close()

    with pytest.raises(InvalidInput, match="go together"):
        client(shuffler="https://mix.example", relay="https://relay.example")
    with pytest.raises(InvalidInput, match="go together"):
        client(shuffler="https://mix.example", shuffler_key=key)
    with pytest.raises(InvalidInput, match="give shuffler, too"):
        client(relay="https://relay.example", shuffler_key=key)
    given = {"shuffler": "https://mix.example", "relay": "https://relay.example"}
    with pytest.raises(InvalidInput, match="82 hexadecimal digits"):
        client(**given, shuffler_key=key)
    for wrong in ("relay.example:443", "https://relay.example/a b", "https://relay.example/a#b"):
        with pytest.raises(InvalidInput, match="https://host/path"):
            client(**{**given, "relay": wrong}, shuffler_key=key)
    with pytest.raises(InvalidInput, match="in the clear"):
        client(**{**given, "relay": "http://relay.example/"}, shuffler_key=key)
    with pytest.raises(InvalidInput, match='a URL is "https://host"'):
        client(**{**given, "shuffler": "mix.example:443"}, shuffler_key=_key())
    with pytest.raises(InvalidInput, match="ohttp needs http"):
        read(ShufflerConfig, None, {"collector": "127.0.0.1:1", "ohttp": True})


def _key() -> str:
    return keys.key_config(1, hpke.new_pair()[1]).hex()


def test_the_key_is_made_once_by_whoever_is_first(tmp_path: Path) -> None:
    printed = [hearsay("shuffler", "key", "--data", tmp_path / "s").stdout for _ in range(2)]
    assert printed[0] == printed[1]
    assert len(printed[0].strip()) == 82
    assert oblivious.read_key(printed[0].strip())
