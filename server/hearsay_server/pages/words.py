"""How values are written on pages: text that others chose, numbers, sizes and times."""

import math
import unicodedata
from datetime import UTC, datetime

_BIDI = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that turn the direction of the text around them."""

NONE = "\u2013"
"""What stands where there is nothing to say."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def shown(text: object) -> str:
    """Return text that others chose, with a mark for each character that is not to be seen.

    Control characters and those that turn the direction of text may make a title look like
    another one.
    """
    return "".join(
        "\ufffd" if c in _BIDI or unicodedata.category(c) in ("Cc", "Cs", "Co", "Cn") else c
        for c in str(text)
    )


def count(number: float) -> str:
    """Return a whole number with its thousands apart."""
    return f"{number:,.0f}"


def many(number: int, of: str) -> str:
    """Return a number of things, whose name is in the singular."""
    return f"{count(number)} {of}{'' if number == 1 else 's'}"


def number(value: float, digits: int = 3) -> str:
    """Return a number with so many decimals; a dash for none."""
    return NONE if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def size(count: float) -> str:
    """Return a number of bytes in words."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def seconds(value: float) -> str:
    """Return a duration in words."""
    if math.isnan(value):
        return NONE
    if value < 1:
        return f"{1000 * value:.1f} ms" if value else "0 s"
    for unit, name in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if value >= 2 * unit:
            return f"{value / unit:.0f} {name}s"
    return f"{value:.1f} s"


def moment(at: float) -> str:
    """Return a moment, in seconds since 1970, in UTC."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return f"{at:.0f} s after 1970"
