"""Export of randomised rows as Parquet, with the plan and channels to estimate from them.

One folder with a folder for each period, `period=2026-07-04/part-0.parquet`, and more parts where
there is much. An attribute has a column of its codes (integers, or binary as on the wire) and
`<attribute>__level`; both are null where a row has no answer. Each file's metadata has the plan,
and the channel of each attribute and level.
"""

import base64
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.parquet as pq

import hearsay.plans.plan
from hearsay import Analyst, rows
from hearsay.analyst import Selection
from hearsay.plans.plan import Plan
from hearsay.rows import AttributeRows
from hearsay.v1 import analyst_pb2
from ldp.errors import InvalidInput, NotReady, StorageFailed

LEVEL = "__level"
PERIOD = "period"

_PLAN = b"hearsay.plan"
_CHANNELS = b"hearsay.channels"

_HELD = 256 << 20
"""Bytes of rows, about, that wait in memory to be written together."""

_CELL = 16
"""Bytes of memory, about, that a code or level takes beyond its bytes on the wire."""


def export(analyst: Analyst, survey: str, to: Path, **selection: Unpack[Selection]) -> int:
    """Write a survey's rows to the new folder `to`; return how many there were.

    `selection` restricts them as in `Analyst.rows`. The folder appears when all is written, or not
    at all. Raises `InvalidInput` where the folder exists or two columns would have one name,
    `NotReady` where there is no row, `StorageFailed` where the folder cannot be written, and as
    `Analyst.chunks`.
    """
    if to.exists():
        raise InvalidInput(f"{to} exists: name a folder that does not")
    written = 0
    with _folder(to) as folder:
        chunks = analyst.chunks(survey, **selection)
        data = next(chunks).plan
        plan = hearsay.plans.plan.parse(data)
        parts = _Parts(folder, plan, schema_of(plan, data))
        for chunk in chunks:
            parts.add(chunk)
            written += chunk.rows
        parts.close()
        if not written:
            raise NotReady(f"there are no such rows of {survey!r} stored")
    return written


class _Parts:
    """Files of rows by period: the largest is written when too much waits in memory.

    Rows come in chunks of any period, and in small ones where devices send a row a batch. Written
    at once, each chunk would be a row group, and readers are slow with many; and each period
    would be an open file.
    """

    def __init__(self, folder: Path, plan: Plan, schema: Any) -> None:
        self._folder = folder
        self._plan = plan
        self._schema = schema
        self._waiting: dict[str, list[Mapping[str, AttributeRows]]] = {}
        self._bytes: Counter[str] = Counter()
        self._written: Counter[str] = Counter()

    @property
    def bytes(self) -> int:
        """About how many bytes wait in memory."""
        return self._bytes.total()

    def add(self, chunk: analyst_pb2.ExportRowsResponse) -> None:
        """Take a chunk's rows; write the largest period's where too much waits."""
        self._waiting.setdefault(chunk.period, []).append(rows.decode(self._plan, chunk))
        self._bytes[chunk.period] += chunk.ByteSize() + _CELL * chunk.rows * len(self._schema)
        if self.bytes >= _HELD:
            self._write(self._bytes.most_common(1)[0][0])

    def close(self) -> None:
        """Write all waiting rows."""
        for period in list(self._waiting):
            self._write(period)

    def _write(self, period: str) -> None:
        parts = self._waiting.pop(period)
        columns: list[Any] = []
        for name in self._plan.attributes:
            joined = AttributeRows.joined([part[name] for part in parts])
            kind = self._schema.field(name).type
            columns.append(pa.array(joined.codes, kind, mask=joined.absent))
            positions = pa.array(joined.levels, pa.int16(), mask=joined.absent)
            columns.append(pa.DictionaryArray.from_arrays(positions, list(self._plan.levels)))
        place = self._folder / f"{PERIOD}={period}"
        place.mkdir(exist_ok=True)
        file = place / f"part-{self._written[period]}.parquet"
        pq.write_table(pa.Table.from_arrays(columns, schema=self._schema), file)
        self._written[period] += 1
        del self._bytes[period]


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
    """Yield a temporary folder; rename it to `to` once it is durable, or remove it on errors."""
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{to.name}-", dir=to.parent))
    except OSError as error:
        raise StorageFailed(f"cannot write {to}: {error}") from None
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
