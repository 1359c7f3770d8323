"""The order of the periods that a table's column names: numbers by number, dates by date."""

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from ldp import InvalidInput

_WRITE = "write numbers, or dates such as 2025-12-31"

_YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})(?:\2(\d{1,2}))?", re.ASCII)
_YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})", re.ASCII)
_MONTH_AND_YEAR = re.compile(r"(\d{1,2})[-/](\d{4})", re.ASCII)
_WEEK = re.compile(r"(\d{4})-?W(\d{1,2})", re.ASCII)
_QUARTER = re.compile(r"(\d{4})-?Q([1-4])", re.ASCII)

_Key = Any
"""What periods of one kind are sorted by."""


def in_order(names: Sequence[str], rows: Sequence[int], place: str) -> tuple[list[str], list[int]]:
    """Return the periods in order, by the first name that each has, and the place of each row's.

    `names` are the cells of a column, `rows` their numbers in the file, and `place` names both in
    errors. "2024-9" and "2024-09" are one period, as are "1" and "1.0". Raises `InvalidInput` that
    names the cell for one that is blank, and for one that is neither a number nor a date; where
    some are numbers and some dates; and where it cannot be known whether the day or the month
    comes first.
    """
    numbered = dict(zip(reversed(names), reversed(rows), strict=True))  # the first row of each
    kinds = {name: _kind(name, f"{place}, row {numbered[name]}") for name in dict.fromkeys(names)}
    first = next(iter(kinds))
    for name, kind in kinds.items():
        if kind != kinds[first]:
            raise InvalidInput(
                f"{place}: {first!r} (row {numbered[first]}) is {kinds[first]} and {name!r} (row "
                f"{numbered[name]}) is {kind}, so that they have no order: write all alike"
            )
    key = _keys(kinds[first], list(kinds), place)
    keys: dict[str, _Key] = {}
    for name in kinds:
        try:
            keys[name] = key(name)
        except ValueError:
            raise InvalidInput(
                f"{place}, row {numbered[name]}: there is no date {name!r}: {_WRITE}"
            ) from None
    places = {each: at for at, each in enumerate(sorted(set(keys.values())))}
    called: dict[int, str] = {}
    for name in kinds:
        called.setdefault(places[keys[name]], name)
    return [called[at] for at in range(len(called))], [places[keys[name]] for name in names]


def _kind(name: str, where: str) -> str:
    """Return what a name is, in words; raise `InvalidInput` for one without an order."""
    if not name:
        raise InvalidInput(
            f"{where}: the period is blank: {_WRITE}, or leave out the row of somebody who never "
            "answered"
        )
    if _number(name) is not None:
        return "a number"
    if found := _YEAR_FIRST.fullmatch(name):
        return "a date" if found[4] else "a month"
    for form, kind in (
        (_MONTH_AND_YEAR, "a month"),
        (_WEEK, "a week"),
        (_QUARTER, "a quarter"),
        (_YEAR_LAST, "a date that ends with the year"),
    ):
        if form.fullmatch(name):
            return kind
    try:
        moment = datetime.fromisoformat(name)
    except ValueError:
        raise InvalidInput(f"{where}: {name!r} is neither a number nor a date: {_WRITE}") from None
    return "a time" if moment.tzinfo is None else "a time with its zone"


def _number(name: str) -> Decimal | None:
    try:
        found = Decimal(name.replace("_", " "))  # which only Python reads between digits
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _keys(kind: str, names: Sequence[str], place: str) -> Callable[[str], _Key]:
    """Return what periods of a kind are sorted by; the function raises `ValueError` for no date."""
    if kind == "a number":
        _check_decimals(names, place)
        return Decimal
    if kind == "a date that ends with the year":
        return _day_first if _is_day_first(names, place) else _month_first
    return {
        "a date": lambda name: date(*map(int, re.split("[-/.]", name))),
        "a month": _month,
        "a week": _week,
        "a quarter": lambda name: tuple(map(int, re.split("-?Q", name))),
    }.get(kind, datetime.fromisoformat)


def _check_decimals(names: Sequence[str], place: str) -> None:
    """Refuse numbers such as 2024.9 beside 2024.10, which comes first as a number alone."""
    parts = {name: name.partition(".")[2] for name in names if name.partition(".")[2].strip("0")}
    odd = next((name for name, digits in parts.items() if digits.endswith("0")), None)
    other = next((name for name in parts if odd and len(parts[name]) != len(parts[odd])), None)
    if odd and other:
        raise InvalidInput(
            f"{place}: {odd!r} beside {other!r} may be numbers, or parts with a point between, "
            "which have another order: write a whole number for each period, or dates such as "
            "2025-12-31"
        )


def _is_day_first(names: Sequence[str], place: str) -> bool:
    """Whether dates such as 31/12/2025 begin with the day; raise `InvalidInput` if none says."""
    split = {name: re.split("[-/.]", name) for name in names}
    days = [name for name, (first, _, _) in split.items() if int(first) > 12]
    months = [name for name, (_, second, _) in split.items() if int(second) > 12]
    if days and months:
        raise InvalidInput(
            f"{place}: {days[0]!r} begins with the day and {months[0]!r} with the month: {_WRITE}"
        )
    if not days and not months:
        raise InvalidInput(
            f"{place}: whether {names[0]!r} begins with the day or with the month is not to be "
            f"seen from the column: {_WRITE}"
        )
    return bool(days)


def _month(name: str) -> _Key:
    first, second = map(int, re.split("[-/.]", name))
    return date(first, second, 1) if first > 99 else date(second, first, 1)


def _week(name: str) -> _Key:
    year, week = map(int, re.split("-?W", name))
    return date.fromisocalendar(year, week, 1)


def _day_first(name: str) -> _Key:
    day, month, year = map(int, re.split("[-/.]", name))
    return date(year, month, day)


def _month_first(name: str) -> _Key:
    month, day, year = map(int, re.split("[-/.]", name))
    return date(year, month, day)
