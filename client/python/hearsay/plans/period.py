"""The periods of a survey's time unit: their names, starts and ends, in UTC."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from ldp import InvalidInput

ONCE = "once"
"""The only period of a survey that takes one record per user, ever."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONDAY = datetime(1970, 1, 5, tzinfo=UTC)

_FORMATS = {
    "PT1H": "%Y-%m-%dT%H",
    "P1D": "%Y-%m-%d",
    "P1W": "%G-W%V",
    "P1M": "%Y-%m",
    "P1Y": "%Y",
}

_LONGEST = {
    "PT1H": timedelta(hours=1),
    "P1D": timedelta(days=1),
    "P1W": timedelta(days=7),
    "P1M": timedelta(days=31),
    "P1Y": timedelta(days=366),
}


def check_unit(unit: str) -> None:
    """Raise `InvalidInput` unless `unit` is a survey's period: "", PT1H, P1D, P1W, P1M or P1Y."""
    if unit and unit not in _FORMATS:
        raise InvalidInput(f"period must be empty or one of {', '.join(_FORMATS)}, got {unit!r}")


def label(unit: str, moment: datetime) -> str:
    """Name the period of `unit` that an aware `moment` belongs to, e.g. "2026-W27"."""
    check_unit(unit)
    if not unit:
        return ONCE
    return _label(unit, int(moment.timestamp() // 3600))


@lru_cache(maxsize=64)
def _label(unit: str, hour: int) -> str:
    """Name the period of an hour, counted since 1970."""
    return (_EPOCH + timedelta(hours=hour)).strftime(_FORMATS[unit])


@lru_cache(maxsize=64)
def start(unit: str, name: str) -> datetime:
    """Return when the period `name` of `unit` begins; raise `InvalidInput` if it is none."""
    check_unit(unit)
    if not unit:
        if name != ONCE:
            raise InvalidInput(f"the survey has the one period {ONCE!r}, got {name!r}")
        return datetime.min.replace(tzinfo=UTC)
    try:
        # A week is named by its year and number; strptime wants the day as well.
        text, form = (f"{name}-1", "%G-W%V-%u") if unit == "P1W" else (name, _FORMATS[unit])
        begin = datetime.strptime(text, form).replace(tzinfo=UTC)
    except ValueError:
        begin = None
    if begin is None or label(unit, begin) != name:
        example = label(unit, datetime(2026, 7, 4, 13, tzinfo=UTC))
        raise InvalidInput(f"a {unit} period reads like {example!r}, got {name!r}")
    return begin


def number(unit: str, name: str) -> int:
    """Return the number of the period `name`: those of successive periods differ by one.

    Raises `InvalidInput` if `name` is none, and without a unit.
    """
    if not unit:
        raise InvalidInput("a survey without periods has one, which is not numbered")
    begin = start(unit, name)
    if unit == "P1Y":
        return begin.year
    if unit == "P1M":
        return 12 * begin.year + begin.month - 1
    return (begin - (_MONDAY if unit == "P1W" else _EPOCH)) // _LONGEST[unit]


def named(unit: str, count: int) -> str | None:
    """Return the period that has a `number`; None beyond the year 9999."""
    try:
        if unit == "P1Y":
            begin = datetime(count, 1, 1, tzinfo=UTC)
        elif unit == "P1M":
            begin = datetime(count // 12, count % 12 + 1, 1, tzinfo=UTC)
        else:
            begin = (_MONDAY if unit == "P1W" else _EPOCH) + count * _LONGEST[unit]
        return label(unit, begin)
    except (OverflowError, ValueError):
        return None


def end(unit: str, name: str) -> datetime:
    """Return when the period `name` of `unit` ends: the first moment that is not in it.

    The one period of a survey without a unit, and one at the end of time, end at `datetime.max`.
    Raises `InvalidInput` if `name` is none.
    """
    begin = start(unit, name)
    if not unit:
        return datetime.max.replace(tzinfo=UTC)
    try:
        # The length of the unit's longest period after this beginning: a moment of the next period.
        return start(unit, label(unit, begin + _LONGEST[unit]))
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
