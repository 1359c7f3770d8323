"""What a command says where no server answers it, over either door."""

import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from certificates import Authority
from command import hearsay
from moody import Moody, listening
from serving import serving, tokens_of

from hearsay_server.commands import surveys
from support import free_port

LIST = ("survey", "list", "--target")


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server that speaks TLS, and the file of its authority."""
    authority = Authority(tmp_path)
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    authority.issue(certificate, key)
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
    with listening(Moody(b""), credentials) as address:
        yield address, authority.file


def told(*arguments: object) -> str:
    """What a command says on the one line with which it fails."""
    done = hearsay(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("hearsay: ")
    assert done.stderr.count("\n") == 1
    assert not [name for name in dir(grpc.StatusCode) if f"{name}:" in done.stderr]
    return done.stderr.removeprefix("hearsay: ").removesuffix("\n")


@pytest.mark.parametrize(
    "command",
    [
        LIST,
        ("survey", "show", "a", "--target"),
        ("training", "list", "--target"),
        ("query", "a", "b", "--target"),
        ("export", "a", "--to", "folder", "--target"),
        ("ask", "fit", "a", "b ~ c", "--target"),
        ("codegen", "--survey", "a", "--target"),
        ("health", "--target"),
    ],
)
def test_no_server_is_told_with_what_to_do(command: tuple[str, ...]) -> None:
    target = f"127.0.0.1:{free_port()}"
    said = "no server answers at {}; start one with `hearsay serve`, or give another address"
    assert told(*command, target) == said.format(target)
    if command[0] != "health":
        assert told(*command, f"http://{target}") == said.format(f"http://{target}")


def test_a_name_that_does_not_resolve_is_told() -> None:
    for target in ("no.invalid:1", "https://no.invalid"):
        assert (
            told(*LIST, target) == f"the host name in {target} does not resolve; check the address"
        )


def test_a_missing_wrong_or_weak_token_is_told(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path)
    tokens.create("admin")
    _, weak = tokens.create("analyst")
    with serving(tmp_path) as address:
        for given in ((), ("--token", "guess"), ("--token", weak)):
            said = told("survey", "delete", "a", "--yes", "--target", address, *given)
            assert said.startswith(f"the server at {address} does not accept the token")
            assert said.endswith("; give --token, or set HEARSAY_TOKEN")
        assert "needs a token of role admin, this one is of role analyst" in said


def test_a_server_that_never_answers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveys, "_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        for each in (target, f"http://{target}"):
            assert told(*LIST, each) == f"the server at {each} did not answer in time"


def test_each_failure_of_tls_is_told(
    secure: tuple[str, Path], address: str, tmp_path: Path
) -> None:
    tls, authority = secure
    other = Authority(tmp_path, "other").file
    to_do = "; `hearsay --ca FILE` before the command trusts a CA of yours, and --server-name "
    for target, options, said in (
        (tls, ("--ca", other), f"the certificate of {tls} is not trusted{to_do}"),
        (f"https://{tls}", (), f"the certificate of https://{tls} is not trusted"),
        (
            tls,
            ("--ca", authority, "--server-name", "a.example"),
            f"of {tls} has another name{to_do}",
        ),
        (address, ("--ca", authority), f"{address} does not speak TLS; leave out --ca, "),
        (tls, (), f"{tls} closed the connection before it answered; it may expect TLS (Tls(), or"),
    ):
        assert said in told(*options, *LIST, target)
