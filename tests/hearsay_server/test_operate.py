"""The operator's commands as a user runs them."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from command import hearsay, hearsay_serve
from serving import serving, tokens_of

from hearsay_server.storage.tokens import Tokens, hashed


def states(known: Tokens, *texts: str) -> list[str]:
    found = [known.find(hashed(text)) for text in texts]
    return [token.state(known.clock()) for token in found if token is not None]


def test_a_token_is_made_listed_rotated_and_revoked(tmp_path: Path) -> None:
    data = ("--data", tmp_path)
    made = hearsay("token", "create", "--role", "analyst", "--label", "Ada", *data)
    text = made.stdout.strip()
    known = tokens_of(tmp_path)
    token = known.find(hashed(text))
    assert token is not None
    assert f"{token.id} (analyst); keep it" in made.stderr
    listed = hearsay("token", "list", "--csv", *data).stdout
    assert f"{token.id},analyst,Ada," in listed
    assert listed.rstrip().endswith(",-,works,")
    assert text not in listed
    rotated = hearsay("token", "rotate", token.id, "--grace", "1", *data).stdout.strip()
    assert states(known, text, rotated) == ["works", "works"]
    revoked = hearsay("token", "revoke", token.id, *data)
    assert revoked.stdout == f"{token.id} (analyst) is revoked\n"
    assert states(known, text, rotated) == ["revoked", "revoked"]
    assert ",revoked,20" in hearsay("token", "list", "--csv", *data).stdout


@pytest.mark.parametrize(
    ("expires", "seconds"), [("36h", 36 * 3600), ("90d", 90 * 86400), ("2w", 14 * 86400)]
)
def test_a_token_is_made_for_a_while(tmp_path: Path, expires: str, seconds: int) -> None:
    hearsay("token", "create", "--role", "admin", "--expires", expires, "--data", tmp_path)
    (token,) = tokens_of(tmp_path).list()
    assert token.expires == pytest.approx(token.created + seconds, abs=5)
    assert ",works,20" in hearsay("token", "list", "--csv", "--data", tmp_path).stdout


@pytest.mark.parametrize(
    ("expires", "moment"),
    [
        ("2999-01-31", datetime(2999, 1, 31, tzinfo=UTC)),
        ("2999-01-31T18:00+01:00", datetime(2999, 1, 31, 17, tzinfo=UTC)),
    ],
)
def test_a_token_is_made_until_a_date(tmp_path: Path, expires: str, moment: datetime) -> None:
    hearsay("token", "create", "--role", "admin", "--expires", expires, "--data", tmp_path)
    (token,) = tokens_of(tmp_path).list()
    assert token.expires == moment.timestamp()


@pytest.mark.parametrize(
    ("expires", "message"),
    [
        ("soon", "--expires takes a duration (12h, 90d, 52w) or a date (2027-01-31, or 2027"),
        ("2020-01-31", "a token must end in the future and before the year 10000, got -"),
        ("99999999w", "a token must end in the future and before the year 10000, got 6"),
    ],
)
def test_an_end_that_cannot_be_is_refused(tmp_path: Path, expires: str, message: str) -> None:
    done = hearsay("token", "create", "--role", "admin", "--expires", expires, "--data", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"hearsay: {message}")
    assert tokens_of(tmp_path).list() == []


def test_a_tokens_id_is_whole_on_a_narrow_terminal(tmp_path: Path) -> None:
    label = "the release pipeline of the app for the north"
    data = ("--data", tmp_path)
    hearsay("token", "create", "--role", "analyst", "--expires", "9w", "--label", label, *data)
    (token,) = tokens_of(tmp_path).list()
    assert token.id in hearsay("token", "list", *data).stdout
    tokens_of(tmp_path).rotate(token.id, 0.0)
    assert token.id in hearsay("audit-log", *data, COLUMNS="120").stdout


def test_a_folder_that_is_not_there_is_not_made_for_a_token(tmp_path: Path) -> None:
    done = hearsay("token", "create", "--role", "admin", "--data", tmp_path / "typo")
    assert done.stderr == f"hearsay: there is no folder {tmp_path / 'typo'}\n"
    for command in (("list",), ("revoke", "0123"), ("rotate", "0123")):
        done = hearsay("token", *command, "--data", tmp_path)
        assert done.stderr == f"hearsay: there is no hearsay data in {tmp_path}\n"
    assert list(tmp_path.iterdir()) == []


def test_the_folder_that_is_asked_for_is_taken_whatever_is_configured(tmp_path: Path) -> None:
    elsewhere = "postgresql://nobody@127.0.0.1:1/nothing"
    done = hearsay(
        "token", "create", "--role", "admin", "--data", tmp_path, HEARSAY_DATABASE=elsewhere
    )
    assert (done.returncode, done.stdout.strip()[:8]) == (0, "hearsay-")
    done = hearsay("token", "list", "--database", elsewhere)
    assert "cannot open postgresql" in done.stderr


def test_a_bad_role_is_said_in_one_line(tmp_path: Path) -> None:
    done = hearsay("token", "create", "--role", "root", "--data", tmp_path)
    assert done.returncode == 1
    assert (
        done.stderr
        == "hearsay: a role is one of device, shuffler, leader, analyst, admin, got 'root'\n"
    )


def test_the_command_line_sends_the_token_of_the_environment(tmp_path: Path) -> None:
    text = tokens_of(tmp_path).create("admin")[1]
    with serving(tmp_path) as address:
        target = ("survey", "list", "--target", address)
        assert hearsay(*target, HEARSAY_TOKEN=text).returncode == 0
        assert hearsay(*target, "--token", text).returncode == 0
        refused = hearsay(*target)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"hearsay: the server at {address} does not accept the token")
    assert "hearsay.v1.Admin needs `authorization: Bearer TOKEN`" in refused.stderr


def test_health_is_told_by_the_exit_code(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        well = hearsay("health", "--target", address)
        assert (well.returncode, well.stdout) == (0, "SERVING\n")
        assert hearsay("health", "--live", "--target", address).returncode == 0
    gone = hearsay("health", "--target", address)
    assert gone.returncode == 1
    assert gone.stderr.startswith(f"hearsay: no server answers at {address}; start one with")


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        (("--log-format", "xml"), {}, "log_format must be 'text' or 'json', got 'xml'"),
        ((), {"HEARSAY_LISTN": "x"}, "HEARSAY_LISTN: there is no such key"),
        (
            ("--metrics", "nine"),
            {},
            "metrics must be PORT or HOST:PORT, with a port from 0 to 65535, got 'nine'",
        ),
        (("--tls-key", "k"), {}, "tls_certificate and tls_key go together"),
    ],
    ids=["flag", "variable", "metrics", "tls"],
)
def test_a_configuration_that_cannot_be_is_said_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], environ: dict[str, str], message: str
) -> None:
    serve = ("--data", tmp_path, "--listen", "127.0.0.1:0", "--log-level", "error")
    done = hearsay_serve(*serve, *arguments, **environ)
    assert done.returncode == 1
    assert done.stderr.startswith(f"hearsay: {message}")
    assert done.stderr.count("\n") == 1
