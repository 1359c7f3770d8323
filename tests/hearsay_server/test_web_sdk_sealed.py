"""The TypeScript SDK seals records for a real shuffler, and a real collector opens them."""

import json
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from sealing import Sealed, collector, sealed_server
from serving import connected
from shuffling import shuffling
from test_web_sdk import WEB, why_missing

from hearsay import Analyst
from hearsay.v1 import admin_pb2, admin_pb2_grpc
from support import free_port, wait_until

__all__ = ["collector", "sealed_server"]

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())


@pytest.mark.slow
def test_records_that_a_browser_seals_are_mixed_opened_and_counted(
    collector: Sealed, tmp_path: Path
) -> None:
    http, people = f"127.0.0.1:{free_port()}", 1000
    token = collector.token("device")
    with shuffling(tmp_path / "s", collector, http=http) as shuffler:
        script = Path(__file__).with_name("web_sealed.mjs")
        done = subprocess.run(
            [
                *("node", script, WEB / "dist" / "index.js", f"http://{collector.http}"),
                *(f"http://{http}", token, collector.survey),
                *(str(int(1000 * collector.clock.now.timestamp())), str(people)),
            ],
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["ready"] and told["sent"], told
        assert told["counters"]["stored"] == people
        assert set(told["batches"]) == {1}  # each record by itself
        assert "give shuffler" in told["refused"]
        assert shuffler.pool(collector.today).gathering == people
        collector.clock.now += timedelta(days=1)
        wait_until(lambda: shuffler.pool(shuffler_day(collector)).forwarded == people, 60)
    with connected(collector.address, collector.token("admin")) as channel:
        asked = admin_pb2.ShowSurveyRequest(survey=collector.survey)
        shown = admin_pb2_grpc.AdminStub(channel).ShowSurvey(asked, timeout=20)
    assert shown.status.records == people
    with Analyst(collector.address, token=collector.token("analyst")) as analyst:
        found = analyst.estimate(collector.survey, "smokes").to_frame()
    row = found.loc["yes"]
    assert abs(row["estimate"] - 0.25) <= 5 * row["standard_error"]


def shuffler_day(collector: Sealed) -> str:
    """Return the day before the collector's clock, in which people answered."""
    return f"{collector.clock.now - timedelta(days=1):%Y-%m-%d}"
