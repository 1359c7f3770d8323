"""Read what an operator declares: a file of TOML tables into the messages that are frozen."""

import json
import re
import tomllib
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ldp import InvalidInput

_Field = Any
"""A field's descriptor: of a class that depends on protobuf's implementation."""

_NUMBER, _WHOLE = FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_UINT32
_TYPES = {
    _NUMBER: (int | float, "a number"),
    _WHOLE: (int, "a whole number"),
    FieldDescriptor.CPPTYPE_UINT64: (int, "a whole number"),
    FieldDescriptor.CPPTYPE_BOOL: (bool, "true or false"),
    FieldDescriptor.CPPTYPE_STRING: (str, "a text in quotes"),
}
"""What a key's value is in TOML, by the type of the message's field."""

_END_OF_LINE = re.compile("\r\n?")

_HEX = re.compile("(?:[0-9a-fA-F]{2})*")

_MOST = 2**32 - 1
_SHOWN = 60
"""Characters of a value that an error shows."""


def load(text: str, source: str) -> dict[str, Any]:
    """Return a TOML document; raise `InvalidInput` that starts with `source` and has the line.

    A mark of the encoding at the beginning is no part of it, and lines end as on any system.
    """
    try:
        return tomllib.loads(_END_OF_LINE.sub("\n", text.lstrip("\ufeff")))
    except ValueError as error:  # also of a number of too many digits
        raise InvalidInput(f"{source}: {error}") from None


def fill(message: Message, table: dict[str, Any], place: str) -> None:
    """Fill an empty message from a table; raise `InvalidInput` that starts with `place`.

    The schema is the proto's: an unknown key and a value of another type are refused, with what
    was given and what is expected. A number in quotes is a text, and no number.
    """
    _fill(message, table, place, "")


def _fill(message: Message, table: dict[str, Any], place: str, path: str) -> None:
    message.SetInParent()  # an empty table is one, too
    for key, value in table.items():
        field = message.DESCRIPTOR.fields_by_name.get(key)
        if field is None:
            inside = f" in {path.removesuffix('.')}" if path else ""
            raise InvalidInput(f"{place}: unknown key {key!r}{inside}")
        spot = f"{path}{key}"
        _check_alone(message, field, place)
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            _fill_map(getattr(message, key), kind.fields_by_name["value"], value, place, spot)
        elif field.is_repeated:
            _fill_list(getattr(message, key), field, value, place, spot)
        elif kind is not None:
            _fill(getattr(message, key), _table(value, place, spot), place, f"{spot}.")
        else:
            setattr(message, key, _value(field, value, place, spot))


def _check_alone(message: Message, field: _Field, place: str) -> None:
    """Refuse a table beside another one that excludes it."""
    choice = field.containing_oneof
    if choice is not None and (other := message.WhichOneof(choice.name)) is not None:
        names = ", ".join(each.name for each in choice.fields)
        raise InvalidInput(f"{place}: expected one of {names}, got {other} and {field.name}")


def _fill_map(filled: Any, field: _Field, value: Any, place: str, spot: str) -> None:
    for key, each in _table(value, place, spot).items():
        inner = f"{spot}.{key}"
        if field.message_type is None:
            filled[key] = _value(field, each, place, inner)
        else:
            _fill(filled[key], _table(each, place, inner), place, f"{inner}.")


def _fill_list(filled: Any, field: _Field, value: Any, place: str, spot: str) -> None:
    if not isinstance(value, list):
        raise InvalidInput(f"{place}: {spot} must be a list, got {_given(value)}")
    for number, each in enumerate(value):
        inner = f"{spot}[{number}]"
        if field.message_type is None:
            filled.append(_value(field, each, place, inner))
        else:
            _fill(filled.add(), _table(each, place, inner), place, f"{inner}.")


def _table(value: Any, place: str, spot: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{place}: {spot} must be a table, got {_given(value)}")
    return value


def _value(field: _Field, value: Any, place: str, spot: str) -> Any:
    """Return a value that its field takes."""
    kind, expected = _TYPES[field.cpp_type]
    if field.type == FieldDescriptor.TYPE_BYTES:
        if isinstance(value, str) and _HEX.fullmatch(value):
            return bytes.fromhex(value)
        raise InvalidInput(
            f"{place}: {spot} must be hexadecimal digits in quotes, got {_given(value)}"
        )
    known = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if known and field.cpp_type == _WHOLE and not 0 <= value <= _MOST:
        known, expected = False, f"a whole number from 0 to {_MOST:,}"
    if known and field.cpp_type == _NUMBER:
        try:
            return float(value)
        except OverflowError:
            known, expected = False, "a number that a float can hold"
    if not known:
        raise InvalidInput(f"{place}: {spot} must be {expected}, got {_given(value)}")
    return value


def _given(value: Any) -> str:
    """Return a value as it is written in TOML; of a table and a list their kind alone."""
    match value:
        case dict():
            return "a table"
        case list():
            return "a list"
        case str() | bool():
            written = json.dumps(value, ensure_ascii=False)
        case int() if value.bit_length() > 64:
            return f"a number of {value.bit_length():,} bits"
        case _:
            written = str(value)
    return written if len(written) <= _SHOWN else f"{written[:_SHOWN]}..."
