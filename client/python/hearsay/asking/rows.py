"""Rows that a server streams, decoded by their plan: codes, levels and absent answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hearsay.asking.columns import NO_MAP
from hearsay.plans import presence
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from ldp import InvalidInput, Mechanism
from ldp.errors import AnswerRefused


@dataclass(frozen=True, eq=False)
class AttributeRows:
    """One attribute of n rows, shapes (n,).

    `codes` are integers where the codes of every level and map are, 0 where absent; otherwise
    bytes, None where absent. `levels` are positions among the plan's levels, and `maps` among the
    attribute's maps and then no map; -1 where absent. None where the attribute has no maps.
    """

    codes: NDArray[Any]
    levels: NDArray[np.int16]
    maps: NDArray[np.int16] | None = None

    @property
    def absent(self) -> NDArray[np.bool_]:
        """Which rows did not answer."""
        missing: NDArray[np.bool_] = self.levels < 0
        return missing

    @classmethod
    def joined(cls, parts: Sequence["AttributeRows"]) -> "AttributeRows":
        """Return the rows of all parts, one after the other; there must be one."""
        return cls(
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.levels for part in parts]),
            None
            if parts[0].maps is None
            else np.concatenate([part.maps for part in parts if part.maps is not None]),
        )


def map_labels(plan: Plan, attribute: str) -> tuple[str, ...]:
    """Return the names of an attribute's maps and then `NO_MAP`; empty where it has no maps."""
    names = plan.maps(attribute)
    return (*names, NO_MAP) if names else ()


def integer_type(plan: Plan, attribute: str) -> np.dtype[Any] | None:
    """Return the signed type that holds an attribute's codes of all levels, None for bytes.

    Signed, because Spark has no others.
    """
    mechanisms = [m for level in plan.levels.values() for m in level.by_map[attribute].values()]
    if any(m.code_shape or m.code_dtype.kind != "u" for m in mechanisms):
        return None
    return np.dtype("i4" if max(m.code_bytes for m in mechanisms) <= 2 else "i8")


def channels(plan: Plan) -> str:
    """Return the name, epsilons and integers of every attribute's mechanism at every level, as
    JSON, for readers of rows who lack the plan.

    Those of its maps are under "maps", by name, beside the ones of those who chose none.
    """
    return json.dumps(
        {
            name: {level.name: _channels_of(level.by_map[name]) for level in plan.levels.values()}
            for name in plan.questions
        }
    )


def _channels_of(by_map: Mapping[str, Mechanism]) -> dict[str, object]:
    each = {
        name: {
            "mechanism": mechanism.name,
            "epsilon": mechanism.epsilon,
            "realised_epsilon": mechanism.realised_epsilon,
            "integers": mechanism.integers,
        }
        for name, mechanism in by_map.items()
    }
    own: dict[str, object] = dict(each.pop(""))
    return own | {"maps": each} if each else own


def decode(plan: Plan, chunk: analyst_pb2.ExportRowsResponse) -> Mapping[str, AttributeRows]:
    """Return a chunk's rows by question, in the plan's order.

    Raises `AnswerRefused` for impossible codes or presence bits, for two answers of a row to one
    question, and for a row without any: the sender is not trusted.
    """
    try:
        return _decoded(plan, chunk)
    except InvalidInput as error:
        raise AnswerRefused(f"the server sent rows that cannot be: {error}") from None


def _decoded(plan: Plan, chunk: analyst_pb2.ExportRowsResponse) -> Mapping[str, AttributeRows]:
    answered = np.zeros(chunk.rows, dtype=bool)
    decoded = {}
    for name in plan.questions:
        dtype = integer_type(plan, name)
        codes = np.full(chunk.rows, None) if dtype is None else np.zeros(chunk.rows, dtype=dtype)
        absent = np.full(chunk.rows, -1, dtype=np.int16)
        decoded[name] = AttributeRows(codes, absent, absent.copy() if plan.maps(name) else None)
    order = {level: position for position, level in enumerate(plan.levels)}
    for column in chunk.columns:
        attribute = decoded[column.attribute]
        where = np.flatnonzero(presence.unpack(column.present, chunk.rows))
        mechanism = plan.levels[column.level].by_map[column.attribute][column.map]
        codes = mechanism.decode(column.codes, where.size)
        if (attribute.levels[where] >= 0).any():
            raise InvalidInput(f"a row has two answers to {column.attribute!r}")
        answered[where] = True
        if attribute.codes.dtype == object:
            codes = np.frombuffer(column.codes, dtype=f"V{mechanism.code_bytes}").astype(object)
        attribute.codes[where] = codes
        attribute.levels[where] = order[column.level]
        if attribute.maps is not None:
            labels = map_labels(plan, column.attribute)
            attribute.maps[where] = labels.index(column.map or NO_MAP)
    if not answered.all():
        raise InvalidInput("a row has no answer")
    return decoded
