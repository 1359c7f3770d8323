"""Read randomised rows from exported Parquet, with the channels that its metadata carries.

A folder of Parquet files (hive partitions or not), or one file. An attribute has a column of its
codes, null where a row has none: integers where a code is one, else binary of the code's width;
and a column `<attribute>__level` of level names. The schema's metadata has under
`hearsay.channels` a JSON object: attribute, then level, to the mechanism's name, epsilon and
integers, as {"mechanism": "krr", "epsilon": 1.0, "integers": {"k": [10], "resample": [...]}}.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsgd.channels import Cohort, Reports
from ldp import InvalidInput, Mechanism, build
from ldp.mechanism import Codes

METADATA = b"hearsay.channels"
"""Where a Parquet schema says how its codes were made."""

_LEVEL = "__level"


def read_reports(path: Path, attribute: str) -> Reports:
    """Return one attribute's reports, each with the channel of its level.

    Rows keep their order, which is the same for every attribute of one path. Each mechanism
    checks its integers and its codes again. Raises `InvalidInput` where there is no such Parquet
    or attribute, the metadata is missing, a level has no channel there, and for codes that
    cannot be. Needs pyarrow (`hearsay[export]`).
    """
    table = _table(path, attribute)
    channels = _channels(table.schema.metadata or {}, path, attribute)
    codes, levels = (table.column(name).combine_chunks() for name in table.column_names)
    present = np.asarray(codes.is_valid())
    names = np.array(levels.cast("string").to_pylist(), dtype=object)
    cohorts = []
    for level in sorted({str(name) for name in names[present]}):
        if level not in channels:
            raise InvalidInput(f"{path}: level {level!r} of {attribute!r} has no channel")
        rows = np.flatnonzero(present & (names == level))
        mechanism = channels[level]
        cohorts.append(Cohort(mechanism, rows, _codes(mechanism, codes.take(rows))))
    return Reports(len(table), tuple(cohorts))


def _table(path: Path, attribute: str) -> Any:
    import pyarrow
    import pyarrow.parquet

    if not path.exists():
        raise InvalidInput(f"there is no {path}")
    try:
        return pyarrow.parquet.read_table(path, columns=[attribute, attribute + _LEVEL])
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InvalidInput(f"cannot read {attribute!r} from {path}: {error}") from None


def _channels(metadata: dict[bytes, bytes], path: Path, attribute: str) -> dict[str, Mechanism]:
    try:
        levels = json.loads(metadata[METADATA])[attribute]
        return {
            level: build(channel["mechanism"], channel["epsilon"], channel["integers"])
            for level, channel in levels.items()
        }
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise InvalidInput(
            f"{path} does not say in its metadata how {attribute!r} was randomised: {error!r}"
        ) from None


def _codes(mechanism: Mechanism, column: Any) -> Codes:
    """Return an Arrow array of codes as the mechanism's own, all of them possible."""
    import pyarrow

    if pyarrow.types.is_integer(column.type):
        whole: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        codes = whole.reshape(-1, *mechanism.code_shape)  # one-byte codes of shape (1,) too
        if codes.size and codes.min() < 0:
            raise InvalidInput(f"{mechanism.name}: a code is never negative, got {codes.min()}")
        return mechanism.decode(mechanism.encode(codes.astype(np.uint64)), len(codes))
    return mechanism.decode(b"".join(column.cast(pyarrow.binary()).to_pylist()), len(column))
