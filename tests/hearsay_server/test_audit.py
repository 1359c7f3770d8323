"""Who did what stands in the audit log, which only grows."""

import csv
import io
from pathlib import Path

import pytest
import sqlalchemy as sa
from command import hearsay
from serving import batch, connected, held, register, serving, submit, tokens_of
from stored import add
from stored import batch as stored_batch

from hearsay import Analyst, Unreachable
from hearsay.v1 import admin_pb2, admin_pb2_grpc
from hearsay_server.storage import audit, backup, retention, schema
from hearsay_server.storage.database import open_folder
from hearsay_server.storage.store import Store
from ldp import InvalidInput

ME = audit.this_user()


def acts(folder: Path) -> list[audit.Entry]:
    database = open_folder(folder)
    database.close()
    return audit.entries(database)


def test_acts_through_a_server_have_their_token(tmp_path: Path) -> None:
    known = tokens_of(tmp_path)
    (admin, admin_text), (analyst, analyst_text) = known.create("admin"), known.create("analyst")
    before = len(acts(tmp_path))
    with serving(tmp_path) as address:
        revision = register(address, admin_text)
        register(address, admin_text)  # which changes nothing
        submit(address, batch(revision))
        with Analyst(address, token=analyst_text) as asking:
            list(asking.chunks("health", levels=["strict"], last_period="once"))
            asking.estimate("health", "smokes")
        with connected(address, admin_text) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            stub.CloseSurvey(admin_pb2.CloseSurveyRequest(survey="health", period="once"))
            stub.CloseSurvey(admin_pb2.CloseSurveyRequest(survey="health"))
            stub.DeleteSurvey(admin_pb2.DeleteSurveyRequest(survey="health"))
    found = acts(tmp_path)[before:]
    assert [(act.token, act.os_user, act.action, act.survey, act.detail) for act in found] == [
        (admin.id, "", "create survey", "health", {"revision": revision.hex()}),
        (analyst.id, "", "export rows", "health", {"levels": ["strict"], "last_period": "once"}),
        (admin.id, "", "close survey", "health", {"last_period": "once"}),
        (admin.id, "", "close survey", "health", {}),
        (admin.id, "", "delete survey", "health", {"batches": 1, "records": 1}),
    ]
    assert sorted(act.at for act in found) == [act.at for act in found]


def test_no_row_is_exported_that_cannot_be_recorded(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        submit(address, batch(register(address)))
        database = open_folder(tmp_path)
        with database.changing() as connection:
            connection.exec_driver_sql("ALTER TABLE audit RENAME TO elsewhere")
        with Analyst(address) as asking, pytest.raises(Unreachable, match="failed to answer"):
            list(asking.chunks("health"))
        with database.changing() as connection:
            connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO audit")
        database.close()
        with Analyst(address) as asking:
            assert list(asking.chunks("health"))


def test_an_act_that_fails_is_not_recorded(store: Store) -> None:
    before = audit.entries(store.database)
    for act in (retention.close_survey, retention.mark_deleted):
        with pytest.raises(InvalidInput):
            act(store.database, "missing")
    with pytest.raises(InvalidInput):
        store.create_survey("health", b"another", b"")
    assert audit.entries(store.database) == before


def test_commands_on_the_data_have_the_user_of_the_system(tmp_path: Path) -> None:
    data = ("--data", tmp_path / "data")
    (tmp_path / "data").mkdir()
    hearsay("token", "create", "--role", "analyst", "--label", "Ada", *data, USER="forged")
    (token,) = tokens_of(tmp_path / "data").list()
    hearsay("token", "rotate", token.id, *data)
    hearsay("token", "revoke", token.id, *data)
    hearsay("backup", tmp_path / "copy", *data)
    hearsay("retention", "--keep-days", 7, *data)
    hearsay("restore", tmp_path / "copy", "--data", tmp_path / "new")
    ada = {"token": token.id, "role": "analyst", "label": "Ada"}
    expected: list[tuple[str, dict[str, object]]] = [
        ("create token", ada),
        ("rotate token", ada),
        ("revoke token", ada),
        ("back up", {"file": str(tmp_path / "copy")}),
    ]
    kept = [("retention", {"keep_days": 7})]
    restored = [("restore", {"file": str(tmp_path / "copy")})]
    for folder, more in (("data", kept), ("new", restored)):
        found = acts(tmp_path / folder)
        assert [(act.action, act.detail) for act in found] == [*expected, *more]
        assert {(act.os_user, act.token) for act in found} == {(ME, "")}


def test_a_backup_is_made_though_it_cannot_be_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearsay_server.storage.database._BUSY", 0.1)
    store = Store(tmp_path / "data")
    with held(tmp_path / "data"):
        backup.backup(store.database, tmp_path / "copy")
    assert "this backup is missing in the audit log: database is locked" in caplog.text
    assert (tmp_path / "copy").exists()
    store.close()


@pytest.mark.parametrize("change", ["UPDATE audit SET action = 'none'", "DELETE FROM audit"])
def test_the_database_refuses_to_change_or_delete_an_act(store: Store, change: str) -> None:
    before = audit.entries(store.database)
    assert [act.action for act in before] == ["create survey"] * 2
    with (
        pytest.raises(sa.exc.DBAPIError, match="the audit log only grows"),
        store.database.changing() as connection,
    ):
        connection.exec_driver_sql(change)
    assert audit.entries(store.database) == before


def test_no_device_stands_in_it(store: Store) -> None:
    before = audit.entries(store.database)
    add(store, [stored_batch(number) for number in range(3)])
    assert audit.entries(store.database) == before
    assert set(schema.audit.c.keys()) == {
        *("id", "at", "token", "os_user", "action", "survey", "detail")
    }


def test_the_command_prints_every_act(tmp_path: Path) -> None:
    known = tokens_of(tmp_path)
    admin, text = known.create("admin", "Grace")
    with serving(tmp_path) as address:
        revision = register(address, text)
    printed = hearsay("audit-log", "--csv", "--data", tmp_path).stdout
    made, registered = csv.DictReader(io.StringIO(printed))
    assert (made["user"], made["action"], made["token"]) == (ME, "create token", "")
    assert made["detail"] == f"token: {admin.id}, role: admin, label: Grace"
    del registered["time"]
    assert registered == {
        "token": admin.id,
        "label": "Grace",
        "user": "",
        "action": "create survey",
        "survey": "health",
        "detail": f"revision: {revision.hex()}",
    }
    assert "Grace" in hearsay("audit-log", "--data", tmp_path).stdout
