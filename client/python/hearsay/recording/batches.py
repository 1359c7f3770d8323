"""Batches as values: combine reports as rows, and select rows."""

import os
import time
from collections.abc import Sequence

import numpy as np

from hearsay.plans import presence
from hearsay.v1 import collector_pb2

Batch = collector_pb2.Batch


def together(reports: Sequence[Batch]) -> Batch:
    """Return a batch whose rows are these reports, of one `kind`, in this order."""
    codes: dict[tuple[str, str, str], list[bytes | None]] = {}
    for row, report in enumerate(reports):
        let_others(row)
        for column in report.columns:
            cohort = column.attribute, column.level, column.map
            kept = codes.setdefault(cohort, [None] * len(reports))
            kept[row] = column.codes
    first = reports[0]
    columns = []
    for (attribute, level, chosen), by_row in sorted(codes.items()):
        columns.append(
            collector_pb2.Column(
                attribute=attribute,
                level=level,
                codes=b"".join(code for code in by_row if code is not None),
                present=presence.pack([code is not None for code in by_row]),
                map=chosen,
            )
        )
    return Batch(
        id=os.urandom(16),  # never from seeded coins: two simulations must not share ids
        survey=first.survey,
        revision=first.revision,
        period=first.period,
        rows=len(reports),
        columns=columns,
        panel=first.panel,
        properties=first.properties,
    )


def kind(report: Batch) -> tuple[object, ...]:
    """Return what all rows of a batch share: revision, period, panel and properties."""
    return report.revision, report.period, report.panel, *report.properties


def only(batch: Batch, rows: Sequence[int]) -> Batch:
    """Return a new batch with only the given rows of a batch that has not left yet."""
    shared = Batch()
    shared.CopyFrom(batch)
    for name in ("id", "rows", "columns"):
        shared.ClearField(name)
    reports = [Batch.FromString(shared.SerializeToString()) for _ in rows]
    for column in batch.columns:
        present = presence.unpack(column.present, batch.rows)
        width = len(column.codes) // int(present.sum())
        begins = np.cumsum(present) - 1
        for report, row in zip(reports, rows, strict=True):
            if present[row]:
                begin = int(begins[row]) * width
                report.columns.add(
                    attribute=column.attribute,
                    level=column.level,
                    codes=column.codes[begin : begin + width],
                    map=column.map,
                )
    return together(reports)


def let_others(number: int) -> None:
    """Release the interpreter for other threads at every 16th `number`, in a long loop.

    Otherwise this thread keeps it for 5 ms at a time, and an answer waits for that.
    """
    if number % 16 == 15:
        time.sleep(0)
