"""CSV as all commands and pages write it: a spreadsheet that opens it runs none of its cells."""

import csv
import io
import re
import sys
from collections.abc import Iterable, Sequence
from typing import IO

from hearsay.plain import plain

_NUMBER = r"[+-]?(?:[0-9][0-9.,]*(?:[eE][+-]?[0-9]+)?|inf|nan)"
_NUMBERS = re.compile(f"{_NUMBER}(?: to (?:under )?{_NUMBER})?")
"""A number, or a range of numbers in words, which no spreadsheet takes for a formula."""

_RUN = re.compile("'*[=+@\\t\\r\\n\uff0b\uff0d\uff1d\uff20-]")
"""The beginning of a text that a spreadsheet may take for a formula, after any apostrophes."""


def cell(value: object) -> object:
    """Return what stands in a cell for a value: a text that could be run begins with an apostrophe.

    Numbers stay as they are, and so do texts that are numbers, and the hyphen that stands for none.
    A text that has apostrophes before such a beginning gets one more, so that whoever takes one
    away has the text as it was.
    """
    if not isinstance(value, str) or value == "-" or _NUMBERS.fullmatch(value):
        return value
    return f"'{plain(value)}" if _RUN.match(value) else plain(value)


def write(to: IO[str], rows: Iterable[Sequence[object]], ending: str = "\r\n") -> None:
    """Write rows of CSV, each value as `cell` has it."""
    csv.writer(to, lineterminator=ending).writerows(map(cell, row) for row in rows)


def say(text: str) -> None:
    """Print CSV that somebody else wrote, as `write` writes it."""
    write(sys.stdout, csv.reader(io.StringIO(text, newline="")))


def rewritten(text: str) -> str:
    """Return CSV that somebody else wrote, such as pandas, as `write` writes it."""
    written = io.StringIO(newline="")
    write(written, csv.reader(io.StringIO(text, newline="")))
    return written.getvalue()
