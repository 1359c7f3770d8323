"""A survey guessed from a table of people's answers: `hearsay survey init`.

What is guessed stands in the file with its reason. Numbers of people do not: `noted` has them.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hearsay import tables
from hearsay.plans.kinds import Categorical, Numeric, Ratings, SetOf
from hearsay.plans.texts import check_text
from hearsay_server.surveys import noticing
from hearsay_server.surveys.noticing import listed as listed
from hearsay_server.surveys.people import People, parts
from ldp import InvalidInput
from ldp.mechanisms.numbers.mean import MAX_POINTS

RARE = 20
"""Rows below which a value is rare: that it is listed tells that one of few people has it."""

MOST_VALUES = 100
"""The most values of a text that is taken for a choice, as of a set."""

_FEW = 10
"""Values up to which a text is a choice whatever the number of rows."""

_ROWS_A_VALUE = 5
"""Rows for each value, on average, from which a text of more values is a choice."""

_MOST_OF_A_RATING = 10
"""The greatest rating of a scale that begins at 0 or 1."""

_UNIQUE = 5
"""Rows from which a column whose cells all differ is taken for an identifier."""

_NUMBERS = 0.95
"""The part of the cells that are numbers from which the column is one."""

_SOME_NUMBERS = 1 / 3
"""The part from which a column that is none is said to have numbers."""

_CODE = re.compile(r"[-+]?0\d")
"""How cells begin that are no numbers, such as postcodes."""

_TAIL = 0.005
"""The part of the rows at each end of a number that the proposed range may clamp."""

_SHOWN = 5
"""Columns that an error lists."""

_DATE = re.compile(
    r"\d{4}-\d{1,2}(-\d{1,2})?([T ]\d{1,2}:\d{2}.*)?|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}( .*)?"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?|\d{4}/\d{1,2}/\d{1,2}.*"
)
_RATED = re.compile(r"[^=;]+=\s*-?\d+(\.\d+)?")
_WORD = re.compile(r"[a-z]{1,12}", re.IGNORECASE)
_SPOKEN_OF_NOBODY = {"id", "uuid", "guid", "rownames", "index", "email", "e_mail", "phone"}
"""Names of columns that number or name people."""


@dataclass(frozen=True)
class Guess:
    """What a column is taken for: the `kind` of its question, "" where it is left out.

    `keys` are those of the domain's table. `why` says so in words that may stand in the file, and
    `noted` what the analyst should know besides, with numbers of rows. `rare` are values that are
    listed and have fewer than `RARE` rows, and `blanks` is the number of empty cells.
    """

    kind: str
    why: str
    keys: dict[str, object] = field(default_factory=dict)
    noted: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    blanks: int = 0
    name: str = ""
    heading: str = ""


@dataclass(frozen=True)
class Draft:
    """A survey guessed from a table."""

    name: str
    source: str
    rows: int
    guesses: tuple[Guess, ...]

    @property
    def asked(self) -> list[Guess]:
        """The columns that are questions."""
        return [guess for guess in self.guesses if guess.kind]

    @property
    def left_out(self) -> list[Guess]:
        """The columns that are not."""
        return [guess for guess in self.guesses if not guess.kind]


def guess(people: People, name: str) -> Draft:
    """Guess a survey of that name from a table.

    Raises `InvalidInput` where no column can be a question.
    """
    guesses = tuple(_column(column, people, cells) for column, cells in people.columns.items())
    draft = Draft(name, people.source, len(people), guesses)
    if not draft.asked:
        reasons = "; ".join(f"{each.heading or each.name}: {each.why}" for each in guesses[:_SHOWN])
        raise InvalidInput(f"{people.source} has no column that can be a question: {reasons}")
    return draft


def _column(name: str, people: People, cells: Sequence[str]) -> Guess:
    """Guess one column: the first kind that takes it."""
    heading, rows = people.headings[name], people.rows
    given = [cell.strip() for cell in cells if cell.strip()]
    blanks = len(cells) - len(given)

    def left_out(why: str) -> Guess:
        return Guess("", why, name=name, heading=heading)

    if not given:
        return left_out("all cells are blank")
    counts = Counter(given)
    if len(counts) == 1:
        return left_out("all rows have the same value")
    try:
        check_text("title", heading)
    except InvalidInput as error:
        return left_out(str(error))
    if _part(counts, _DATE.fullmatch) >= _NUMBERS:
        return left_out(
            "dates or times: an answer is of the survey's period already; ask for a year or for "
            "minutes as a number"
        )
    numbers = _numbers(counts)
    found = (
        _identifier(name, counts, numbers)
        or _several(counts)
        or _number(counts, numbers)
        or _choice(counts, rows, cells)
    )
    if isinstance(found, Guess):
        found = _refused_by_its_domain(found) or found
    if isinstance(found, str):
        return left_out(found)
    noted = (*found.noted, *noticing.of_respelled(people.respelled[name]))
    return replace(found, name=name, heading=heading, blanks=blanks, noted=noted)


def _refused_by_its_domain(guess: Guess) -> str:
    """Return why no survey can ask this; "" where one can."""
    keys: dict[str, Any] = dict(guess.keys)
    at_most, clamp = keys.get("at_most", 0), keys.get("clamp", False)
    try:
        match guess.kind:
            case "numeric":
                Numeric(keys["low"], keys["high"], clamp, keys.get("step", 0.0))
            case "set":
                SetOf(tuple(keys["values"]), at_most, clamp)
            case "ratings":
                Ratings(tuple(keys["keys"]), keys["low"], keys["high"], at_most, clamp)
            case _:
                Categorical(tuple(keys["values"]))
    except InvalidInput as error:
        return str(error)
    return ""


def _part(counts: Counter[str], test: Callable[[str], object]) -> float:
    """Return the part of the rows whose cell passes a test."""
    return sum(n for cell, n in counts.items() if test(cell)) / counts.total()


def _numbers(counts: Counter[str]) -> dict[str, float]:
    """Return the cells that are finite numbers; digits after a leading zero are a code."""
    found = {}
    for cell in counts:
        if _CODE.match(cell):
            continue
        try:
            number = tables.number(cell)
        except ValueError:
            continue
        if math.isfinite(number):
            found[cell] = number
    return found


def _identifier(name: str, counts: Counter[str], numbers: dict[str, float]) -> str | None:
    rows = counts.total()
    measured = any(not number.is_integer() for number in numbers.values())
    if len(counts) == rows and rows >= _UNIQUE and not measured:
        written = noticing.as_people_write(counts)
        if len(written) > _SOME_NUMBERS * rows:
            return _in_figures(written)
        return "an identifier or free text: all rows differ"
    named = name in _SPOKEN_OF_NOBODY or name.endswith("_id")
    if named and len(counts) > _FEW:
        return "an identifier, by its name"
    if _part(counts, lambda cell: re.fullmatch(r"[^@\s]+@[^@\s]+\.\w+", cell)) > 0.5:
        return "addresses of e-mail"
    return None


def _several(counts: Counter[str]) -> Guess | str | None:
    """Guess a set or ratings, whose cells hold several parts between semicolons."""
    if not any(";" in cell for cell in counts):
        return None
    split = {cell: parts(cell) for cell in counts}
    if all(_RATED.fullmatch(part) for each in split.values() for part in each):
        return _ratings(counts, split)
    items = Counter[str]()
    for cell, each in split.items():
        for item in set(each):
            items[item] += counts[cell]
    if not 2 <= len(items) <= MOST_VALUES:
        return f"text with semicolons: {len(items):,} different parts, too many for a set"
    if reason := _refused(items):
        return reason
    most = max(len(set(each)) for each in split.values())
    why = "a set: semicolons separate items"
    keys: dict[str, object] = {"values": _in_order(items)}
    if most < len(items):
        why += f"; nobody has more than {most}, and fewer make smaller errors"
        keys |= {"at_most": most, "clamp": True}
    return Guess("set", why, keys, tuple(noticing.of_alike(items)), _rare(items))


def _ratings(counts: Counter[str], split: dict[str, list[str]]) -> Guess | str:
    rated = Counter[str]()
    found: list[float] = []
    for cell, each in split.items():
        for part in each:
            key, _, rating = part.rpartition("=")
            rated[key.strip()] += counts[cell]
            found.append(float(rating))
    low, high = min(found), max(found)
    if low == high:
        return "all ratings are the same"
    if reason := _refused(rated):
        return reason
    most = max(map(len, split.values()))
    keys: dict[str, object] = {"keys": _in_order(rated), "low": low, "high": high}
    if most < len(rated):
        keys |= {"at_most": most, "clamp": True}
    why = f"ratings: cells are as key=number, from {low:g} to {high:g}; check the ends of the scale"
    codes = noticing.of_codes({f"{rating:g}": rating for rating in found})
    return Guess("ratings", why, keys, (*noticing.of_alike(rated), *codes), _rare(rated))


def _number(counts: Counter[str], numbers: dict[str, float]) -> Guess | str | None:
    """Guess a number; None for what is none, and for codes of two whole numbers."""
    if _part(counts, numbers.__contains__) < _NUMBERS or len(set(numbers.values())) < 3:
        return None
    low, high = min(numbers.values()), max(numbers.values())
    if low in (0, 1) and high <= _MOST_OF_A_RATING and len(numbers) == len(counts):
        if all(cell == str(int(number)) for cell, number in numbers.items()):
            return _rating(counts, numbers, int(low), int(high))
        if all(map(str.isdecimal, numbers)):
            return _rating_of_another_script(counts, numbers)
    values, weights = zip(*((v, counts[cell]) for cell, v in numbers.items()), strict=True)
    order = np.argsort(values)
    placed = np.cumsum(np.array(weights)[order]) / sum(weights)
    ends = np.array(values)[order][np.searchsorted(placed, [_TAIL, 1 - _TAIL])]
    first, last = ends if ends[0] < ends[1] else (low, high)
    whole = all(number.is_integer() for number in numbers.values())
    try:
        first, last = _outward(float(first), float(last), whole)
    except (ValueError, ArithmeticError):  # the largest and the smallest of floats
        return (
            f"numbers from {low:g} to {high:g}, which no rounded range holds: make what is no "
            "answer blank, or write the numbers in another unit"
        )
    keys: dict[str, object] = {"low": first, "high": last, "clamp": True}
    why = "a number: the range is rounded, and nearly everybody lies in it"
    if whole and last - first < MAX_POINTS:
        keys["step"] = 1
        why = "whole " + why.removeprefix("a ").replace("number:", "numbers:")
    noted = list(noticing.of_codes(numbers))
    outside = sum(n for cell, n in counts.items() if _is_outside(numbers.get(cell), first, last))
    if outside:
        noted.append(
            f"{outside:,} of {counts.total():,} rows lie outside {first:g} to {last:g} (the data "
            f"go from {low:g} to {high:g}) and count as the nearer end"
        )
    if whole and (decimals := [cell for cell in numbers if _is_decimal(cell)]):
        noted.append(
            f"whole numbers such as {decimals[0]!r}: to ask for them as values, write them without "
            "the decimal point first"
        )
    if strays := [cell for cell in counts if cell not in numbers]:
        noted.append(f"no numbers, so withheld: {listed(strays)}")
    return Guess("numeric", why, keys, tuple(noted))


def _rating(counts: Counter[str], numbers: dict[str, float], low: int, high: int) -> Guess:
    values = [str(number) for number in range(low, high + 1)]
    why = (
        f"a rating or a code: whole numbers, {low} to {high}, all of the scale listed; for the "
        "mean of a long scale ask for a number"
    )
    noted = tuple(noticing.of_codes(numbers))
    return Guess("categorical", why, {"values": values}, noted, _rare(counts))


def _rating_of_another_script(counts: Counter[str], numbers: dict[str, float]) -> Guess:
    values = _in_order(counts)
    why = "a rating or a code in digits of another script: the values are as in the cells"
    app = (
        f"an app that records the number {numbers[values[0]]:.0f} gives another value than the "
        f"text {values[0]!r}: write the digits as your app does"
    )
    noted = (app, *noticing.of_alike(values), *noticing.of_codes(numbers))
    return Guess("categorical", why, {"values": values}, noted, _rare(counts))


def _is_outside(number: float | None, low: float, high: float) -> bool:
    return number is not None and not low <= number <= high


def _outward(low: float, high: float, whole: bool) -> tuple[float, float]:
    """Return a range that has the other one, with round ends: the data's own may be people's."""
    unit = 10.0 ** math.floor(math.log10((high - low) / 2))
    unit = next(u for u in (unit / 2, unit, 2 * unit, 5 * unit) if (high - low) / u <= 20)
    if whole:
        unit = max(1.0, unit)
    # Multiples of a power of ten's part: rounded to the digits that they have.
    digits = max(0, 1 - math.floor(math.log10(unit)))
    first = round(math.floor(low / unit) * unit, digits)
    last = round(math.ceil(high / unit) * unit, digits)
    return first, last


def _choice(counts: Counter[str], rows: Sequence[int], cells: Sequence[str]) -> Guess | str:
    """Guess a choice among values, or free text."""
    most = max(_FEW, min(MOST_VALUES, counts.total() // _ROWS_A_VALUE))
    written = noticing.as_people_write(counts)
    if len(counts) > most:
        if _part(counts, _WORD.fullmatch) == 1:
            return (
                f"words, more than {most:,} different ones: ask for them as strings, which find "
                "the frequent words without a list"
            )
        numbers = _numbers(counts)
        if written and _part(counts, {*numbers, *written}.__contains__) > _SOME_NUMBERS:
            return _in_figures(written)
        if _part(counts, numbers.__contains__) > _SOME_NUMBERS:
            other = next(cell for cell, _ in counts.most_common() if cell not in numbers)
            return (
                f"numbers and other cells: {counts[other]:,} rows have {other!r}; make what is no "
                "number blank to ask for a number"
            )
        return f"free text: more than {most:,} different values, with few rows each"
    if reason := _refused(counts):
        if reason == _refused(written):
            return _in_figures(written)
        row = next(r for r, cell in zip(rows, cells, strict=True) if _refused([cell.strip()]))
        return f"row {row}: {reason}"
    noted = [*noticing.of_absent(counts, _numbers(counts)), *noticing.of_alike(counts)]
    if written:
        noted.append(_in_figures(written))
    if spelled := [value for value in counts if _is_decimal(value)]:
        noted.append(
            f"values such as {spelled[0]!r} are texts: an app that records {float(spelled[0]):.0f} "
            "gives another value; write the data without the decimal point"
        )
    keys: dict[str, object] = {"values": _in_order(counts)}
    why = "a choice: few different values"
    return Guess("categorical", why, keys, tuple(noted), _rare(counts))


def _in_figures(values: Sequence[str]) -> str:
    """Say that numbers are not written as numbers are read."""
    return (
        f"numbers such as {listed(values)} are texts: to ask for a number, write it with a decimal "
        "point, as 3.5, and without signs and separators"
    )


def _is_decimal(value: str) -> bool:
    """Whether a text is a whole number that is written with a decimal point."""
    return bool(re.fullmatch(r"-?\d{1,15}\.0*", value))


def _refused(values: Sequence[str] | Counter[str]) -> str:
    """Return why a survey cannot have a value; "" where it can have all."""
    for value in values:
        try:
            check_text("a value", value)
        except InvalidInput as error:
            return str(error)
    return ""


def _rare(counts: Counter[str]) -> tuple[str, ...]:
    return tuple(value for value, n in counts.items() if n < RARE)


def _in_order(values: Sequence[str] | Counter[str]) -> list[str]:
    """Return values by number or else by the alphabet: their order tells nothing of the rows."""

    def key(value: str) -> tuple[float, str]:
        try:
            number = tables.number(value)
        except ValueError:
            number = math.inf
        return (number if not math.isnan(number) else math.inf, value)

    return sorted(values, key=key)
