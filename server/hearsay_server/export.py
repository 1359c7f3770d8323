"""Randomised rows as Parquet, with what is needed to estimate from them.

One folder with a folder for each period, `period=2026-07-04/part-0.parquet`. An attribute has a
column of its codes (integers, or binary as on the wire) and `<attribute>__level`; both are null
where a row has no answer. Each file's metadata has the plan, and the channel of each attribute
and level.
"""

import base64
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import hearsay.plan
from hearsay import Analyst, rows
from hearsay.plan import Plan
from hearsay.rows import AttributeRows
from ldp import InvalidInput

LEVEL = "__level"
PERIOD = "period"

_PLAN = b"hearsay.plan"
_CHANNELS = b"hearsay.channels"

_HELD = 1 << 24
"""Cells that wait in memory to be written together: a chunk of one-row batches is small, and
readers are slow on files of many small row groups."""


def export(
    analyst: Analyst, survey: str, to: Path, *, first_period: str = "", last_period: str = ""
) -> int:
    """Write a survey's rows to the new folder `to`; return how many there were.

    The folder appears when all is written, or not at all. Raises `InvalidInput` where the folder
    exists, there is no row, or two columns would have one name, and as `Analyst.chunks`.
    """
    if to.exists():
        raise InvalidInput(f"{to} exists: name a folder that does not")
    written = cells = 0
    waiting: dict[str, list[Mapping[str, AttributeRows]]] = {}
    writers: dict[str, pq.ParquetWriter] = {}
    with _folder(to) as folder, ExitStack() as stack:
        chunks = analyst.chunks(survey, first_period=first_period, last_period=last_period)
        data = next(chunks).plan
        plan = hearsay.plan.parse(data)
        schema = schema_of(plan, data)
        for chunk in chunks:
            if chunk.period not in writers:
                (folder / f"{PERIOD}={chunk.period}").mkdir()
                file = folder / f"{PERIOD}={chunk.period}" / "part-0.parquet"
                writers[chunk.period] = stack.enter_context(pq.ParquetWriter(file, schema))
            waiting.setdefault(chunk.period, []).append(rows.decode(plan, chunk))
            written += chunk.rows
            cells += chunk.rows * len(schema.names)
            if cells > _HELD:
                _write(waiting, writers, plan, schema)
                cells = 0
        if not written:
            raise InvalidInput(f"there are no such rows of {survey!r} stored")
        _write(waiting, writers, plan, schema)
    return written


def _write(
    waiting: dict[str, list[Mapping[str, AttributeRows]]],
    writers: Mapping[str, pq.ParquetWriter],
    plan: Plan,
    schema: Any,
) -> None:
    """Write and forget what waits: a row group for each period."""
    for period, parts in waiting.items():
        columns: list[Any] = []
        for name in plan.attributes:
            joined = AttributeRows.joined([part[name] for part in parts])
            kind = schema.field(name).type
            columns.append(pa.array(joined.codes, kind, mask=joined.absent))
            positions = pa.array(joined.levels, pa.int16(), mask=joined.absent)
            columns.append(pa.DictionaryArray.from_arrays(positions, list(plan.levels)))
        writers[period].write_table(pa.Table.from_arrays(columns, schema=schema))
    waiting.clear()


def schema_of(plan: Plan, data: bytes) -> Any:
    """Return the Arrow schema of a plan's rows; `data` are the plan's bytes.

    Raises `InvalidInput` where the names of attributes and of other columns collide.
    """
    fields = []
    for name in plan.attributes:
        fields.append(pa.field(name, _type(plan, name)))
        fields.append(pa.field(name + LEVEL, pa.dictionary(pa.int16(), pa.string())))
    names = [PERIOD, *(field.name for field in fields)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InvalidInput(f"cannot export {plan.survey!r}: two columns are called {twice.pop()!r}")
    return pa.schema(
        fields,
        {
            b"hearsay.survey": plan.survey.encode(),
            b"hearsay.revision": plan.revision.hex().encode(),
            _PLAN: base64.b64encode(data),
            _CHANNELS: rows.channels(plan).encode(),
        },
    )


def plan_of(path: Path) -> bytes:
    """Return the bytes of the plan that an exported folder was made with.

    Raises `InvalidInput` where it is none.
    """
    file = next(iter(sorted(path.glob(f"{PERIOD}=*/*.parquet"))), None)
    if file is None:
        raise InvalidInput(f"{path} is no folder that `hearsay export` wrote")
    metadata = pq.read_schema(file).metadata or {}
    if _PLAN not in metadata:
        raise InvalidInput(f"{file} does not say how it was randomised")
    return base64.b64decode(metadata[_PLAN])


def _type(plan: Plan, attribute: str) -> Any:
    dtype = rows.integer_type(plan, attribute)
    if dtype is not None:
        return pa.from_numpy_dtype(dtype)
    widths = {level.mechanisms[attribute].code_bytes for level in plan.levels.values()}
    return pa.binary(widths.pop()) if len(widths) == 1 else pa.binary()


@contextmanager
def _folder(to: Path) -> Iterator[Path]:
    """Make a folder that is called `to` once it is whole, and durable; remove it otherwise."""
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{to.name}-", dir=to.parent))
    except OSError as error:
        raise InvalidInput(f"cannot write {to}: {error}") from None
    try:
        yield folder
        for file in folder.rglob("*.parquet"):
            with file.open("rb") as written:
                os.fsync(written.fileno())
        folder.chmod(0o755)
        folder.rename(to)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
