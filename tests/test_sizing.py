"""The load model of `docs/sizing.py`, beside sums done by hand."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture(scope="module")
def model() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sizing_model", DOCS / "sizing.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module


def test_a_device_a_second_is_a_call_a_second_and_ten_at_the_peak(model: ModuleType) -> None:
    load = model.Load(86_400.0)
    assert (load.mean(), load.most()) == (1.0, 10.0)
    assert model.Load(86_400.0, batches=3.0, peak=2.0).most() == 6.0


def test_ten_calls_a_second_need_ten_times_what_one_costs(model: ModuleType) -> None:
    load = model.Load(86_400.0, idle=60.0, days=2.0)
    asked = model.need(load, proxied=False)
    assert asked.cores == pytest.approx(10 * (363e-6 + 970e-6 + 1.7e-3))
    assert asked.connections == 600.0
    assert asked.database == pytest.approx(10 * 35e-6)
    assert asked.written == pytest.approx(10 * (650 + 2 * 8192))
    assert asked.kept == 86_400 * 2 * 400


def test_calls_share_commits_where_there_are_many(model: ModuleType) -> None:
    few, many = (model.need(model.Load(8_640 * calls), proxied=True) for calls in (200.0, 1200.0))
    assert few.cores == pytest.approx(200 * (363e-6 + 1.7e-3))
    assert many.cores - few.cores == pytest.approx(1000 * 363e-6)


def test_nginx_takes_the_connections_and_the_handshakes(model: ModuleType) -> None:
    load = model.Load(86_400.0)
    asked = model.need(load, proxied=True)
    assert asked.connections == 0
    assert asked.cores == pytest.approx(10 * (363e-6 + 1.7e-3))
    assert asked.nginx == pytest.approx(10 * 650e-6)


def test_processes_are_as_many_as_the_more_used_of_processor_and_connections_needs(
    model: ModuleType,
) -> None:
    by_connections = model.need(model.Load(1e6), proxied=False)
    # 10^7 / 86,400 calls a second for 300 s, of which a process may have 6,000.
    assert by_connections.processes() == 6
    assert by_connections.first() == "connections of a process"
    by_processor = model.need(model.Load(1e8, idle=1.0), proxied=False)
    # 11,574 calls a second of 1.333 ms, and 200 commits of 1.7 ms, of which a process has 0.6 s.
    assert by_processor.processes() == 27
    assert by_processor.first() == "processor of a process"


def test_more_processes_do_not_help_where_the_database_is_saturated(model: ModuleType) -> None:
    asked = model.need(model.Load(1e9), proxied=True)
    assert asked.then() == "writes of PostgreSQL"
    assert asked.shares()[asked.then()] > 1
    assert model.need(model.Load(1e8), proxied=True).shares()["writes of PostgreSQL"] < 1


def test_the_costs_of_the_model_are_in_the_benchmarks(model: ModuleType) -> None:
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    assert f"| `Submit` | 2,031 | 0.83 | {1e6 * model.CALL:.0f} us |" in page
    kept, new = map(
        float, re.findall(r"^\| server, TLS \| ([\d.]+) ms \| ([\d.]+) ms", page, re.M)[0]
    )
    assert pytest.approx((kept - 1e3 * model.CALL) / 1e3, rel=0.05) == model.COMMIT
    assert pytest.approx((new - kept) / 1e3) == model.HANDSHAKE
    assert f"| {1e3 * model.NGINX:.2f} ms | 16 KB |" in page
    assert f"(2.83 and 3.04 in two other runs) | {model.IDLE / 1e3:.0f} KB |" in page
    assert f"| {1e6 * model.ROW:.0f} us (34, 32) |" in page


def test_the_defaults_of_the_server_are_those_of_the_model(model: ModuleType) -> None:
    sample = (DOCS.parent / "deploy" / "hearsay.toml").read_text(encoding="utf-8")
    assert f"\nmax_connections = {model.CONNECTIONS}\n" in sample
    assert f"\nmax_connection_idle_seconds = {model.Load(1.0).idle}\n" in sample


def test_a_load_of_ones_own_is_told(model: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    model.main(["--devices", "5e6", "--idle", "30", "--peak", "4"])
    told = capsys.readouterr().out
    assert "57.9 on average, 231.5 at the peak" in told
    assert "server processes: 2" in told
    assert "rows kept on PostgreSQL: 60 GB" in told
