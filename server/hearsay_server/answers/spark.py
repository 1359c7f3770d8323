"""Tallies and estimates from exported rows with PySpark: the server's integers, on a cluster.

Each partition makes tallies of its rows, and the tallies are added up: no rows move. Needs pyspark
on the driver, and this package on the executors (`hearsay-ldp[spark]`).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import hearsay.plans.plan
from hearsay.plans.plan import Numeric, Plan
from hearsay_server.answers import queries
from hearsay_server.answers.export import LEVEL, PERIOD, plan_of
from hearsay_server.ingest.intake import Cohort
from ldp import Estimate, InvalidInput, Mechanism, Tally
from ldp.core.tally import add_up
from ldp.errors import needs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TALLY = f"level string, {PERIOD} string, tally binary"


def read(spark: "SparkSession", path: Path) -> "DataFrame":
    """Return an exported folder as a DataFrame whose periods are text.

    Spark would take the name of a day for a date, and of a year for a number. Raises
    `MissingExtra` without pyspark.
    """
    with needs("reading with Spark", "spark"):
        from pyspark.sql.types import StringType, StructField, StructType

    found = spark.read.parquet(str(path))
    fields = [field for field in found.schema.fields if field.name != PERIOD]
    schema = StructType([*fields, StructField(PERIOD, StringType())])
    return spark.read.schema(schema).parquet(str(path))


def tally(spark: "SparkSession", path: Path, attribute: str) -> dict[Cohort, Tally]:
    """Return the tallies of an attribute of an exported folder, as the server has them.

    Raises `InvalidInput` where the folder is no export, or has no such attribute.
    """
    data = plan_of(path)
    plan = _plan(data, attribute)

    def partial_tallies(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        mechanisms = _mechanisms(data, attribute)
        sums: dict[tuple[str, str], Tally] = {}
        for batch in batches:
            add_up(sums, _tallies(mechanisms, batch).items())
        rows = [
            {"level": level, PERIOD: period, "tally": counted.to_bytes()}
            for (level, period), counted in sums.items()
        ]
        schema = pa.schema([("level", pa.string()), (PERIOD, pa.string()), ("tally", pa.binary())])
        yield pa.RecordBatch.from_pylist(rows, schema=schema)

    frame = read(spark, path).select(attribute, attribute + LEVEL, PERIOD)
    answered = frame.where(frame[attribute].isNotNull())
    result: dict[Cohort, Tally] = {}
    for row in answered.mapInArrow(partial_tallies, _TALLY).collect():
        cohort = Cohort(plan.survey, plan.revision, attribute, row["level"], row[PERIOD])
        add_up(result, [(cohort, Tally.from_bytes(bytes(row["tally"])))])
    return dict(sorted(result.items()))


def estimate(
    spark: "SparkSession",
    path: Path,
    attribute: str,
    *,
    levels: Sequence[str] = (),
    periods: Sequence[str] = (),
    method: str = "",
) -> Estimate:
    """Estimate an attribute from an exported folder, as the server does.

    Raises `InvalidInput` as `tally` and for an unknown level, and `NoReports` where none is left.
    """
    plan = _plan(plan_of(path), attribute)
    for level in levels:
        plan.level(level)
    tallies = {
        cohort: counted
        for cohort, counted in tally(spark, path, attribute).items()
        if (not levels or cohort.level in levels) and (not periods or cohort.period in periods)
    }
    found = queries.answered(plan, attribute, tallies, method).estimate
    domain = plan.attributes[attribute].domain
    return found.rescaled((domain.low, domain.high)) if isinstance(domain, Numeric) else found


def _plan(data: bytes, attribute: str) -> Plan:
    plan = hearsay.plans.plan.parse(data)
    if attribute not in plan.attributes:
        names = ", ".join(plan.attributes)
        raise InvalidInput(f"{plan.survey!r} has no attribute {attribute!r}; it has {names}")
    return plan


def _mechanisms(data: bytes, attribute: str) -> dict[str, Mechanism]:
    levels = hearsay.plans.plan.parse(data).levels.values()
    return {level.name: level.mechanisms[attribute] for level in levels}


def _tallies(mechanisms: dict[str, Mechanism], batch: Any) -> dict[tuple[str, str], Tally]:
    """Tally an Arrow batch of codes, levels and periods, none of them null."""
    codes, levels, periods = (batch.column(i) for i in range(3))
    keys = np.array(
        [f"{p}\0{v}" for p, v in zip(periods.to_pylist(), levels.to_pylist(), strict=True)]
    )
    found = {}
    for key in np.unique(keys).tolist():
        period, _, level = key.partition("\0")
        mechanism = mechanisms[level]
        mine = codes.take(np.flatnonzero(keys == key))
        if mechanism.code_shape == () and mine.type not in _binary():
            array = mine.to_numpy(zero_copy_only=False).astype(mechanism.code_dtype)
        else:
            array = mechanism.decode(b"".join(mine.to_pylist()), len(mine))
        found[level, period] = mechanism.tally(array)
    return found


def _binary() -> tuple[Any, ...]:
    import pyarrow as pa

    return pa.binary(), pa.large_binary()
