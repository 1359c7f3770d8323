"""Workers of a backend that share one ledger."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hostile import one_question, plan_of

from hearsay import create_ledger


def run(tmp_path: Path, workers: int, rate: float, seconds: float) -> list[dict[str, Any]]:
    """Let workers record at a rate each, and return what each of them counted."""
    (tmp_path / "plan").write_bytes(plan_of(one_question(["no", "yes"])))
    create_ledger(tmp_path / "ledger.db")
    script = str(Path(__file__).with_name("worker.py"))
    given = [sys.executable, script, str(tmp_path / "plan"), str(tmp_path / "ledger.db")]
    processes = [
        subprocess.Popen(
            [*given, str(number), str(rate), str(seconds)], stdout=subprocess.PIPE, text=True
        )
        for number in range(workers)
    ]
    return [json.loads(process.communicate(timeout=600)[0]) for process in processes]


def check(found: list[dict[str, Any]]) -> int:
    """Check that all was taken, and sent by one of them; return how many answers that was."""
    assert {reason for each in found for reason in each["became"]} == {"taken"}, found
    taken = sum(each["became"]["taken"] for each in found)
    sent: dict[str, int] = {}
    for each in found:
        sent |= each["sent"]
    assert taken == sum(sent.values())
    return taken


@pytest.mark.slow
def test_eight_workers_lose_nothing(tmp_path: Path) -> None:
    found = run(tmp_path, 8, 25.0, 15.0)
    assert check(found) > 8 * 25 * 10
    assert sum(len(each["sent"]) for each in found) == len(set().union(*(e["sent"] for e in found)))


@pytest.mark.slow
def test_workers_at_full_speed_lose_nothing(tmp_path: Path) -> None:
    check(run(tmp_path, 4, 0.0, 5.0))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_eight_workers_lose_nothing_in_five_minutes(tmp_path: Path) -> None:
    check(run(tmp_path, 8, 25.0, 300.0))
