"""Batches as values: reports put together as rows, and rows taken out again."""

import os
import time
from collections.abc import Sequence

import numpy as np

from hearsay import presence
from hearsay.v1 import collector_pb2

Batch = collector_pb2.Batch


def together(reports: Sequence[Batch]) -> Batch:
    """Put reports of one period and revision together, as the rows of a batch in this order."""
    codes: dict[tuple[str, str], list[bytes | None]] = {}
    for row, report in enumerate(reports):
        let_others(row)
        for column in report.columns:
            kept = codes.setdefault((column.attribute, column.level), [None] * len(reports))
            kept[row] = column.codes
    first = reports[0]
    columns = []
    for (attribute, level), by_row in sorted(codes.items()):
        columns.append(
            collector_pb2.Column(
                attribute=attribute,
                level=level,
                codes=b"".join(code for code in by_row if code is not None),
                present=presence.pack([code is not None for code in by_row]),
            )
        )
    return Batch(
        id=os.urandom(16),  # never from seeded coins: two simulations must not share ids
        survey=first.survey,
        revision=first.revision,
        period=first.period,
        rows=len(reports),
        columns=columns,
    )


def only(batch: Batch, rows: Sequence[int]) -> Batch:
    """Return a batch, which has not left yet, with these of its rows only."""
    reports = [
        Batch(survey=batch.survey, revision=batch.revision, period=batch.period) for _ in rows
    ]
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
                )
    return together(reports)


def let_others(number: int) -> None:
    """Let other threads have the interpreter now and then, in a loop over many reports.

    Otherwise this thread keeps it for 5 ms at a time, and an answer waits for that.
    """
    if number % 16 == 15:
        time.sleep(0)
