"""What a scrape says after known traffic, and that the documentation names it all."""

import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import batch, register, serving, submit, tokens_of

from hearsay.v1 import collector_pb2
from hearsay_server.serving.metrics import Metrics, exposed
from ldp.errors import ServerFailed
from support import free_port

DOCS = Path(__file__).resolve().parents[2] / "docs"


def scraped(port: int) -> dict[str, float]:
    """Return the samples of a scrape by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        sample.name + "".join(f",{v}" for v in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_traffic_is_counted_by_what_became_of_it(tmp_path: Path) -> None:
    port = free_port()
    admin, device = (tokens_of(tmp_path).create(role)[1] for role in ("admin", "device"))
    keys = {"require_device_token": True, "batches_per_second": 1.0}
    with serving(tmp_path, metrics=str(port), **keys) as address:
        revision = register(address, admin)
        good, late, bad = (batch(revision, number, rows=3) for number in range(3))
        late.revision = b"another"
        bad.columns[0].codes = b"\x09\x09\x09"
        submit(address, good, good, late, bad, token=device)
        with pytest.raises(grpc.RpcError):
            submit(address, *[batch(revision, 4)] * 256, token=device)
        with pytest.raises(grpc.RpcError):
            register(address)
        seen = scraped(port)
    assert seen["hearsay_call_seconds_count,hearsay.v1.Collector/Submit"] == 2
    assert 0 < seen["hearsay_call_seconds_sum,hearsay.v1.Collector/Submit"] < 60
    assert "hearsay_call_seconds_count,hearsay.v1.Admin/ShowSurvey" not in seen
    assert 0 < seen["process_open_fds"] < seen["process_max_fds"]
    assert seen["process_resident_memory_bytes"] > 1 << 20
    assert seen["process_cpu_seconds_total"] > 0
    assert seen["hearsay_batches_received_total"] == 260
    assert {o: seen[f"hearsay_batches_total,{o}"] for o in ("stored", "duplicate")} == {
        "stored": 1,
        "duplicate": 1,
    }
    assert seen["hearsay_batches_total,retry"] == seen["hearsay_batches_total,refused"] == 1
    assert seen["hearsay_batches_refused_total,UNKNOWN_REVISION"] == 1
    assert seen["hearsay_batches_refused_total,BAD_CODES"] == 1
    assert seen["hearsay_rows_stored_total"] == 3
    assert seen["hearsay_commit_seconds_count"] == 1
    assert seen["hearsay_commit_failures_total"] == 0
    assert seen["hearsay_queue_batches"] == seen["hearsay_queue_bytes"] == 0
    assert seen["hearsay_tally_lag_seconds"] == 0
    assert seen["hearsay_open_calls"] == 0
    assert seen["hearsay_auth_failures_total,missing"] == 1
    assert seen["hearsay_limited_total,rate"] == 1
    assert seen["hearsay_ready"] == 1


def test_every_reason_of_the_wire_is_there_at_zero_so_that_the_first_refusal_is_seen() -> None:
    with exposed(Metrics(), "0") as port:
        assert port is not None
        seen = scraped(port)
    reasons = set(collector_pb2.Reason.keys()) - {"REASON_UNSPECIFIED"}
    assert {
        name: seen[f"hearsay_batches_refused_total,{name}"] for name in reasons
    } == dict.fromkeys(reasons, 0.0)


def test_metrics_are_of_loopback_unless_a_host_is_given() -> None:
    with exposed(Metrics(), "0") as port:
        assert port is not None
        assert scraped(port)["hearsay_ready"] == 0
        with pytest.raises(urllib.error.URLError):  # as from outside
            urllib.request.urlopen(f"http://127.0.0.2:{port}/metrics", timeout=2)


@pytest.mark.parametrize("address", ["nine", "127.0.0.1:", "127.0.0.1:99999", "203.0.113.1:0"])
def test_an_address_that_cannot_be_bound_is_refused(address: str) -> None:
    with pytest.raises(ServerFailed, match="cannot serve metrics at"):
        exposed(Metrics(), address).__enter__()


def test_the_guide_names_every_metric_and_no_other() -> None:
    made = {
        family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        for family in Metrics().registry.collect()
    }
    guide = (DOCS / "operating.md").read_text(encoding="utf-8")
    table = guide.partition("\n## Metrics")[2].partition("\n| alert |")[0]
    documented = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
    assert documented == made
