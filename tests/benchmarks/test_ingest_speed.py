"""The benchmark of the server runs, and says what it is for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.slow
def test_the_benchmark_of_the_server_measures_a_little(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, HERE / "ingest_speed.py", "--smoke"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = [(line[:32].strip(), line[32:].split()) for line in done.stdout.splitlines()]
    names = [name for name, _ in lines]
    one_row = ("echo", "Submit", "Submit, rows capped by token", "Submit, 1,000 stored")
    storages = 2 - done.stdout.count("there is no PostgreSQL here")
    for calls in (8, 64, 256):
        assert names.count(f"{calls} calls under way") == storages, done.stdout
    for name in (*one_row, "25,000", "90,000"):
        rows = [values for found, values in lines if found == name]
        assert len(rows) == (3 * storages if name in one_row else 1), done.stdout
        assert all(float(value) >= 0 for values in rows for value in values), done.stdout
        if name == "echo":
            assert all(float(values[1]) == float(values[3]) == 1 for values in rows)  # of its own
    assert not list(tmp_path.iterdir())  # what was stored is gone


@pytest.mark.slow
def test_the_benchmark_of_sealed_records_measures_a_little(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, HERE / "sealed_speed.py", "--smoke"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sealed over direct") == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "lines"),
    [
        ("shuffler_speed.py", ["forwarded, 256 a call", "taken, one a call", "taken, 256 a call"]),
        (
            "two_servers_speed.py",
            ["the helper's shares: ", "the leader's shares: ", "write and split: ", "seal: "],
        ),
    ],
)
def test_the_benchmarks_of_a_shuffler_and_of_two_servers_measure_a_little(
    tmp_path: Path, script: str, lines: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, HERE / script, "--smoke"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert [line in done.stdout for line in lines] == [True] * len(lines), done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_costs_that_sizing_needs_are_measured(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, HERE / "sizing_costs.py", "--smoke"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if "skipped" in done.stderr.lower():
        pytest.skip("there is no PostgreSQL here")
    assert done.returncode == 0, done.stderr
    costs = {line[:38].strip(): line[38:].split() for line in done.stdout.splitlines()}
    for name in ("TLS", "no TLS"):
        kept, new, idle = map(float, costs[name])
        assert min(kept, new, idle) > 0, done.stdout
    assert done.stdout.count("on PostgreSQL") == 4
    assert not list(tmp_path.iterdir())  # what was stored is gone
