"""Tallies and estimates from exported rows with PySpark: the server's integers, on a cluster.

Each worker reads some of the files by itself, with pyarrow, and makes tallies of their rows; the
tallies are added up. So no rows move, and a store is reached as `hearsay export` reaches it. Needs
pyspark on the driver, and this package on the executors (`hearsay-ldp[spark]`).
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import hearsay.plans.plan
from hearsay.asking.columns import NO_MAP
from hearsay.plans.plan import Plan
from hearsay_server.answers import queries
from hearsay_server.answers.export import LEVEL, MAP, PERIOD, schema_of
from hearsay_server.answers.folders import Folder, open_folder
from hearsay_server.answers.manifest import Manifest
from hearsay_server.ingest.intake import Cohort
from ldp import Estimate, InvalidInput, Mechanism, Tally
from ldp.core.tally import add_up
from ldp.errors import needs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHARE = 1 << 20
"""Rows of a file, about, that are read by one task."""

_TALLY = pa.schema(
    [
        ("level", pa.string()),
        (PERIOD, pa.string()),
        ("map", pa.string()),
        ("tally", pa.binary()),
    ]
)

_Key = tuple[str, str, str]
"""A level, a period and a map, "" for none."""

Work = Callable[[pq.ParquetFile, Sequence[int]], Iterable[pa.RecordBatch]]
"""A function of an open file and the numbers of some of its row groups."""


def read(spark: "SparkSession", where: Path | str) -> "DataFrame":
    """Return the rows of an export, a path or URI, as a DataFrame.

    Levels and periods are text. Raises `MissingExtra` without pyspark, and as `Manifest.read`.
    """
    folder = open_folder(where)
    manifest = Manifest.read(folder)
    schema = pa.schema(
        [
            (each.name, _plain(each.type))
            for each in schema_of(hearsay.plans.plan.parse(manifest.plan), manifest.plan)
        ]
    )

    def batches(file: pq.ParquetFile, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        for group in groups:
            yield from file.read_row_group(group, use_threads=False).cast(schema).to_batches()

    return _mapped(spark, folder, manifest, batches, schema)


def tally(spark: "SparkSession", where: Path | str, attribute: str) -> dict[Cohort, Tally]:
    """Return the tallies of an attribute of an export, a path or URI, as the server has them.

    Of an attribute in views ask for each view, such as "smokes+diagnosis". Raises `MissingExtra`
    without pyspark, `InvalidInput` where the export has no such attribute, and as `Manifest.read`.
    """
    folder = open_folder(where)
    manifest = Manifest.read(folder)
    data = manifest.plan
    plan = _plan(data, attribute)
    if attribute not in plan.questions:
        views = " and ".join(plan.questions_of([attribute]))
        raise InvalidInput(f"{attribute!r} is asked in views: ask for the tallies of {views}")
    has_maps = bool(plan.maps(attribute))

    def partial_tallies(file: pq.ParquetFile, groups: Sequence[int]) -> Iterator[pa.RecordBatch]:
        mechanisms = _mechanisms(data, attribute)
        sums: dict[_Key, Tally] = {}
        columns = [attribute, attribute + LEVEL, PERIOD, *([attribute + MAP] if has_maps else [])]
        for group in groups:
            table = file.read_row_group(group, columns=columns, use_threads=False)
            add_up(sums, _tallies(mechanisms, *(table[name] for name in columns)).items())
        rows = [
            {"level": level, PERIOD: period, "map": chosen, "tally": counted.to_bytes()}
            for (level, period, chosen), counted in sums.items()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_TALLY)

    result: dict[Cohort, Tally] = {}
    for row in _mapped(spark, folder, manifest, partial_tallies, _TALLY).collect():
        key = row["level"], row[PERIOD], row["map"]
        cohort = Cohort(plan.survey, plan.revision, attribute, *key)
        add_up(result, [(cohort, Tally.from_bytes(bytes(row["tally"])))])
    return dict(sorted(result.items()))


def estimate(
    spark: "SparkSession",
    where: Path | str,
    attribute: str,
    *,
    levels: Sequence[str] = (),
    periods: Sequence[str] = (),
    maps: Sequence[str] = (),
    method: str = "",
) -> Estimate:
    """Estimate an attribute from an export, a path or URI, as the server does.

    An empty name among `maps` stands for those who chose none. Raises `InvalidInput` as `tally`
    and for an unknown level or map, and `NoReports` where none is left.
    """
    plan = _plan(Manifest.read(open_folder(where)).plan, attribute)
    for level in levels:
        plan.level(level)
    for chosen in maps:
        plan.map_of(attribute, chosen)
    tallies = {
        cohort: counted
        for question in plan.questions_of(plan.parts(attribute))
        for cohort, counted in tally(spark, where, question).items()
        if (not levels or cohort.level in levels)
        and (not periods or cohort.period in periods)
        and (not maps or cohort.map in maps)
    }
    found = queries.answered(plan, attribute, tallies, method).estimate
    return plan.asked(attribute).domain.in_units(found)


def _plan(data: bytes, attribute: str) -> Plan:
    plan = hearsay.plans.plan.parse(data)
    plan.asked(attribute)  # which raises where there is none
    return plan


def _mechanisms(data: bytes, attribute: str) -> dict[tuple[str, str], Mechanism]:
    """Return an attribute's mechanisms by level and map."""
    return {
        (level.name, chosen): mechanism
        for level in hearsay.plans.plan.parse(data).levels.values()
        for chosen, mechanism in level.by_map[attribute].items()
    }


def _mapped(
    spark: "SparkSession", folder: Folder, manifest: Manifest, work: Work, schema: pa.Schema
) -> "DataFrame":
    """Return what `work` yields, of this schema, from each share of an export's files."""
    with needs("reading with Spark", "spark"):
        from pyspark.sql.types import StructField, StructType

    _run_this_interpreter(spark)
    shares = [
        (folder.at(name), share, of)
        for name, rows in manifest.files.items()
        for of in (-(-rows // _SHARE),)
        for share in range(of)
    ]
    filesystem = folder.filesystem

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                path, share, of = shares[number]
                with filesystem.open_input_file(path) as stream:
                    file = pq.ParquetFile(stream, page_checksum_verification=True)
                    yield from work(file, range(share, file.num_row_groups, of))

    types = StructType([StructField(each.name, _spark_type(each.type)) for each in schema])
    # A task for each core, which reads several shares: to start one takes a tenth of a second.
    return spark.range(len(shares)).mapInArrow(run, types)


def _run_this_interpreter(spark: "SparkSession") -> None:
    """Let workers on this machine run the driver's Python, unless another is configured.

    Spark runs the `python3` of PATH, which in an environment that is not activated is another one.
    """
    context = getattr(spark, "sparkContext", None)  # Spark Connect has none
    if context and context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = context.getConf().get("spark.pyspark.python", sys.executable)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type in which Spark takes a column."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else kind


def _spark_type(kind: pa.DataType) -> Any:
    from pyspark.sql import types

    return {
        pa.int32(): types.IntegerType(),
        pa.int64(): types.LongType(),
        pa.string(): types.StringType(),
        pa.binary(): types.BinaryType(),
    }[kind]


def _tallies(
    mechanisms: dict[tuple[str, str], Mechanism],
    codes: pa.ChunkedArray,
    levels: pa.ChunkedArray,
    periods: pa.ChunkedArray,
    maps: pa.ChunkedArray | None = None,
) -> dict[_Key, Tally]:
    """Tally columns of codes, levels, periods and maps, null where a row has no answer."""
    codes = codes.combine_chunks()
    columns = [_positions(column) for column in (levels, periods, maps) if column is not None]
    groups = np.zeros(len(codes), dtype=np.int64)
    for positions, names in columns:
        groups = groups * len(names) + positions
    groups[columns[0][0] < 0] = -1
    found = {}
    for group in np.unique(groups[groups >= 0]).tolist():
        mine = codes.take(pa.array(np.flatnonzero(groups == group)))
        key, rest = [], group
        for _, names in reversed(columns):
            rest, position = divmod(rest, len(names))
            key.append(names[position])
        level, period, label = key[::-1] if maps is not None else (*key[::-1], NO_MAP)
        chosen = "" if label == NO_MAP else label
        mechanism = mechanisms[level, chosen]
        if pa.types.is_integer(mine.type):
            array = mine.to_numpy().astype(mechanism.code_dtype)
        else:
            array = mechanism.decode(_bytes(mine), len(mine))
        found[level, period, chosen] = mechanism.tally(array)
    return found


def _positions(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], list[str]]:
    """Return positions among the distinct values, -1 for null, and these values."""
    array = column.unify_dictionaries().combine_chunks()
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    positions = array.indices.cast(pa.int64()).fill_null(-1).to_numpy()
    return positions, array.dictionary.to_pylist()


def _bytes(codes: pa.Array) -> bytes:
    """Return the bytes of codes, none of them null, one after the other."""
    if pa.types.is_fixed_size_binary(codes.type):
        width = codes.type.byte_width
        begin, end = width * codes.offset, width * (codes.offset + len(codes))
    else:
        offsets = np.frombuffer(codes.buffers()[1], np.int32)
        begin, end = offsets[[codes.offset, codes.offset + len(codes)]].tolist()
    return bytes(codes.buffers()[-1][begin:end])
