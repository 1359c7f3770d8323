"""A device that asks for evidence sends no record to a server that does not give it."""

import hashlib
import logging
import re
import secrets
import shutil
import socket
import sqlite3
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority, self_signed
from sealing import SEALED
from serving import serving
from test_sealed_device import Shuffler

from hearsay import MEMORY, Client, InvalidInput
from hearsay.attestation import AttestationRefused, Evidence, Policy
from hearsay.sending import attested
from hearsay.sending.attested import Attested, pinned
from hearsay.sending.transport import Tls, connect, open_calls
from hearsay.sending.uptime import uptime
from hearsay.v1 import admin_pb2, attestation_pb2, collector_pb2
from hearsay_server.surveys import survey as surveys
from support import SURVEY, device, free_port, new_client, wait_until

Answer = attestation_pb2.GetEvidenceResponse


@dataclass(frozen=True)
class Attesting:
    """A server with TLS and test attestation, with what an app would ship to reach it."""

    data: Path
    grpc: str
    http: str
    tls: Tls
    root: bytes

    def policy(self, root: bytes | None = None, measurement: str = "test") -> Policy:
        """Return a policy that takes this server's evidence, unless something is changed."""
        return Policy(
            {"test": {measurement}},
            insecure_test_attestation=True,
            test_root=self.root if root is None else root,
        )

    def records(self, survey: str) -> int:
        calls = open_calls(self.grpc, tls=self.tls)
        request = admin_pb2.ShowSurveyRequest(survey=survey)
        shown = calls.call("Admin/ShowSurvey", request, admin_pb2.ShowSurveyResponse, 20)
        calls.close()
        return int(shown.status.records)


@pytest.fixture(scope="module")
def attesting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attesting]:
    folder = tmp_path_factory.mktemp("attested")
    keys = {"tls_certificate": folder / "server.pem", "tls_key": folder / "server.key"}
    self_signed(keys["tls_certificate"], keys["tls_key"])
    tls = Tls(keys["tls_certificate"], server_name="localhost")
    port = free_port()
    log = logging.getLogger("hearsay.server")
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    with serving(folder / "data", http=f"127.0.0.1:{port}", attestation="test", **keys) as address:
        log.removeHandler(handler)
        (root,) = [found[1] for line in told if (found := re.search(r"its root is (\w+)", line))]
        calls = open_calls(address, tls=tls)
        for text in (SURVEY, SEALED):
            declared = surveys.from_toml(text, "test.toml")
            request = admin_pb2.CreateSurveyRequest(survey=declared)
            calls.call("Admin/CreateSurvey", request, admin_pb2.SurveyStatus, 20)
        calls.close()
        http = f"https://localhost:{port}"
        yield Attesting(folder / "data", address, http, tls, bytes.fromhex(root))


@pytest.mark.parametrize("door", ["grpc", "http"])
def test_records_arrive_at_a_server_whose_evidence_meets_the_policy(
    attesting: Attesting, door: str
) -> None:
    before = attesting.records("health")
    target = getattr(attesting, door)
    with device(target, "health", tls=attesting.tls, attestation=attesting.policy()) as client:
        assert client.wait_ready(20)
        client.record(smokes="yes")
        assert client.flush(20), client.delivery
    assert attesting.records("health") == before + 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"root": bytes(32)}, r"attestation refused \(evidence\)"),
        ({"measurement": "other"}, r"attestation refused \(measurement\)"),
    ],
)
def test_nothing_leaves_for_a_server_that_the_policy_refuses(
    attesting: Attesting, changed: dict[str, object], said: str
) -> None:
    before = attesting.records("health")
    policy = attesting.policy(**changed)  # type: ignore[arg-type]
    with device(attesting.grpc, "health", tls=attesting.tls, attestation=policy) as client:
        assert client.wait_ready(20)
        client.record(smokes="yes")
        assert not client.flush(1.0)
        assert re.search(said, client.delivery.last_error)
        assert client.counters["recorded"] == 1  # it waits
        client.revoke()
    assert attesting.records("health") == before


def test_a_server_that_makes_no_evidence_gets_nothing(attesting: Attesting, tmp_path: Path) -> None:
    files = {"tls_certificate": tmp_path / "a.pem", "tls_key": tmp_path / "a.key"}
    self_signed(files["tls_certificate"], files["tls_key"])
    with serving(tmp_path / "data", **files) as address:
        server = connect(address, tls=Tls(files["tls_certificate"], server_name="localhost"))
        asked = attestation_pb2.GetEvidenceRequest(survey="health", nonce=bytes(32))
        with pytest.raises(InvalidInput, match="its operator did not set attestation"):
            server.call("Attestation/GetEvidence", asked, Answer, 20)
        server.close()


def test_evidence_of_one_server_does_not_serve_another(attesting: Attesting) -> None:
    """A host without an enclave passes the question on to one that has one."""
    honest = connect(attesting.grpc, tls=attesting.tls)
    plan = honest.get_plan("health", 20).plan
    revision = hashlib.sha256(plan).digest()
    nonce = secrets.token_bytes(32)
    asked = attestation_pb2.GetEvidenceRequest(survey="health", nonce=nonce)
    answer = honest.call("Attestation/GetEvidence", asked, Answer, 20)
    evidence = Evidence(answer.kind, answer.document, answer.collateral)
    with pytest.raises(AttestationRefused, match="binding"):
        attesting.policy().check(
            evidence, spki=b"the other host's key", revision=revision, nonce=nonce, now=time.time()
        )
    honest.close()


def test_sealed_records_leave_on_the_evidence_of_a_real_server(attesting: Attesting) -> None:
    shuffler = Shuffler()
    choices = {"tls": attesting.tls, "attestation": attesting.policy(), "shuffler": shuffler}
    with device(attesting.grpc, "daily", **choices) as client:
        client.record(smokes="yes")
        assert client.flush(20), client.delivery
    assert len(shuffler.records) == 1


@pytest.mark.parametrize(
    "change",
    ["DELETE FROM sealing_keys", "UPDATE sealing_keys SET private = randomblob(32)"],
    ids=["missing", "other"],
)
def test_a_server_without_the_private_keys_of_a_plan_makes_no_evidence_of_them(
    attesting: Attesting, change: str
) -> None:
    """The plan may come from elsewhere, and its private keys be with the operator alone."""
    name = f"lost_{change.partition(' ')[0].lower()}"
    calls = open_calls(attesting.grpc, tls=attesting.tls)
    declared = surveys.from_toml(SEALED.replace('"daily"', f'"{name}"'), "test.toml")
    request = admin_pb2.CreateSurveyRequest(survey=declared)
    calls.call("Admin/CreateSurvey", request, admin_pb2.SurveyStatus, 20)
    calls.close()
    with sqlite3.connect(attesting.data / "hearsay.db") as database:
        done = database.execute(f"{change} WHERE survey = ? AND place = 1", (name,))
        assert done.rowcount == 1
    database.close()
    server = connect(attesting.grpc, tls=attesting.tls)
    asked = attestation_pb2.GetEvidenceRequest(survey=name, nonce=bytes(32))
    with pytest.raises(InvalidInput, match=r"not have all private sealing keys .* \[1\]"):
        server.call("Attestation/GetEvidence", asked, Answer, 20)
    server.close()


def test_evidence_is_asked_for_once_and_again_when_it_is_old(
    attesting: Attesting, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    server = connect(attesting.grpc, tls=attesting.tls)
    call = server.call

    def counting(method: str, *arguments: Any) -> Any:
        asked.append(method)
        return call(method, *arguments)

    monkeypatch.setattr(server, "call", counting)
    revision = hashlib.sha256(server.get_plan("health", 20).plan).digest()
    way = Attested(lambda _: server, attesting.tls, attesting.policy(), lambda: datetime.now(UTC))
    now = uptime()
    for later in (0.0, 299.0, 301.0):
        monkeypatch.setattr(attested, "uptime", lambda later=later: now + later)
        way.submit(collector_pb2.Batch(survey="health", revision=revision), 20)
    assert asked.count("Attestation/GetEvidence") == 2
    server.close()


class Host:
    """A host without an enclave: it reads what comes by TLS of its own, and passes it on."""

    def __init__(self, certificate: Path, key: Path, to: str, trust: Path, door: str) -> None:
        protocol = "http/1.1" if door == "http" else "h2"
        self._accepts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._accepts.load_cert_chain(certificate, key)
        self._accepts.set_alpn_protocols([protocol])
        self._dials = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._dials.load_verify_locations(trust)
        self._dials.set_alpn_protocols([protocol])
        self._port = int(to.rpartition(":")[2])
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        self.address = f"https://localhost:{port}" if door == "http" else f"127.0.0.1:{port}"
        self.read = b""
        self.refused = 0
        """Connections of devices that do not trust this host's certificate."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                came, _ = self._listening.accept()
            except OSError:
                return
            try:
                near = self._accepts.wrap_socket(came, server_side=True)
                out = socket.create_connection(("127.0.0.1", self._port))
                far = self._dials.wrap_socket(out, server_hostname="localhost")
            except OSError:
                self.refused += 1
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: ssl.SSLSocket, sink: ssl.SSLSocket) -> None:
        try:
            while data := source.recv(1 << 16):
                self.read += data
                sink.sendall(data)
        except OSError:
            pass


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_nothing_goes_over_a_connection_of_the_certificate_that_was_renewed(
    attesting: Attesting, door: str, tmp_path: Path
) -> None:
    """Else a host that kept its connection open would read what another one's evidence let out."""
    before = attesting.records("health")
    certificate, key, file = tmp_path / "old.pem", tmp_path / "old.key", tmp_path / "app.pem"
    self_signed(certificate, key)
    shutil.copy(certificate, file)
    assert isinstance(attesting.tls.authorities, Path)
    host = Host(certificate, key, getattr(attesting, door), attesting.tls.authorities, door)
    tls = Tls(file, server_name="localhost")
    with device(host.address, "health", tls=tls, attestation=attesting.policy()) as client:
        client.record(smokes="yes")
        assert not client.flush(1.0)
        assert "attestation refused (binding)" in client.delivery.last_error
        assert b"Attestation/GetEvidence" in host.read
        shutil.copy(attesting.tls.authorities, file)
        client.flush(0.1)
        wait_until(lambda: host.refused)
        assert not client.flush(1.0)
        assert b"Collector/Submit" not in host.read
        client.revoke()
    host.close()
    assert attesting.records("health") == before


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_renewed_certificate_is_asked_for_evidence_of_its_own(
    attesting: Attesting, door: str, tmp_path: Path
) -> None:
    before = attesting.records("health")
    file = tmp_path / "app.pem"
    self_signed(file, tmp_path / "other.key")
    assert isinstance(attesting.tls.authorities, Path)
    tls = Tls(file, server_name="localhost")
    target = getattr(attesting, door)
    with new_client(target, "health", tls=tls, attestation=attesting.policy()) as client:
        assert not client.wait_ready(0.5)  # the server's certificate is another one
        shutil.copy(attesting.tls.authorities, file)
        assert client.wait_ready(20), client.status()
        client.record(smokes="yes")
        assert client.flush(20), client.delivery
    assert attesting.records("health") == before + 1


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_certificate_that_an_authority_issued_is_enough_without_the_authority(
    door: str, tmp_path: Path
) -> None:
    files = {"tls_certificate": tmp_path / "a.pem", "tls_key": tmp_path / "a.key"}
    Authority(tmp_path).issue(*files.values())
    http = f"127.0.0.1:{free_port()}"
    with serving(tmp_path / "data", http=http, **files) as address:
        target = f"https://{http}" if door == "http" else address
        alone, _ = pinned(Tls(files["tls_certificate"], server_name="localhost"))
        server = connect(target, tls=alone)
        with pytest.raises(InvalidInput, match="nowhere"):  # so the connection was made
            server.get_plan("nowhere", 20)
        server.close()


def test_a_key_to_bind_to_must_be_named(attesting: Attesting, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="the server's own certificate and no other"):
        Client("localhost:1", "health", ledger=MEMORY, epsilon=1, attestation=attesting.policy())
    two = tmp_path / "two.pem"
    assert isinstance(attesting.tls.authorities, Path)
    two.write_bytes(2 * attesting.tls.authorities.read_bytes())
    with pytest.raises(InvalidInput, match="it holds 2"):
        Client(
            "localhost:1",
            "health",
            ledger=MEMORY,
            epsilon=1,
            tls=Tls(two),
            attestation=attesting.policy(),
        )


@pytest.mark.parametrize(
    ("survey", "nonce"), [("health", bytes(31)), ("nowhere", bytes(32))], ids=["short", "unknown"]
)
def test_a_question_that_cannot_be_answered_is_refused(
    attesting: Attesting, survey: str, nonce: bytes
) -> None:
    server = connect(attesting.grpc, tls=attesting.tls)
    asked = attestation_pb2.GetEvidenceRequest(survey=survey, nonce=nonce)
    with pytest.raises(InvalidInput, match=r"32 bytes|there is no survey"):
        server.call("Attestation/GetEvidence", asked, Answer, 20)
    server.close()


def test_a_client_that_asks_for_evidence_takes_part_in_no_training(attesting: Attesting) -> None:
    with (
        device(
            attesting.grpc, "health", tls=attesting.tls, attestation=attesting.policy()
        ) as client,
        pytest.raises(InvalidInput, match="takes part in no training"),
    ):
        client._device.connect()
