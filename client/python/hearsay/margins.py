"""Known shares of the population, by public properties, which answers are weighted to."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path

from hearsay.v1 import analyst_pb2
from ldp.errors import InvalidInput

Names = str | tuple[str, ...]
"""One name or value, or a tuple of several."""

Margins = Mapping[Names, Mapping[Names, float]]
"""Margins by the property that they are of, or by a tuple of several; each has the share of the
population by value, or by a tuple of values: {"platform": {"ios": 0.3, "android": 0.7}}. A series
of pandas is such a mapping."""

_SHARE, _COUNT = "share", "count"


def messages(margins: Margins) -> list[analyst_pb2.Margin]:
    """Return margins as a request has them; raise `InvalidInput` for what is not one."""
    if not isinstance(margins, Mapping):
        raise InvalidInput(
            "margins are a mapping of a property, or a tuple of several, to the share of each "
            f"value, got {margins!r}"
        )
    found = []
    for names, shares in margins.items():
        properties = _several(names, "a margin's properties")
        what = f"the margin of {names!r}"
        if not hasattr(shares, "items"):
            raise InvalidInput(f"{what} must have a share by value, got {shares!r}")
        margin = analyst_pb2.Margin(properties=properties)
        for values, share in shares.items():
            own = _several(values, f"the values of a row of {what}")
            number = isinstance(share, Real) and not isinstance(share, bool)
            if not (number and math.isfinite(share) and share >= 0):
                raise InvalidInput(
                    f"{what} must have shares that are numbers >= 0, got {share!r} for {values!r}"
                )
            margin.rows.add(values=own, share=float(share))
        found.append(margin)
    return found


def read_margins(files: Sequence[Path | str]) -> Margins:
    """Read margins from CSV files, one from each.

    The columns are one property or several, whose combinations the rows are, and last "share", of
    the population, or "count", of its people, which is divided by the sum. An empty value stands
    for respondents whose app gave none. Raises `InvalidInput` for a file that cannot be read,
    another heading, a row of another length, what is no number, and a margin that two files have.
    """
    return parsed_margins([(str(file), _text(Path(file))) for file in files])


def parsed_margins(named: Sequence[tuple[str, str]]) -> Margins:
    """Return the margins of CSV texts, each after its name in errors; raise as `read_margins`."""
    found: dict[Names, Mapping[Names, float]] = {}
    for file, text in named:
        names, shares = _parsed(file, text)
        if names in found:
            raise InvalidInput(f"{file}: another file has the margin of {', '.join(names)} already")
        found[names] = shares
    return found


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read as CSV: {error}") from None


def _parsed(file: str, text: str) -> tuple[tuple[str, ...], Mapping[Names, float]]:
    try:
        lines_of = csv.reader(io.StringIO(text, newline=""))
        heading, *lines = [line for line in lines_of if line] or [[]]
    except csv.Error as error:
        raise InvalidInput(f"{file} cannot be read as CSV: {error}") from None
    names, kind = tuple(heading[:-1]), heading[-1] if heading else ""
    if not names or kind not in (_SHARE, _COUNT):
        raise InvalidInput(
            f'{file}: the heading must be properties and then "{_SHARE}" or "{_COUNT}", such as '
            f"platform,{_SHARE}; got {','.join(heading) or 'nothing'}"
        )
    shares: dict[Names, float] = {}
    for number, line in enumerate(lines, 2):
        values = tuple(line[:-1])
        if len(line) != len(heading):
            raise InvalidInput(f"{file}, row {number}: expected {len(heading)} fields, got {line}")
        if values in shares:
            raise InvalidInput(f"{file}, row {number}: {', '.join(values)} is there twice")
        try:
            shares[values] = float(line[-1])
        except ValueError:
            raise InvalidInput(f"{file}, row {number}: {line[-1]!r} is no {kind}") from None
    if kind == _COUNT:
        total = sum(shares.values())
        if not 0 < total < float("inf"):
            raise InvalidInput(f"{file}: the counts must have a positive sum, got {total:g}")
        shares = {values: number / total for values, number in shares.items()}
    return names, shares


def _several(names: object, what: str) -> tuple[str, ...]:
    several = names if isinstance(names, tuple) else (names,)
    if not all(isinstance(name, str) for name in several):
        raise InvalidInput(f"{what} must be a string, or a tuple of strings, got {names!r}")
    return several
