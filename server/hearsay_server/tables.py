"""Read what an operator declares: a file of TOML tables into the messages that are frozen."""

import math
import re
import tomllib
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from ldp import InvalidInput


def read(file: Path) -> str:
    """Return a file's text; raise `InvalidInput` where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {file}: {error}") from None


def load(text: str, source: str) -> dict[str, Any]:
    """Return a TOML document; raise `InvalidInput` that starts with `source` and has the line."""
    try:
        return tomllib.loads(text, parse_float=_float)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{source}: {error}") from None


def fill(message: Message, table: dict[str, Any], place: str) -> None:
    """Fill a message from a table; raise `InvalidInput` that starts with `place`.

    The schema is the proto's: an unknown key or a value of another type is refused.
    """
    try:
        ParseDict(table, message)
    except ParseError as error:
        reason = str(error).splitlines()[0].rstrip(".")
        if unknown := re.search(r'has no field named "(.*?)"', reason):
            reason = f"unknown key {unknown[1]!r}"
        raise InvalidInput(f"{place}: {reason}") from None


def _float(literal: str) -> float | str:
    """Spell nan and the infinities as the JSON mapping does, so that a check can refuse them."""
    number = float(literal)
    if math.isnan(number):
        return "NaN"
    return number if math.isfinite(number) else "Infinity" if number > 0 else "-Infinity"
