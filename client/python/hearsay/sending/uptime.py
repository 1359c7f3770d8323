"""A steady clock for what a device must not take for newer than it is."""

import time


def uptime() -> float:
    """Return the seconds of a steady clock, which counts the device's sleep where the system
    does."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
