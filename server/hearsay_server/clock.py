"""The clock that servers are given: the system's, and only in tests another one."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def system() -> datetime:
    """Return the system's time, in UTC."""
    return datetime.now(UTC)
