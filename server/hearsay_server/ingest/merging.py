"""Batches of one form, decoded as if they were one batch.

To decode a batch costs much the same for one row as for hundreds, and what devices send is mostly
small, and mostly alike. Every check of a batch is either of its form or of each of its codes by
itself, and tallies add up, so the batches are good, and count what they count, if and only if
that is true of all of them together.
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
    """What the good ones of some batches count together, and by position why others are not."""

    sums: Mapping[Cohort, Tally]
    refused: Mapping[int, Refused]


def decode_all(batches: Sequence[collector_pb2.Batch], terms: Terms) -> Decoded:
    """Return what `decode` says of each batch; batches that are alike are decoded as one.

    For b bad ones among n that are alike it is called at most about 2 b log2(n) times.
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
    """Return what batches have in common that can be decoded together; a position is unique."""
    if not 0 < batch.rows <= _SMALL:
        return position
    columns = []
    for column in batch.columns:
        if column.present:
            return position
        columns.append((column.attribute, column.level, len(column.codes)))
    head = (batch.survey, batch.revision, batch.period, batch.rows, len(batch.id))
    return *head, *columns


def _merged(batches: Sequence[collector_pb2.Batch]) -> collector_pb2.Batch:
    """Return one batch with the rows of some of one form."""
    first = batches[0]
    if len(batches) == 1:
        return first
    merged = collector_pb2.Batch(
        id=first.id,
        survey=first.survey,
        revision=first.revision,
        period=first.period,
        rows=len(batches) * first.rows,
    )
    # The codes by column, column after column.
    codes = zip(*([column.codes for column in batch.columns] for batch in batches), strict=True)
    for column, parts in zip(first.columns, codes, strict=True):
        merged.columns.add(attribute=column.attribute, level=column.level, codes=b"".join(parts))
    return merged
