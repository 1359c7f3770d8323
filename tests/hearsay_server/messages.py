"""Random messages of any type, with something in every field."""

from collections.abc import Collection
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

_DEPTH = 6
"""How deep messages are within each other, where a type holds itself."""

_FEW = st.integers(0, 4)

_SCALARS = {
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(),
    FieldDescriptor.CPPTYPE_ENUM: _FEW | st.integers(-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT32: _FEW | st.integers(-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: _FEW | st.integers(-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: _FEW | st.integers(0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: _FEW | st.integers(0, (1 << 64) - 1),
}

Choices = tuple[Collection[str], Collection[bytes]]
"""Strings and bytes that mean something, to be drawn beside random ones."""


def messages(kind: Descriptor, choices: Choices, depth: int = _DEPTH) -> st.SearchStrategy[Message]:
    """Draw messages, fields of which may be missing."""
    fields = {
        field.name: values(field, choices, depth - 1)
        for field in kind.fields
        if depth or not field.message_type
    }
    make = message_factory.GetMessageClass(kind)
    return st.fixed_dictionaries({}, optional=fields).map(lambda given: make(**given))


def values(field: FieldDescriptor, choices: Choices, depth: int = _DEPTH) -> st.SearchStrategy[Any]:
    """Draw what may stand in a field; if it is repeated, a list, and of a map, a dictionary."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (values(part, choices, depth) for part in field.message_type.fields)
        return st.dictionaries(key, value, max_size=3)
    texts, data = choices
    if field.message_type is not None:
        one: st.SearchStrategy[Any] = messages(field.message_type, choices, depth)
    elif field.type == FieldDescriptor.TYPE_BYTES:
        one = st.sampled_from(sorted(data)) | st.binary(max_size=40)
    elif field.type == FieldDescriptor.TYPE_STRING:
        one = st.sampled_from(sorted(texts)) | st.text(max_size=20)
    else:
        one = _SCALARS[field.cpp_type]
    return st.lists(one, max_size=3) if field.is_repeated else one
