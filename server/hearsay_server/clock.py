"""The time, which is passed in: only tests pass another clock than the system's."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def system() -> datetime:
    """Return the system's time, in UTC."""
    return datetime.now(UTC)
