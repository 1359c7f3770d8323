"""Random requests and faults against real servers, by a seed: nothing is lost or counted twice.

The seed determines what is asked and what goes wrong, and when about; not how the processes
interleave. So one that failed fails again mostly, not always.
"""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from deployments import Deployment, one_server, three_on_postgresql, two_on_one_port
from faults import QUIET, Driver

_LONG = 300.0
"""Seconds."""

Deploy = Callable[[Path], AbstractContextManager[Deployment]]

on_each = pytest.mark.parametrize(
    "deploy", [one_server, two_on_one_port, three_on_postgresql], ids=lambda deploy: deploy.__name__
)


def drive(
    deploy: Deploy, folder: Path, seed: int, goes_on: Callable[[Deployment, int], bool]
) -> None:
    with deploy(folder) as deployment:
        driver = Driver(deployment, seed)
        try:
            driver.run(lambda rounds: goes_on(deployment, rounds))
        except Exception as error:
            error.add_note(f"seed {seed}, after {dict(driver.done)}")
            raise
        print(f"seed {seed}: {dict(driver.done)}")  # noqa: T201
        assert set(deployment.faults) <= set(driver.done)
        assert {"STORED", "DUPLICATE", "BAD_ID", "FORGOTTEN"} <= set(driver.done)


@pytest.mark.slow
@on_each
def test_what_is_acknowledged_counts_once_whatever_goes_wrong(
    deploy: Deploy, tmp_path: Path
) -> None:
    drive(deploy, tmp_path, 1, lambda deployment, rounds: rounds < QUIET * len(deployment.faults))


@pytest.mark.long
@pytest.mark.timeout(900)
@on_each
def test_what_is_acknowledged_counts_once_for_minutes(deploy: Deploy, tmp_path: Path) -> None:
    seed = int(os.environ.get("FAULTS_SEED", "") or int.from_bytes(os.urandom(4)))
    end = time.monotonic() + _LONG
    drive(deploy, tmp_path, seed, lambda deployment, rounds: time.monotonic() < end)
