"""The commands that look after what is stored."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from command import hearsay
from serving import Survey, submit
from stored import add, batch, register, remembered

from hearsay.v1 import collector_pb2
from hearsay_server.storage.store import Store


def place(where: Path | str) -> list[object]:
    return ["--data" if isinstance(where, Path) else "--database", where]


@pytest.fixture
def filled(where: Path | str) -> Path | str:
    store = Store(where)
    register(store)
    add(store, [batch(number) for number in range(4)], datetime.now(UTC))
    store.close()
    return where


def test_data_is_verified_backed_up_restored_and_verified_again(
    filled: Path | str, tmp_path: Path
) -> None:
    assert hearsay("verify", *place(filled)).returncode == 0
    done = hearsay("backup", tmp_path / "backup", *place(filled))
    assert (done.returncode, done.stderr) == (0, "")
    done = hearsay("restore", tmp_path / "backup", "--data", tmp_path / "new")
    assert (done.returncode, done.stderr) == (0, "")
    done = hearsay("verify", "--data", tmp_path / "new", "--json")
    checked = json.loads(done.stdout)
    assert {one["verdict"] for one in checked} == {"equal"}
    assert sum(one["kept"] for one in checked if not one["attribute"]) == 4


def test_a_difference_is_an_error(filled: Path | str) -> None:
    store = Store(filled)
    with store.database.changing() as connection:
        connection.exec_driver_sql("UPDATE counts SET records = records + 1")
    store.close()
    done = hearsay("verify", *place(filled))
    assert done.returncode == 1
    assert "5 checked, 1 differ" in done.stdout


def test_rows_are_dropped_by_command(filled: Path | str) -> None:
    assert hearsay("retention", *place(filled), "--keep-days", 1).returncode == 0
    store = Store(filled)
    assert set(remembered(store).values()) == {True}  # they came today
    with store.database.changing() as connection:
        connection.exec_driver_sql("UPDATE batches SET day = day - 2")
    store.close()
    assert hearsay("retention", *place(filled), "--keep-days", 1).returncode == 0
    store = Store(filled)
    assert set(remembered(store).values()) == {False}
    store.close()


def test_a_folder_without_data_is_said_and_not_made(tmp_path: Path) -> None:
    for command in (["verify"], ["backup", tmp_path / "backup"], ["retention"]):
        done = hearsay(*command, "--data", tmp_path / "typo")
        assert done.returncode == 1
        assert f"there is no hearsay data in {tmp_path / 'typo'}" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_survey_is_closed_and_deleted_by_command(survey: Survey) -> None:
    first, second = survey.batch(1), survey.batch(2)
    target = ["--target", survey.address]
    submit(survey.address, first)
    assert hearsay("survey", "close", survey.name, "--yes", *target).returncode == 0
    assert survey.status().closed
    (late,) = submit(survey.address, second)
    assert late.reason == collector_pb2.PERIOD_CLOSED
    done = hearsay("survey", "close", survey.name, "--period", "2026", "--yes", *target)
    assert "the survey has the one period 'once', got '2026'" in done.stderr
    done = hearsay("survey", "delete", survey.name, "--yes", *target)
    assert done.stdout == f"{survey.name} is deleted, with 1 records in 1 batches\n"
    done = hearsay("survey", "delete", survey.name, "--yes", *target)
    assert f"there is no survey '{survey.name}' here" in done.stderr
    (gone,) = submit(survey.address, first)
    assert gone.reason == collector_pb2.UNKNOWN_SURVEY
