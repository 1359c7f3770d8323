"""Fixtures of the SDK's tests."""

import logging
from collections.abc import Iterator

import pytest
from disks import small_disk

__all__ = ["small_disk"]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Undo what `debug=True` did: its handler writes to the stderr of the test that is over."""
    yield
    logger = logging.getLogger("hearsay")
    logger.setLevel(logging.NOTSET)
    for handler in [each for each in logger.handlers if each.get_name() == "hearsay-debug"]:
        logger.removeHandler(handler)
