"""What an analyst should know of a column's cells, besides what they are taken for: notes on cells
that a program wrote in its own way, or that people wrote in several."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hearsay import tables

_SHOWN = 5
"""Values that are listed in a sentence."""

_ABSENT = {
    *("na", "n/a", "n.a.", "nan", "null", "none", "nil", "missing", "#n/a", "#null!", "#value!"),
    *("-", "--", "?", ".", ".."),
}
"""Cells, in lower case, that programs write where there is no answer."""

_CODES = {
    sign * number
    for width in range(1, 7)
    for number in (int("9" * width), int("8" * width), int("7" * width))
    + ((int("9" * (width - 1) + "8"), int("9" * (width - 1) + "7")) if width > 1 else ())
    for sign in (1, -1)
} | {-1}
"""Numbers that codebooks give to what is no answer: 99, 998, -9 and such."""

_APART = 3
"""How many times as far from other numbers as these from each other a code stands."""

_LONGEST = 1000
"""Characters of the longest value that is compared with others by how people write."""

_NUMBER = re.compile(r"[-+]?(\d+|\d{1,3}([.,' ]\d{3})+)([.,]\d+)?")
"""A number as people write it, without signs of currencies and units."""


def codes(numbers: Mapping[str, float]) -> list[str]:
    """Return the cells that look like codes for "missing": they stand apart from the others.

    A negative code does where no other number is negative; 8 and 9 where others are a whole scale.
    """
    found = [cell for cell, number in numbers.items() if number in _CODES]
    while found:
        others = np.unique([number for cell, number in numbers.items() if cell not in found])
        apart = [cell for cell in found if _is_apart(numbers[cell], others)]
        if len(apart) == len(found):  # but for those that stand next to one that does not
            break
        found = apart
    return found


def _is_apart(number: float, others: NDArray[np.float64]) -> bool:
    if len(others) < 2:
        return False
    if number < 0 <= others[0]:
        return True
    gaps = np.diff(others / 2)  # halves, because a difference may be larger than any float
    far = float(np.abs(others / 2 - number / 2).min())
    if abs(number) < 10:
        return number > 7 and bool((gaps == 0.5).all()) and far > 0.5
    return far >= _APART * float(np.quantile(gaps, 0.9, method="lower"))


def of_codes(numbers: Mapping[str, float]) -> Iterator[str]:
    """Yield a note on cells that look like codes for "missing"."""
    if found := codes(numbers):
        yield (
            f'{listed(found)} may be codes for "missing", as they stand apart from the others: if '
            "they are, make such cells blank and run this again"
        )


def of_absent(values: Iterable[str], numbers: Mapping[str, float]) -> Iterator[str]:
    """Yield a note on texts and codes that stand for no answer, among texts."""
    found = [
        value
        for value in values
        if value.lower() in _ABSENT or numbers.get(value) in _CODES - set(range(-9, 10))
    ]
    if found:
        yield f"among the values: {listed(found)}; remove it where it is no answer"


def of_alike(values: Iterable[str]) -> Iterator[str]:
    """Yield a note on values that look like two spellings of one."""
    groups: dict[str, list[str]] = {}
    for value in values:
        groups.setdefault(_folded(value), []).append(value)
    for group in [group for group in groups.values() if len(group) > 1][:_SHOWN]:
        yield (
            f"{listed(group)} differ by case, blanks or the form of characters alone, and are "
            "different values: write them alike in the table where they are one"
        )


def of_respelled(cells: Iterable[str]) -> Iterator[str]:
    """Yield a note on cells that were read in another form of the same characters."""
    if found := sorted(cells):
        yield (
            f"{listed(found)}: some cells have an accent as a character of its own (not in "
            "Unicode's form NFC), and are read as one value with those that have not"
        )


def as_people_write(values: Iterable[str]) -> list[str]:
    """Return the values that are numbers for people alone: "3,5", "1 200" or "12 %"."""
    return [value for value in values if not _is_float(value) and _is_number(value)]


def listed(values: Sequence[str]) -> str:
    """Return the first values, and how many more there are."""
    shown = ", ".join(map(repr, values[:_SHOWN]))
    more = len(values) - _SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def _folded(value: str) -> str:
    """Return what is left of a value without case, blanks, width and the script of digits.

    A text that is longer than what people write in several ways is left as it is: the time for it
    may grow with its square.
    """
    if len(value) > _LONGEST:
        return value
    text = unicodedata.normalize("NFKC", value).casefold()
    digits = (str(unicodedata.decimal(each, each)) for each in text)
    return unicodedata.normalize("NFKC", "".join("".join(digits).split()))


def _is_number(value: str) -> bool:
    bare = "".join(
        " " if each.isspace() else each
        for each in value
        if each not in "%‰°" and unicodedata.category(each) != "Sc"
    )
    return _NUMBER.fullmatch(bare.strip()) is not None


def _is_float(value: str) -> bool:
    try:
        tables.number(value)
    except ValueError:
        return False
    return True
