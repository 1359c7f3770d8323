"""What runs in the containers of the compose files, run here without Docker."""

import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from postgres import Postgres, postgres
from proxied import in_front
from serving import register
from test_compose import DEPLOY, environment, services

from hearsay import MEMORY, Client
from hearsay.sending.transport import Tls
from support import free_port, wait_until

__all__ = ["postgres"]

COMPOSE = DEPLOY / "compose"
HEALTHY = [sys.executable, "-I", str(COMPOSE / "healthy.py")]
COMMAND = [sys.executable, "-m", "hearsay_server"]


@pytest.fixture
def tls(tmp_path: Path) -> Path:
    """A folder for certificates, beside one for their authority."""
    (tmp_path / "authority").mkdir()
    (tmp_path / "tls").mkdir()
    return tmp_path / "tls"


def certificate(tls: Path, name: str = "reports.example.org") -> x509.Certificate:
    """Have the script make a certificate; return the one that is there then."""
    script = str(COMPOSE / "make-certificate.sh")
    command = [script, name, str(tls), str(tls.parent / "authority")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return x509.load_pem_x509_certificate((tls / "server.pem").read_bytes())


def test_a_certificate_is_made_once_and_fits_its_name_authority_and_key(tls: Path) -> None:
    made = certificate(tls)
    assert certificate(tls) == made
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["reports.example.org", "localhost"]
    authority = x509.load_pem_x509_certificate((tls / "ca.pem").read_bytes())
    made.verify_directly_issued_by(authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "server.pem", tls / "server.key")
    assert (tls / "server.key").stat().st_mode & 0o777 == 0o600
    days = (made.not_valid_after_utc - datetime.now(UTC)) / timedelta(days=1)
    assert 300 < days < 398  # what browsers take


@pytest.mark.parametrize("spoilt", ["", "another key"])
def test_a_pair_that_was_made_in_part_is_made_anew(tls: Path, spoilt: str) -> None:
    made = certificate(tls)
    key = tls / "server.key"
    key.unlink()
    if spoilt:
        subprocess.run(
            ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(key)], check=True
        )
    assert certificate(tls) != made
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "server.pem", key)


@pytest.mark.parametrize("name", ["192.0.2.1", "2001:db8::1"])
def test_another_name_gets_another_certificate_of_the_same_authority(tls: Path, name: str) -> None:
    certificate(tls)
    authority = (tls / "ca.pem").read_bytes()
    names = certificate(tls, name).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert name in [str(each) for each in names.value.get_values_for_type(x509.IPAddress)]
    assert (tls / "ca.pem").read_bytes() == authority


def test_a_certificate_that_the_operator_brings_stays(tls: Path) -> None:
    for before in (False, True):  # an authority that was made before
        if before:
            (tls / "server.pem").unlink()
            certificate(tls)
        command = ["openssl", "req", "-x509", "-nodes", "-subj", "/CN=a", "-days", "1", "-newkey"]
        command += ["rsa:1024", "-keyout", str(tls / "server.key"), "-out", str(tls / "server.pem")]
        subprocess.run(command, check=True, capture_output=True, timeout=30)
        brought = (tls / "server.pem").read_bytes()
        certificate(tls)
        assert (tls / "server.pem").read_bytes() == brought


@pytest.mark.parametrize("name", ["", "a b", "a;b", "$(id)", "a/b", "a\nb"])
def test_a_name_that_is_none_is_refused(tls: Path, name: str) -> None:
    script = str(COMPOSE / "make-certificate.sh")
    command = [script, name, str(tls), str(tls.parent / "authority")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "NAME must be a host name or an address" in done.stderr
    assert not list(tls.iterdir())


def make_secrets(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the script gives its files to the users of containers, which root alone can")
    script = str(COMPOSE / "make-secrets.sh")
    subprocess.run([script, str(folder)], check=True, timeout=30)


def test_passwords_are_made_once_and_each_is_for_one_user(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    found = {file.name: file.read_text() for file in tmp_path.iterdir()}
    make_secrets(tmp_path)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == found
    owners = {
        file.name: (file.stat().st_uid, file.stat().st_mode & 0o777) for file in tmp_path.iterdir()
    }
    assert owners == {
        "postgres-password": (0, 0o400),
        "server.toml": (10001, 0o400),
        "grafana-password": (472, 0o400),
    }
    assert f":{found['postgres-password'].strip()}@postgres/" in found["server.toml"]


@contextmanager
def process(command: list[str], variables: Mapping[str, str], log: Path) -> Iterator[None]:
    """Run a process of ours with these variables alone until the context ends; it ends well."""
    environ = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1", **variables}
    with (
        log.open("w") as told,
        subprocess.Popen(
            [*COMMAND, *command], env=environ, stdout=subprocess.PIPE, stderr=told, text=True
        ) as running,
    ):
        assert running.stdout is not None
        try:
            assert running.stdout.readline().startswith("listening on "), log.read_text()
            yield
        finally:
            running.send_signal(signal.SIGTERM)
            code = running.wait(30)
        assert code == 0, log.read_text()


def on_loopback(variables: Mapping[str, str]) -> dict[str, str]:
    """Return a container's variables with ports that are free here."""
    return {
        name: re.sub(r"^0\.0\.0\.0:\d+$", lambda _: f"0.0.0.0:{free_port()}", value)
        for name, value in variables.items()
    }


def is_healthy(variables: Mapping[str, str]) -> bool:
    done = subprocess.run(HEALTHY, env=dict(variables), capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 or done.stderr.startswith(("not ready: ", "no answer: "))
    return done.returncode == 0


def told(*arguments: str, **environ: str) -> str:
    """Run a command of ours in a container; return what it prints."""
    environ["PATH"] = os.environ["PATH"]
    done = subprocess.run(
        [*COMMAND, *arguments], env=environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_system_of_the_compose_file_takes_a_report_and_is_backed_up(
    postgres: Postgres, tmp_path: Path, tls: Path
) -> None:
    secrets, backups = tmp_path / "secrets", tmp_path / "backups"
    secrets.mkdir()
    backups.mkdir()
    make_secrets(secrets)
    toml = secrets / "server.toml"
    here = postgres.create().partition("@")[2]
    toml.write_text(toml.read_text().replace("@postgres/hearsay", f"@{here}"))
    variables = on_loopback(environment("server")) | {"HEARSAY_CONFIG": str(toml)}
    assert not is_healthy(variables)
    certificate(tls, "localhost")
    grpc, http = (
        f"127.0.0.1:{variables[f'HEARSAY_{door}'].rpartition(':')[2]}"
        for door in ("LISTEN", "HTTP")
    )
    proxy = in_front(tmp_path / "nginx", grpc, http)
    for name in ("server.pem", "server.key"):
        (proxy.folder / name).write_bytes((tls / name).read_bytes())
    with process(["serve"], variables, tmp_path / "log"), proxy.running():
        assert is_healthy(variables)
        admin = told("token", "create", "--role", "admin", **variables).split()[-1]
        register(grpc, admin)
        for target in (f"https://{proxy.address}", proxy.address):
            with Client(
                target,
                "health",
                ledger=MEMORY,
                consent=True,
                epsilon=64.0,
                level="open",
                tls=Tls(tls / "ca.pem"),
            ) as client:
                assert client.wait_ready(), client.status()
                client.record(smokes="yes", age=40)
                assert client.flush()
        _back_up(backups, variables)
    assert '"error"' not in (tmp_path / "log").read_text().lower()


def _back_up(folder: Path, variables: Mapping[str, str]) -> None:
    """Run the container of backups: it makes one, and keeps the newest two."""
    for day in (1, 2, 3):
        old = folder / f"2026-01-0{day}T000000Z.backup"
        old.touch()
        os.utime(old, (0, 0))
    script = services()["backup"]["command"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [str(COMPOSE / script[0].lstrip("/")), str(folder), "2", ""]
    with subprocess.Popen(command, env={**variables, "PATH": path}) as running:
        wait_until(lambda: len(list(folder.iterdir())) == 2, 60)
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
    newest = max(folder.iterdir())
    assert newest.name > "2026-01-03"
    told("restore", str(newest), "--data", str(folder / "restored"))


@pytest.mark.slow
@pytest.mark.parametrize("service", ["shuffler", "helper"])
def test_a_process_of_another_operator_becomes_healthy(
    tmp_path: Path, tls: Path, service: str
) -> None:
    certificate(tls, "mix.example.org")  # a name that is not the health check's
    toml = tmp_path / "collector.toml"
    toml.write_text('collector_token = "secret"\n')
    given = {"${COLLECTOR:?set it, such as collect.example:443}": "collect.example:443"}
    given["${SERVER_NAME:?set it to the name that devices call}"] = "mix.example.org"
    variables = on_loopback(environment(service, "elsewhere.yaml")) | {
        "HEARSAY_CONFIG": str(toml),
        "HEARSAY_DATA": str(tmp_path / "data"),
    }
    variables = {
        name: given.get(value, value).replace("/tls/", f"{tls}/")
        for name, value in variables.items()
    }
    command = services("elsewhere.yaml")[service]["command"]
    with process(command[1:], variables, tmp_path / "log"):
        wait_until(lambda: is_healthy(variables), 20)
        role = {"shuffler": "device", "helper": "leader"}[service]
        folder = str(tmp_path / "data")
        assert told("token", "create", "--role", role, "--data", folder, **variables)
