"""What admins are told when a survey or the database is in the way."""

from pathlib import Path

import grpc
import psycopg
import pytest
from postgres import Postgres
from serving import connected, register, serving

from hearsay.v1 import admin_pb2, admin_pb2_grpc, collector_pb2, collector_pb2_grpc
from hearsay_server.storage import retention
from hearsay_server.storage.database import open_folder


def test_a_name_that_is_being_deleted_is_not_said_to_be_taken_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The sweep as the server starts may come late, and would end the deletion.
    monkeypatch.setattr(retention, "hourly", lambda *_: [])
    with serving(tmp_path) as address:
        register(address)
        database = open_folder(tmp_path)
        retention.mark_deleted(database, "health")
        database.close()
        with pytest.raises(grpc.RpcError) as error:
            register(address)
        assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "is being deleted: come again in a while" in error.value.details()


def test_surveys_are_closed_and_deleted_over_connections_that_broke(
    tmp_path: Path, postgres: Postgres
) -> None:
    url = postgres.create()
    cut = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with serving(tmp_path, database=url, probe_seconds=60.0) as address:
        register(address)
        with connected(address) as channel, psycopg.connect(url, autocommit=True) as database:
            admin = admin_pb2_grpc.AdminStub(channel)
            database.execute(cut)
            assert admin.CloseSurvey(admin_pb2.CloseSurveyRequest(survey="health")).closed
            database.execute(cut)
            devices = collector_pb2_grpc.CollectorStub(channel)
            asked = collector_pb2.GetPlanRequest(survey="health")
            assert devices.GetPlan(asked).plan
            admin.DeleteSurvey(admin_pb2.DeleteSurveyRequest(survey="health"))
            with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
                devices.GetPlan(asked)
        assert register(address)  # the name is free again
