"""Limits of one caller: a token bucket, and the error where a limit is reached."""

from dataclasses import dataclass, field

from ldp.errors import NotReady


class TooMany(NotReady):
    """A limit is reached; the call may come again after `retry_after` seconds."""

    def __init__(self, detail: str, limit: str, retry_after: float) -> None:
        super().__init__(detail)
        self.limit = limit
        self.retry_after = retry_after


@dataclass
class Rates:
    """A token bucket for each key: `per_second` on average, `burst` at once.

    A key that has not been seen for a while has a full bucket, so it need not be remembered:
    memory is bounded by the keys that were active in the last burst / per_second seconds.
    """

    per_second: float
    burst: float
    _level: dict[str, tuple[float, float]] = field(default_factory=dict)  # at a time
    _sweep: float = 0.0

    def take(self, key: str, amount: float, now: float) -> float:
        """Take `amount` at `now` (seconds of any steady clock); return 0.0.

        Where there is not so much, take nothing and return the seconds until there is. An
        amount above `burst` waits for a full bucket and leaves it in debt.
        """
        if now >= self._sweep:
            refill = self.burst / self.per_second
            self._level = {k: v for k, v in self._level.items() if self._at(v, now) < self.burst}
            self._sweep = now + refill
        level = self._at(self._level.get(key, (self.burst, now)), now)
        missing = min(amount, self.burst) - level
        if missing > 0:
            return missing / self.per_second
        self._level[key] = (level - amount, now)
        return 0.0

    def __len__(self) -> int:
        return len(self._level)

    def _at(self, entry: tuple[float, float], now: float) -> float:
        level, then = entry
        return min(self.burst, level + (now - then) * self.per_second)
