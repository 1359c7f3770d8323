"""Export of randomised rows as Parquet, with the plan and channels to estimate from them.

One folder with a file for each period, `2026-07-04-0-1f3a9c2e.parquet`, more where there is much,
and a manifest (`manifest.py`). The column `period` has the period's name. An attribute has a column
of its codes (integers, or binary as on the wire) and `<attribute>__level`, and one that has maps
`<attribute>__map`; all are null where a row has no answer. Each file's metadata has the plan, and
the channel of each attribute, level and map.
"""

import base64
import os
import posixpath
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

import hearsay.plans.plan
from hearsay import Analyst
from hearsay.asking import rows
from hearsay.asking.analyst import Selection
from hearsay.asking.rows import AttributeRows
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers.folders import Folder, open_folder
from hearsay_server.answers.manifest import NAME, Manifest, Period
from ldp.errors import InvalidInput, NotReady

LEVEL = "__level"
MAP = "__map"
PERIOD = "period"

_PLAN = b"hearsay.plan"
_CHANNELS = b"hearsay.channels"

_HELD = 256 << 20
"""Bytes of rows, about, that wait in memory to be written together."""

_CELL = 16
"""Bytes of memory, about, that a code or level takes beyond its bytes on the wire."""


@dataclass(frozen=True)
class Exported:
    """How many rows an export wrote, and the periods that stay as they were exported before.

    The retention has dropped rows of such a period since, so it could not be written again.
    """

    rows: int
    kept: tuple[str, ...] = ()


def export(
    analyst: Analyst,
    survey: str,
    to: Path | str,
    *,
    since: Path | str | None = None,
    **selection: Unpack[Selection],
) -> Exported:
    """Write a survey's rows to the new folder `to`, a path or a URI of `folders.SCHEMES`.

    `selection` restricts them as in `Analyst.rows`. On a disk the folder appears when all is
    written, or not at all; elsewhere its manifest is written last, and after an error the files
    are deleted. `since` is the folder of an earlier export in the same store: only periods that
    have changed since are written, each of them whole, and the manifest refers to the earlier
    files for the others. So the files of the new manifest have each stored row once.

    Raises `InvalidInput` where the folder exists, two columns would have one name, or `since` is
    of another survey, store or other levels; `NotReady` where there is no row; `StorageFailed`
    where the folder cannot be used; `AnswerRefused` where the server sends what is no row of the
    survey or no period that was asked for; and as `Analyst.chunks`.
    """
    target = open_folder(to)
    if target.exists:
        raise InvalidInput(f"{target.shown} exists: name a folder that does not")
    earlier = None if since is None else _earlier(open_folder(since), target, survey)
    known = earlier.periods if earlier else {}
    with _writing(target) as folder:
        chunks = analyst.chunks(
            survey,
            since=analyst_pb2.Exported(
                periods=(
                    analyst_pb2.ExportedPeriod(
                        period=name, digest=before.digest, dropped=before.dropped
                    )
                    for name, before in known.items()
                )
            ),
            **selection,
        )
        data = next(chunks).plan
        plan = hearsay.plans.plan.parse(data)
        asked = selection.get("levels") or plan.levels
        levels = tuple(name for name in plan.levels if name in asked)
        if earlier and (earlier.plan, earlier.levels) != (data, levels):
            raise InvalidInput(
                "an export continues one of the same plan and levels; the earlier one is of "
                f"{', '.join(earlier.levels)}, this one of {', '.join(levels)}"
            )
        parts = _Parts(folder, plan, schema_of(plan, data))
        try:
            found = []
            for chunk in chunks:
                if chunk.HasField("exported"):
                    found.append(chunk.exported)
                else:
                    parts.add(chunk)
            parts.close()
            periods = dict(known)
            kept = []
            for now in found:
                before = known.get(now.period)
                if before and now.dropped > before.dropped:
                    parts.delete(now.period)  # the rows that were left when the others were dropped
                    kept.append(now.period)
                elif not before or before.digest != now.digest:
                    files = parts.files.get(now.period, {})
                    periods[now.period] = Period(now.digest, now.dropped, files)
            written = sum(sum(files.values()) for files in parts.files.values())
            if not written and earlier is None:
                raise NotReady(f"there are no such rows of {survey!r} stored")
            if target.read(NAME) is not None:
                raise InvalidInput(f"another export to {target.shown} was done meanwhile")
            Manifest(data, levels, periods).write(folder)
        except BaseException:
            parts.delete_all()
            raise
    return Exported(written, tuple(kept))


def _earlier(before: Folder, target: Folder, survey: str) -> Manifest:
    """Return an earlier export's manifest, with the paths of its files relative to `target`.

    Raises `InvalidInput` where it is of another survey, or not in the same store.
    """
    if before.filesystem.type_name != target.filesystem.type_name:
        raise InvalidInput(
            f"an export continues one in the same store, got {before.shown} and {target.shown}"
        )
    manifest = Manifest.read(replace(before, filesystem=target.filesystem))
    found = hearsay.plans.plan.parse(manifest.plan).survey
    if found != survey:
        raise InvalidInput(f"{before.shown} is an export of {found!r}, not of {survey!r}")
    periods = {
        name: replace(
            period,
            files={
                posixpath.relpath(before.at(file), target.path): rows
                for file, rows in period.files.items()
            },
        )
        for name, period in manifest.periods.items()
    }
    return replace(manifest, periods=periods)


class _Parts:
    """Files of rows by period: the largest is written when too much waits in memory.

    Their names have a random part: exports to one URI at once do not overwrite each other's files.

    Rows come in chunks of any period, and in small ones where devices send a row a batch. Written
    at once, each chunk would be a row group, and readers are slow with many; and each period
    would be an open file.
    """

    def __init__(self, folder: Folder, plan: Plan, schema: Any) -> None:
        self._folder = folder
        self._token = secrets.token_hex(4)
        self._plan = plan
        self._schema = schema
        self._waiting: dict[str, list[Mapping[str, AttributeRows]]] = {}
        self._bytes: Counter[str] = Counter()
        self.files: dict[str, dict[str, int]] = {}

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

    def delete(self, period: str) -> None:
        """Delete a period's files, as far as they can be."""
        for name in self.files.pop(period, {}):
            with suppress(OSError):
                self._folder.filesystem.delete_file(self._folder.new(name))

    def delete_all(self) -> None:
        """Delete all files, and the folder where nothing else is in it, as far as they can be."""
        folder = self._folder
        for period in list(self.files):
            self.delete(period)
        with suppress(OSError):
            if not folder.filesystem.get_file_info(fs.FileSelector(folder.path)):
                folder.filesystem.delete_dir(folder.path)

    def _write(self, period: str) -> None:
        parts = self._waiting.pop(period)
        n = sum(len(next(iter(part.values())).levels) for part in parts)
        periods = np.zeros(n, dtype=np.int32)
        columns: list[Any] = [pa.DictionaryArray.from_arrays(periods, [period])]
        for name in self._plan.questions:
            joined = AttributeRows.joined([part[name] for part in parts])
            kind = self._schema.field(name).type
            columns.append(pa.array(joined.codes, kind, mask=joined.absent))
            positions = pa.array(joined.levels, pa.int16(), mask=joined.absent)
            columns.append(pa.DictionaryArray.from_arrays(positions, list(self._plan.levels)))
            if joined.maps is not None:
                chosen = pa.array(joined.maps, pa.int16(), mask=joined.absent)
                labels = list(rows.map_labels(self._plan, name))
                columns.append(pa.DictionaryArray.from_arrays(chosen, labels))
        table = pa.Table.from_arrays(columns, schema=self._schema)
        files = self.files.setdefault(period, {})
        file = f"{period}-{len(files)}-{self._token}.parquet"
        path = self._folder.new(file)
        files[file] = n
        with self._folder.using():
            pq.write_table(
                table, path, filesystem=self._folder.filesystem, write_page_checksum=True
            )
        del self._bytes[period]


def schema_of(plan: Plan, data: bytes) -> Any:
    """Return the Arrow schema of a plan's rows; `data` are the plan's bytes.

    Raises `InvalidInput` where the names of attributes and of other columns collide.
    """
    fields = [pa.field(PERIOD, pa.dictionary(pa.int32(), pa.string()))]
    for name in plan.questions:
        fields.append(pa.field(name, _type(plan, name)))
        fields.append(pa.field(name + LEVEL, pa.dictionary(pa.int16(), pa.string())))
        if plan.maps(name):
            fields.append(pa.field(name + MAP, pa.dictionary(pa.int16(), pa.string())))
    names = [field.name for field in fields]
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


def _type(plan: Plan, attribute: str) -> Any:
    dtype = rows.integer_type(plan, attribute)
    if dtype is not None:
        return pa.from_numpy_dtype(dtype)
    mechanisms = (m for level in plan.levels.values() for m in level.by_map[attribute].values())
    widths = {mechanism.code_bytes for mechanism in mechanisms}
    return pa.binary(widths.pop()) if len(widths) == 1 else pa.binary()


@contextmanager
def _writing(to: Folder) -> Iterator[Folder]:
    """Yield the folder to write to.

    On a disk that is a temporary one, renamed to `to` once it is durable, or removed on errors.
    """
    if not to.local:
        yield to
        return
    path = Path(to.path)
    with to.using():
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        folder.mkdir()  # as the umask has it
    try:
        yield replace(to, path=str(folder))
        with to.using():
            for file in folder.iterdir():
                with file.open("rb") as written:
                    os.fsync(written.fileno())
            folder.rename(path)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
