"""By which exception an app is told why something could not be done."""

from datetime import datetime
from pathlib import Path

import pytest

from hearsay import (
    Caps,
    Client,
    HearsayError,
    InvalidInput,
    NotReady,
    PlanRefused,
    Reason,
    StorageFailed,
    create_ledger,
)
from hearsay.trouble import Trouble, to_raise


@pytest.mark.parametrize(
    ("kind", "reasons"),
    [
        (PlanRefused, [Reason.PLAN_REFUSED]),
        (InvalidInput, [Reason.SERVER_REFUSED, Reason.CLOCK, Reason.CLOSED]),
        (NotReady, [Reason.NO_PLAN, Reason.UNREACHABLE, Reason.TLS, Reason.LOCKED]),
        (StorageFailed, [Reason.DISK, Reason.CORRUPT, Reason.OTHER_SCHEMA, Reason.NOT_A_LEDGER]),
    ],
)
def test_the_kind_says_what_to_do_about_a_reason(
    kind: type[HearsayError], reasons: list[Reason]
) -> None:
    for reason in reasons:
        error = to_raise(reason, "the words")
        assert type(error) is kind
        assert str(error) == "the words"


@pytest.fixture
def client(tmp_path: Path) -> Client:
    create_ledger(tmp_path / "ledger.db")
    return Client("127.0.0.1:1", "health", epsilon=1.0, ledger=tmp_path / "ledger.db")


@pytest.mark.parametrize(
    ("reason", "kind"), [(Reason.DISK, StorageFailed), (Reason.LOCKED, NotReady)]
)
def test_caps_that_cannot_be_kept_tell_a_broken_disk_from_a_busy_one(
    client: Client, monkeypatch: pytest.MonkeyPatch, reason: Reason, kind: type[HearsayError]
) -> None:
    def fail(*given: object) -> None:
        raise Trouble(reason, "it is so")

    monkeypatch.setattr(client._device.ledger, "set_own_caps", fail)
    with client, pytest.raises(kind, match=r"^the caps could not be kept: it is so$"):
        client.set_caps(Caps())


def test_a_clock_that_cannot_be_used_is_the_apps_to_mend(tmp_path: Path) -> None:
    def clock() -> datetime:
        return datetime(2026, 1, 1)  # without a time zone

    file = tmp_path / "ledger.db"
    create_ledger(file)
    with (
        Client("127.0.0.1:1", "health", epsilon=1.0, ledger=file, clock=clock) as client,
        pytest.raises(InvalidInput, match="time could not be kept: the clock must return"),
    ):
        client.trust_clock()


def test_a_ledger_that_the_folder_does_not_take_is_a_storage_failure(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="cannot make a ledger"):
        create_ledger(tmp_path / ("x" * 300))
