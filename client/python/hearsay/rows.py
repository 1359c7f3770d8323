"""Rows that a server streams, decoded by their plan: codes, levels and absent answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hearsay.plans import presence
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2


@dataclass(frozen=True, eq=False)
class AttributeRows:
    """One attribute of n rows, shapes (n,).

    `codes` are integers where every level's codes are, 0 where absent; otherwise bytes, None
    where absent. `levels` are positions among the plan's levels, -1 where absent.
    """

    codes: NDArray[Any]
    levels: NDArray[np.int16]

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
        )


def integer_type(plan: Plan, attribute: str) -> np.dtype[Any] | None:
    """Return the signed type that holds an attribute's codes of all levels, None for bytes.

    Signed, because Spark has no others.
    """
    mechanisms = [level.mechanisms[attribute] for level in plan.levels.values()]
    if any(m.code_shape or m.code_dtype.kind != "u" for m in mechanisms):
        return None
    return np.dtype("i4" if max(m.code_bytes for m in mechanisms) <= 2 else "i8")


def channels(plan: Plan) -> str:
    """Return the name, epsilons and integers of every attribute's mechanism at every level, as
    JSON, for readers of rows who lack the plan."""
    return json.dumps(
        {
            name: {
                level.name: {
                    "mechanism": level.mechanisms[name].name,
                    "epsilon": level.mechanisms[name].epsilon,
                    "realised_epsilon": level.mechanisms[name].realised_epsilon,
                    "integers": level.mechanisms[name].integers,
                }
                for level in plan.levels.values()
            }
            for name in plan.questions
        }
    )


def decode(plan: Plan, chunk: analyst_pb2.ExportRowsResponse) -> Mapping[str, AttributeRows]:
    """Return a chunk's rows by question, in the plan's order.

    Raises `InvalidInput` for impossible codes or presence bits: the sender is not trusted.
    """
    decoded = {}
    for name in plan.questions:
        dtype = integer_type(plan, name)
        codes = np.full(chunk.rows, None) if dtype is None else np.zeros(chunk.rows, dtype=dtype)
        decoded[name] = AttributeRows(codes, np.full(chunk.rows, -1, dtype=np.int16))
    order = {level: position for position, level in enumerate(plan.levels)}
    for column in chunk.columns:
        attribute = decoded[column.attribute]
        where = np.flatnonzero(presence.unpack(column.present, chunk.rows))
        mechanism = plan.levels[column.level].mechanisms[column.attribute]
        codes = mechanism.decode(column.codes, where.size)
        if attribute.codes.dtype == object:
            codes = np.frombuffer(column.codes, dtype=f"V{mechanism.code_bytes}").astype(object)
        attribute.codes[where] = codes
        attribute.levels[where] = order[column.level]
    return decoded
