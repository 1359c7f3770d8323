"""Every field of a server's answer, by itself: words that can be printed, numbers that can be."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from hearsay.plain import is_plain
from ldp.errors import InvalidInput

_LONGEST = 1 << 16
"""Characters of a text."""

_LAST_SECOND = 253_402_300_799
"""The last second of the year 9999, since 1970."""

_TIMES = (0.0, float(_LAST_SECOND))
_RANGES = {
    "closed": _TIMES,
    "created": _TIMES,
    "deadline": _TIMES,
    "last_asked": _TIMES,
    "opened": _TIMES,
    "epsilon": (0.0, math.inf),
}
"""By name of a field, which means the same in all messages: its least and its greatest number."""

_Check = Callable[[Any, str], None]


def check_fields(message: Message) -> None:
    """Raise `InvalidInput`, naming the field, for what no answer of an honest server has.

    Texts are as `plans.texts` has those of a survey: they can be seen. Numbers are finite, and
    within the range that a field of the name can have.
    """
    for name, many, optional, check in _checks(message.DESCRIPTOR):
        if many:
            for value in getattr(message, name):
                check(value, name)
        elif not optional or message.HasField(name):
            check(getattr(message, name), name)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


@lru_cache(maxsize=128)
def _checks(descriptor: Descriptor) -> list[tuple[str, bool, bool, _Check]]:
    """Return the fields of a message that need a check: of each its name, whether it is repeated,
    whether it may be unset, and the check."""
    found: list[tuple[str, bool, bool, _Check]] = []
    for field in descriptor.fields:
        check: _Check | None = None
        if _is_map(field):
            check = _check_text  # of its keys, which iterating yields
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            check = _check_message
        elif field.type == FieldDescriptor.TYPE_STRING:
            check = _check_text
        elif field.type == FieldDescriptor.TYPE_ENUM:
            check = _check_enum(field)
        elif field.type == FieldDescriptor.TYPE_DOUBLE or field.name in _RANGES:
            check = _check_number
        if check is not None:
            found.append((field.name, bool(field.is_repeated), bool(field.has_presence), check))
    return found


def _check_message(message: Message, _: str) -> None:
    check_fields(message)


def _check_text(text: str, name: str) -> None:
    if not is_plain(text):
        raise InvalidInput(f"{name}: {text[:80]!r} has characters that cannot be seen")
    if len(text) > _LONGEST:
        raise InvalidInput(f"{name}: a text of {len(text):,} characters")


def _check_enum(field: FieldDescriptor) -> _Check:
    kind = field.enum_type
    assert kind is not None  # as the field's type says
    known, of = frozenset(kind.values_by_number), kind.name

    def check(number: int, name: str) -> None:
        if number not in known:
            raise InvalidInput(f"{name}: {number} is none of {of}")

    return check


def _check_number(number: float, name: str) -> None:
    least, most = _RANGES.get(name, (-math.inf, math.inf))
    if not least <= number <= most or math.isinf(number):
        raise InvalidInput(f"{name}: {number} is no number that it can have")
