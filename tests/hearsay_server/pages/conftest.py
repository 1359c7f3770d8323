"""Fixtures of the tests of pages: a server that shows them, and a browser."""

from collections.abc import Iterator

import pytest
from every_page import Filled, filling
from serving import tokens_of
from visiting import Browser, Site, chromium, showing


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server without tokens, which the tests of a module share: all pages are open."""
    with showing(tmp_path_factory.mktemp("pages")) as found:
        yield found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, dict[str, str]]]:
    """A server with a token of each role, by role."""
    folder = tmp_path_factory.mktemp("guarded")
    tokens = tokens_of(folder)
    made = {role: tokens.create(role, f"a {role}")[1] for role in ("device", "analyst", "admin")}
    with showing(folder) as found:
        yield found, made


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A server that has something to show on each page."""
    with filling(tmp_path_factory.mktemp("filled")) as found:
        yield found


@pytest.fixture(scope="module")
def _chromium() -> Iterator[Browser]:
    # Of a module, not of all: while it runs, asyncio cannot run in the main thread.
    with chromium() as found:
        yield found


@pytest.fixture
def browser(_chromium: Browser) -> Iterator[Browser]:
    """Chromium; the test fails where a page wrote an error or asked another origin."""
    _chromium.faults.clear()
    yield _chromium
    assert _chromium.faults == []
    for context in _chromium.chromium.contexts:
        context.close()
