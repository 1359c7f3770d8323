"""Fixtures of the SDK's tests."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from disks import small_disk
from http_servers import authority, fake, secure, url
from moody import moody
from trainers import step, trainer
from two_sdks import Twin

from hearsay import create_ledger
from support import BOTH

__all__ = ["authority", "fake", "moody", "secure", "small_disk", "step", "trainer", "url"]

DELIVERY = {
    "test_aio",
    "test_exit",
    "test_faults",
    "test_fork",
    "test_killed",
    "test_power",
}
"""Tests of what is sent: each runs over both transports, with the slow tests over HTTP. Elsewhere
some do, as they say."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = metafunc.module.__name__.rpartition(".")[2]
    if name in DELIVERY and "server" in metafunc.fixturenames:
        metafunc.parametrize("server", BOTH, indirect=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A ledger that was vouched for."""
    create_ledger(tmp_path / "ledger.db")
    return tmp_path / "ledger.db"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Undo what `debug=True` did: its handler writes to the stderr of the test that is over."""
    yield
    logger = logging.getLogger("hearsay")
    logger.setLevel(logging.NOTSET)
    for handler in [each for each in logger.handlers if each.get_name() == "hearsay-debug"]:
        logger.removeHandler(handler)


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    """The TypeScript SDK, asked through pipes; for tests that skip where `why_missing` says why."""
    with Twin() as process:
        yield process
