"""What an app and its developer are told: reasons, drops, how delivery goes."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hostile import device, one_question, plan_of
from moody import Moody, listening
from serving import register, serving, tokens_of

from hearsay import (
    MEMORY,
    Agreement,
    Caps,
    Client,
    Delivery,
    FileAnchor,
    InvalidInput,
    Reason,
    Unreachable,
    create_ledger,
)
from hearsay.sending.transport import Token, bearer
from hearsay.testing import Collector, RecordingTransport
from hearsay.v1 import collector_pb2
from support import Server, free_port, wait_until

PLAN = plan_of(one_question(["no", "yes"]))
QUICK = Delivery(first_wait=0.01, longest_wait=0.05, timeout=1.0)


def test_record_says_what_was_taken_and_why_the_rest_was_not() -> None:
    toml = (
        one_question(["no", "yes"])
        + '\n[[attributes]]\nname = "age"\n[attributes.numeric]\nlow = 0\nhigh = 9'
    )
    with device(RecordingTransport(plan_of(toml)), withhold=["age"]) as client:
        client.wait_ready()
        recorded = client.record(answer="maybe", age=3, height=180, weight=None)
        assert recorded
        assert recorded.taken == ("answer",)
        assert recorded.invalid == ("answer",)
        assert recorded.dropped == {"age": "withheld", "height": "unknown"}
        again = client.record(answer="no")
        assert not again
        assert again.dropped == {"answer": "spent"}
    assert client.record(answer="no").dropped == {"answer": "closed"}


def test_drops_are_told_as_they_happen() -> None:
    drops = Counter[str]()

    def on_drop(reason: str, count: int) -> None:
        drops[str(reason)] += count
        raise RuntimeError("the app's own fault reaches nobody")

    with device(RecordingTransport(PLAN), on_drop=on_drop) as client:
        client.wait_ready()
        client.record(answer="no", other=1)
        client.record(answer="no")
        client.revoke()
        client.record(answer="no")
    assert drops == {"unknown": 1, "spent": 1, "no_consent": 1, "revoked": 1}


def test_the_first_drop_of_each_reason_is_seen_without_any_configuration() -> None:
    script = (
        "import sys\n"
        "from hearsay import Agreement, Client, MEMORY\n"
        "agreement = Agreement.on(bytes.fromhex(sys.argv[1]))\n"
        "c = Client('127.0.0.1:1', agreement, ledger=MEMORY, level='standard')\n"
        "for _ in range(3): c.record(answer='good')\n"
        "c.grant()\n"
        "for _ in range(3): c.record(answer='good', other='good')\n"
        "c.revoke()\n"
        "for _ in range(3): c.record(answer='good')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, PLAN.hex()], capture_output=True, text=True
    )
    for reason in ("no_consent", "unknown", "spent", "revoked"):
        assert ended.stderr.count(f"drops answers ({reason})") == 1, (reason, ended.stderr)
    assert "good" not in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("how", ["debug=True", "HEARSAY_DEBUG=1"])
def test_debugging_shows_all_on_stderr(how: str) -> None:
    argument = "debug=True" if how == "debug=True" else "debug=False"
    script = (
        "import logging; from hearsay import Client, MEMORY\n"
        f"c = Client('127.0.0.1:1', 's', ledger=MEMORY, level='x', epsilon=1.0, {argument})\n"
        "logging.getLogger('hearsay').debug('seen')\n"
    )
    environment = {**os.environ, **({"HEARSAY_DEBUG": "1"} if how != "debug=True" else {})}
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert "hearsay DEBUG seen" in ended.stderr


def test_a_disabled_client_takes_and_sends_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEARSAY_DISABLED", "1")
    transport = RecordingTransport(PLAN)
    with device(transport, ledger=tmp_path / "ledger.db") as client:
        assert not client.wait_ready(0.1)
        assert client.status().reason is Reason.DISABLED
        assert client.record(answer="no").dropped == {"answer": "disabled"}
        client.grant()
        client.revoke(forget=True)
        client.set_caps(Caps(life=1.0))
        client.trust_clock()
        assert client.flush()
        assert client.delivery.oldest is None
        assert client.counters == {}
        assert not client.outbox()
    Client(survey="survey", ledger=tmp_path / "ledger.db", epsilon=1.0).close()  # without a target
    assert not transport.batches
    assert not list(tmp_path.iterdir())


def test_the_environment_names_server_and_token(monkeypatch: pytest.MonkeyPatch) -> None:
    servicer = Moody(PLAN)
    with listening(servicer) as address:
        monkeypatch.setenv("HEARSAY_TARGET", address)
        monkeypatch.setenv("HEARSAY_TOKEN", "secret")
        for choices in ({}, {"token": "mine"}):
            with device(None, **choices) as client:
                assert client.wait_ready()
                assert client.record(answer="no")
                assert client.flush()
    assert servicer.tokens == ["Bearer secret", "Bearer mine"]
    monkeypatch.delenv("HEARSAY_TARGET")
    with pytest.raises(InvalidInput, match="HEARSAY_TARGET"):
        Client(survey="survey", ledger=MEMORY, epsilon=1.0)


@pytest.mark.parametrize(
    "target", ["https://a:1/b", "ftp://a:1", "xds:///a", "localhost", "a:", "a:b", "a:70000"]
)
def test_a_target_that_cannot_be_is_refused_at_once(target: str) -> None:
    with pytest.raises(InvalidInput, match="host:port"):
        Client(target, "survey", ledger=MEMORY, epsilon=1.0)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"epsilon": None}, "give epsilon=: the most that one record may spend"),
        ({"epsilon": 0.0}, "epsilon must be finite and > 0, got 0.0"),
        ({"epsilon": float("inf")}, "epsilon must be finite"),
        ({"may_reveal": ["answer"]}, "may_reveal names the values of each attribute"),
        ({"may_reveal": {"answer": "no"}}, "must be a list of values, got 'no'"),
        ({"may_tell_changes": "answer"}, "may_tell_changes must be a list of names"),
    ],
)
def test_what_the_app_agrees_to_must_be_said(choices: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        device(RecordingTransport(PLAN), **choices)
    assert message in str(raised.value)


def test_an_agreement_says_all_that_was_agreed_to() -> None:
    agreement = Agreement.on(PLAN)
    with pytest.raises(InvalidInput, match=r"epsilon=1\.0"):
        Client(RecordingTransport(PLAN), agreement, ledger=MEMORY, epsilon=1.0)
    with pytest.raises(InvalidInput, match="leave them out"):
        Client(RecordingTransport(PLAN), agreement, ledger=MEMORY, revision="00")


def test_the_state_of_delivery_can_be_looked_at() -> None:
    transport = RecordingTransport(PLAN)
    away = Unreachable("the server is away", reason=Reason.UNREACHABLE)
    transport.answers = [away] * 10_000
    with device(transport, delivery=QUICK) as client:
        client.wait_ready()
        assert client.delivery.oldest is None
        client.record(answer="no")
        time.sleep(0.05)
        assert 0.0 < (client.delivery.oldest or 0.0) < 5.0
        assert client.delivery.last_success is None
        client.flush(0.001)
        wait_until(lambda: "the server is away" in client.delivery.last_error)
        transport.answers.clear()  # it is back
        assert client.flush(5.0)
        state = client.delivery
        assert state.last_error == ""
        assert state.oldest is None
        assert state.last_success is not None
        assert abs((datetime.now(UTC) - state.last_success).total_seconds()) < 60


def test_the_status_tells_why_the_server_is_not_reached(server: Server) -> None:
    reasons = {
        f"127.0.0.1:{free_port()}": Reason.UNREACHABLE,
        "nowhere.invalid:50051": Reason.NAME_NOT_FOUND,
        server.address: Reason.SERVER_REFUSED,  # it has no such survey
    }
    for target, reason in reasons.items():
        with device(target, delivery=QUICK, insecure=True) as client:
            wait_until(lambda client=client: client.status().reason is not Reason.NO_PLAN)
            status = client.status()
            assert status.reason is reason, (target, status)
            assert status.transport
            assert client.delivery.last_error
            client.close(0)


def test_the_status_tells_of_a_wrong_token(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path)
    _, admin = tokens.create("admin")
    with serving(tmp_path, require_device_token=True) as address:
        register(address, admin)
        for token in (None, "hearsay-guess"):
            with device(address, delivery=QUICK, token=token) as client:
                wait_until(lambda client=client: client.status().reason is not Reason.NO_PLAN)
                status = client.status()
                assert status.reason is Reason.BAD_TOKEN
                assert "does not accept the token" in status.transport
                assert client.delivery.last_error == status.transport
                assert client.record(answer="no").dropped == {"answer": "bad_token"}
                client.close(0)


def test_a_module_with_the_plan_needs_no_server_to_take_answers(file: Path) -> None:
    away = f"127.0.0.1:{free_port()}"
    agreement = Agreement.on(PLAN)
    with Client(away, agreement, level="standard", ledger=file, consent=True) as client:
        assert client.status().ready
        assert client.record(answer="no").taken == ("answer",)
        client.close(0)
    with Collector(PLAN) as collector:
        known = {"level": "standard", "ledger": file, "consent": True}
        with Client(collector.address, agreement, **known) as client:
            assert client.flush()
        assert sum(batch.rows for batch in collector.received.batches) == 1


def test_a_server_that_goes_away_is_said_beside_a_plan_that_is_known() -> None:
    transport = RecordingTransport(PLAN)
    transport.answers = [Unreachable("gone", reason=Reason.UNREACHABLE)] * 99
    with device(transport, delivery=QUICK) as client:
        client.wait_ready()
        client.record(answer="no")
        client.flush(0.1)
        status = client.status()
        assert status.reason is Reason.READY  # answers are taken all the same
        assert status.transport == "gone"
        client.close(0)


def naive() -> datetime:
    return datetime(2026, 1, 1)


def broken() -> datetime:
    raise OSError("no clock")


@pytest.mark.parametrize(
    ("clock", "detail"),
    [(naive, "datetime with a time zone"), (broken, "the clock raised OSError")],
)
def test_a_clock_that_cannot_be_used_takes_nothing(clock: object, detail: str, file: Path) -> None:
    transport = RecordingTransport(PLAN)
    with device(transport, clock=clock, ledger=file) as client:
        assert client.record(answer="no").dropped == {"answer": "clock"}
        assert client.status().reason is Reason.CLOCK
        assert detail in client.status().detail
        assert client.spendings() == ()
        client.revoke()
        client.close(0)
    assert not transport.batches


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_a_folder_that_is_read_only_takes_nothing_and_recovers(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    create_ledger(folder / "ledger.db")
    script = (
        "import os, sys\n"
        "os.environ['HEARSAY_TESTING'] = '1'\n"
        "from hearsay import Client\n"
        "from hearsay.testing import RecordingTransport\n"
        "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "plan, file = sys.argv[1:]\n"
        "transport = RecordingTransport(open(plan, 'rb').read())\n"
        "client = Client(transport, 'survey', ledger=file, epsilon=1.0, consent=True)\n"
        "client.wait_ready(0.3)\n"
        "print(client.status().reason, *client.record(answer='no').dropped.values())\n"
        "print(len(transport.batches))\n"
    )
    (tmp_path / "plan").write_bytes(PLAN)
    for path, mode in ((tmp_path, 0o755), (folder, 0o555), (folder / "ledger.db", 0o444)):
        path.chmod(mode)
    for parent in tmp_path.parents[:3]:  # pytest's own, which it makes for its user alone
        if parent.name.startswith(("pytest-", "popen-")):
            parent.chmod(0o755)
    said = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "plan"), str(folder / "ledger.db")],
        capture_output=True,
        text=True,
    )
    assert said.stdout == "disk disk\n0\n", said.stderr
    folder.chmod(0o755)
    (folder / "ledger.db").chmod(0o600)
    with device(RecordingTransport(PLAN), ledger=folder / "ledger.db") as client:
        assert client.wait_ready()
        assert client.record(answer="no")


def test_a_relative_path_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    create_ledger("ledger.db")
    (tmp_path / "elsewhere").mkdir()
    with device(RecordingTransport(PLAN), ledger="ledger.db") as client:
        monkeypatch.chdir(tmp_path / "elsewhere")
        client.wait_ready()
        assert client.record(answer="no")
        assert client.flush()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_caps_know_no_record_any_more() -> None:
    with pytest.raises(TypeError):
        Caps(record=1.0)  # type: ignore[call-arg]


class Away(RecordingTransport):
    """A server that says its plan and never answers a batch."""

    def submit(self, batch: collector_pb2.Batch, timeout: float) -> collector_pb2.SubmitResponse:
        raise Unreachable("away")


def restored(tmp_path: Path, seal: bool) -> tuple[Path, FileAnchor]:
    """Return a ledger that is an old copy, as its anchor knows, and in which a report waits."""
    file, anchor = tmp_path / "ledger.db", FileAnchor(tmp_path / "anchor")
    create_ledger(file, anchor=anchor)
    delivery = Delivery(batch_age=0.01 if seal else 3600.0, first_wait=3600.0)
    with device(Away(PLAN), ledger=file, anchor=anchor, delivery=delivery) as client:
        assert client.wait_ready()
        assert client.record(answer="no")
        if seal:
            wait_until(lambda: bool(client.outbox().batches))
        else:
            client._device.sender.pause(object(), 5.0)  # closing would seal it
        client.close(0)
    copy = Path(shutil.copy(file, tmp_path / "copy.db"))
    with device(RecordingTransport(PLAN), ledger=file, anchor=anchor) as client:
        assert client.flush()
    return copy, anchor


def test_reports_of_a_lost_ledger_are_told_once(tmp_path: Path) -> None:
    copy, anchor = restored(tmp_path, seal=False)
    drops: list[tuple[str, int]] = []
    for _ in range(2):
        with device(
            RecordingTransport(PLAN),
            ledger=copy,
            anchor=anchor,
            on_drop=lambda *drop: drops.append(drop),
        ) as client:
            pass
        assert drops == [("lost", 1)]
        assert client.counters["lost"] == 1


def test_reports_that_a_new_consent_does_not_cover_are_told(tmp_path: Path) -> None:
    copy, anchor = restored(tmp_path, seal=True)
    drops: list[tuple[str, int]] = []
    with device(
        RecordingTransport(PLAN),
        ledger=copy,
        anchor=anchor,
        on_drop=lambda *drop: drops.append(drop),
    ) as client:
        assert client.counters["revoked"] == 1
    assert ("revoked", 1) in drops


def test_what_is_told_of_a_revocation_may_wait_for_another_thread_that_consents() -> None:
    ended: list[bool] = []

    def on_drop(*_: object) -> None:
        other = threading.Thread(target=client.person("bob").grant, daemon=True)
        other.start()
        other.join(5.0)
        ended.append(not other.is_alive())

    client = device(Away(PLAN), on_drop=on_drop)
    assert client.wait_ready()
    assert client.record(answer="no")
    client.revoke()
    client.close(0)
    assert ended == [True]


def test_reports_that_a_client_had_in_memory_are_told() -> None:
    drops: list[tuple[str, int]] = []
    client = device(Away(PLAN), on_drop=lambda *drop: drops.append(drop))
    assert client.wait_ready()
    assert client.record(answer="no")
    assert not client.close(0)
    wait_until(lambda: bool(drops))
    assert drops == [("lost", 1)]
    assert client.counters["lost"] == 1


def test_debugging_shows_what_happens_and_no_answer(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "hearsay")
    plan = plan_of(one_question(["nay", "yea"]))
    transport = RecordingTransport(plan)
    transport.answers = [Unreachable("the server is away")]
    with device(transport, ledger=file, delivery=QUICK) as client:
        assert client.wait_ready()
        ann = client.person("ann.example")
        ann.grant()
        ann.record(answer="yea", other=1)
        assert client.flush(5.0)
        revision = client.plan.revision.hex()[:12]
    batch = transport.batches[0]
    name, size = batch.id.hex()[:12], batch.ByteSize()
    expected = [
        f"the server has revision {revision} of 'survey'",
        f"took revision {revision} of 'survey'; levels standard: epsilon 1",
        "record: took ['answer'], dropped {'other': 'unknown'}",
        f"send batch {name} of {batch.period}: 1 rows, {size} bytes",
        "the next try is in 0.0 s: the server is away",
        f"send batch {name} of {batch.period}: 1 rows, {size} bytes",
        f"batch {name}: stored",
        "closed the client of 'survey': nothing waits",
    ]
    told = [record.getMessage() for record in caplog.records if record.levelname == "DEBUG"]
    assert told == expected
    (column,) = batch.columns
    for secret in ("nay", "yea", "ann", str(column.codes), column.codes.hex()):
        assert len(secret) < 3 or secret not in "\n".join(told), secret


@pytest.mark.parametrize("token", ["abc\n", "\ufeffabc\r\n", " \tabc\u3000", lambda: "abc\n"])
def test_white_space_around_a_token_is_taken_off(token: Token) -> None:
    assert bearer(token) == "Bearer abc"


@pytest.mark.parametrize("token", ["", " \n", "a\nb", "abc\x01", "\u00e9", 1, None])
def test_what_cannot_be_a_token_is_told_and_not_repeated(token: object) -> None:
    with pytest.raises(Unreachable, match=r"^the token is not printable ASCII, or empty$") as told:
        bearer(lambda: token)  # type: ignore[arg-type, return-value]
    assert told.value.reason is Reason.BAD_TOKEN


def test_a_token_in_the_environment_works_with_a_line_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tokens_of(tmp_path)
    _, admin = tokens.create("admin")
    _, mine = tokens.create("device")
    with serving(tmp_path, require_device_token=True) as address:
        register(address, admin)
        monkeypatch.setenv("HEARSAY_TOKEN", f"{mine}\r\n")
        with device(address, delivery=QUICK) as client:
            wait_until(lambda: client.status().reason is not Reason.NO_PLAN)
            assert client.status().reason is Reason.SERVER_REFUSED  # it has no such survey
            client.close(0)


@pytest.mark.parametrize("given", ["argument", "environment", "shuffler"])
def test_a_token_that_cannot_be_one_takes_nothing_though_the_app_ships_the_plan(
    given: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"ledger": file, "consent": True, "level": "standard"}
    if given == "environment":
        monkeypatch.setenv("HEARSAY_TOKEN", "abc\x01")
    elif given == "argument":
        options["token"] = "abc\x01"
    else:
        options |= {"shuffler": "127.0.0.1:1", "shuffler_token": "\u00e9"}
    with Client("127.0.0.1:1", Agreement.on(PLAN), **options) as client:
        assert client.status().reason is Reason.BAD_TOKEN
        assert client.record(answer="no").dropped == {"answer": "bad_token"}
        assert client.counters["bad_token"] == 1
        client.close(0)
