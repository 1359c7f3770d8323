"""How long to wait after a failure."""

import random


def backoff(first: float, longest: float, failures: int, retry_after: float) -> float:
    """Return the seconds to wait after another failure: never less than the server asked for."""
    wait = min(longest, first * 2 ** float(min(failures, 30)))
    # Spread retries out, so that a crowd of devices does not return at once.
    return max(retry_after, wait * random.uniform(0.5, 1.0))
