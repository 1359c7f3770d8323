import pytest

from ldp.testing import SeededCoins


@pytest.fixture
def coins() -> SeededCoins:
    """Coins that repeat, so that a statistical test gives the same verdict every time."""
    return SeededCoins(20260704)
