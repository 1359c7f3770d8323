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
"""Characters of a text, unless it is the label of a row: those of sums name all their values."""

_LAST_SECOND = 253_402_300_799
"""The last second of the year 9999, since 1970."""

_AT_LEAST_0 = (0.0, math.inf)
_SHARE = (0.0, 1.0)
_RANGES = {
    "adjusted_p_value": _SHARE,
    "any_p_value": _SHARE,
    "homogeneity": _SHARE,
    "p_value": _SHARE,
    "closed": (0, _LAST_SECOND),
    "created": (0, _LAST_SECOND),
    "deadline": (0, _LAST_SECOND),
    "last_asked": (0, _LAST_SECOND),
    "opened": (0, _LAST_SECOND),
    "alike_standard_error": _AT_LEAST_0,
    "design_effect": _AT_LEAST_0,
    "detectable": _AT_LEAST_0,
    "detectable_difference": _AT_LEAST_0,
    "effective_sample_size": _AT_LEAST_0,
    "epsilon": _AT_LEAST_0,
    "findable": _AT_LEAST_0,
    "noncentrality": _AT_LEAST_0,
    "repeats": _AT_LEAST_0,
    "share_standard_error": _AT_LEAST_0,
    "smallest_weight": _AT_LEAST_0,
    "standard_error": _AT_LEAST_0,
    "unweighted_standard_error": _AT_LEAST_0,
}
"""By name of a field, which means the same in all messages: its least and its greatest number."""

_ENDLESS = {"effective_sample_size", "findable"}
"""Numbers that may be infinite: of an estimate without error, and of words that nobody can find."""

_UNKNOWN = {"estimate", "standard_error", "first", "second", "difference", "mix"}
"""Numbers that are nan where the reports tell nothing: of some answers alone (`may_be_nan`)."""

_INTERVALS = (("low", "high"), ("alike_low", "alike_high"), ("share_low", "share_high"))

_Check = Callable[[Any, str], None]


def check_fields(message: Message) -> None:
    """Raise `InvalidInput`, naming the field, for what no answer of an honest server has.

    Texts are as `plans.texts` has those of a survey: they can be seen. Numbers are finite, and
    within the range that a field of the name can have; an interval does not end before it begins.
    Whether a number may be nan depends on the question (`answers.check_known`).
    """
    checks, intervals = _checks(message.DESCRIPTOR)
    for name, many, optional, check in checks:
        if many:
            for value in getattr(message, name):
                check(value, name)
        elif not optional or message.HasField(name):
            check(getattr(message, name), name)
    for low, high in intervals:
        ends = getattr(message, low), getattr(message, high)
        if not ends[0] <= ends[1]:
            kind = message.DESCRIPTOR.name
            raise InvalidInput(f"{kind}: an interval from {ends[0]} to {ends[1]}")


def check_known(message: Message) -> None:
    """Raise `InvalidInput` where a number of a message, or of one in it, is nan."""
    numbers, inside = _known(message.DESCRIPTOR)
    for name in numbers:
        if math.isnan(getattr(message, name)):
            raise InvalidInput(f"{message.DESCRIPTOR.name}: {name} is nan")
    for name, many in inside:
        for each in getattr(message, name) if many else [getattr(message, name)]:
            check_known(each)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


@lru_cache(maxsize=128)
def _known(descriptor: Descriptor) -> tuple[list[str], list[tuple[str, bool]]]:
    """Return the numbers of a message that may be nan, and the messages in it: whether repeated."""
    inside = [
        (field.name, bool(field.is_repeated))
        for field in descriptor.fields
        if field.type == FieldDescriptor.TYPE_MESSAGE and not _is_map(field)
    ]
    numbers = [
        field.name
        for field in descriptor.fields
        if field.type == FieldDescriptor.TYPE_DOUBLE and field.name in _UNKNOWN
    ]
    return numbers, inside


@lru_cache(maxsize=128)
def _checks(
    descriptor: Descriptor,
) -> tuple[list[tuple[str, bool, bool, _Check]], list[tuple[str, str]]]:
    """Return the fields of a message that need a check, and the ends of its intervals.

    Of each field: its name, whether it is repeated, whether it may be unset, and the check.
    """
    found: list[tuple[str, bool, bool, _Check]] = []
    for field in descriptor.fields:
        check: _Check | None = None
        if _is_map(field):
            check = _check_text  # of its keys, which iterating yields
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            check = _check_message
        elif field.type == FieldDescriptor.TYPE_STRING:
            check = _check_label if field.name == "label" else _check_text
        elif field.type == FieldDescriptor.TYPE_ENUM:
            check = _check_enum(field)
        elif field.type == FieldDescriptor.TYPE_DOUBLE or field.name in _RANGES:
            check = _check_number
        if check is not None:
            found.append((field.name, bool(field.is_repeated), bool(field.has_presence), check))
    return found, [ends for ends in _INTERVALS if ends[0] in descriptor.fields_by_name]


def _check_message(message: Message, _: str) -> None:
    check_fields(message)


def _check_label(text: str, name: str) -> None:
    if not is_plain(text):
        raise InvalidInput(f"{name}: {text[:80]!r} has characters that cannot be seen")


def _check_text(text: str, name: str) -> None:
    _check_label(text, name)
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
    if math.isnan(number) and name in _UNKNOWN:
        return
    least, most = _RANGES.get(name, (-math.inf, math.inf))
    if not least <= number <= most or (math.isinf(number) and name not in _ENDLESS):
        raise InvalidInput(f"{name}: {number} is no number that it can have")
