"""Batches of one form, decoded as if they were one batch.

To decode a batch costs much the same for one row as for hundreds, and most batches of devices are
small and alike. Every check of a batch is either of its form or of each of its codes by itself,
and tallies add up, so all batches are good if and only if the merged batch is, and its tallies are
their sums.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from hearsay.v1 import collector_pb2
from hearsay_server.ingest.intake import Cohort, Refused, Terms, decode
from ldp import Tally
from ldp.core.tally import add_up

_SMALL = 64
"""Rows up to which a batch is decoded together with others."""


@dataclass(frozen=True)
class Decoded:
    """The sums of the good batches' tallies, and by position why the others are refused."""

    sums: Mapping[Cohort, Tally]
    refused: Mapping[int, Refused]


def decode_all(batches: Sequence[collector_pb2.Batch], terms: Terms) -> Decoded:
    """Decode batches, the alike ones as one; return the sums of tallies, and the refusals.

    For b bad batches among n alike, `decode` is called at most about 2 b log2(n) times.
    """
    alike: defaultdict[Hashable, list[int]] = defaultdict(list)
    for position, batch in enumerate(batches):
        alike[_form(batch, position)].append(position)
    sums: dict[Cohort, Tally] = {}
    refused: dict[int, Refused] = {}
    parts = list(alike.values())
    while parts:
        part = parts.pop()
        try:
            tallies = decode(_merged([batches[position] for position in part]), terms)
        except Refused as error:
            if len(part) == 1:
                refused[part[0]] = error
            else:  # one of them, or all: look closer
                half = len(part) // 2
                parts += [part[:half], part[half:]]
            continue
        add_up(sums, tallies.items())
    return Decoded(sums, refused)


def _form(batch: collector_pb2.Batch, position: int) -> Hashable:
    """Return a key shared by batches that may be decoded together; else the unique `position`."""
    if not 0 < batch.rows <= _SMALL:
        return position
    columns = []
    for column in batch.columns:
        if column.present:
            return position
        columns.append((column.attribute, column.level, column.map, len(column.codes)))
    head = (batch.survey, batch.revision, batch.period, batch.rows, len(batch.id))
    return *head, batch.panel, tuple(batch.properties), *columns


def _merged(batches: Sequence[collector_pb2.Batch]) -> collector_pb2.Batch:
    """Return one batch with the rows of several batches of one form."""
    first = batches[0]
    if len(batches) == 1:
        return first
    merged = collector_pb2.Batch(
        id=first.id,
        survey=first.survey,
        revision=first.revision,
        period=first.period,
        rows=len(batches) * first.rows,
        panel=first.panel,
        properties=first.properties,
    )
    # The codes by column, column after column.
    codes = zip(*([column.codes for column in batch.columns] for batch in batches), strict=True)
    for column, parts in zip(first.columns, codes, strict=True):
        merged.columns.add(
            attribute=column.attribute, level=column.level, map=column.map, codes=b"".join(parts)
        )
    return merged
