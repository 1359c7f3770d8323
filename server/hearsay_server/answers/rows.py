"""Stream the stored rows, still randomised, without anything that links them.

A batch's id, its borders and its place among the others could link rows of one device, or tell
when they came: rows leave here in chunks that mix batches, in an order drawn anew.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hearsay.plans import presence
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2, collector_pb2
from ldp.assurance.suspicion import Supports, has_tests, supports
from ldp.errors import InvalidInput
from ldp.estimating.pairs import PairTally, count_pairs
from ldp.estimating.sets import can_pair

_CHUNK = 1 << 20
"""Bytes of codes in one message, about: below gRPC's default limit of a message."""

_TESTED = 1 << 16
"""Reports whose supports are counted at once."""

_Key = tuple[str, str, str]
"""An attribute, a level and a map; "" for none."""

Batches = Iterable[Sequence[collector_pb2.Batch]]
"""Pages of batches, each of one period. The batches were checked before they were stored."""


def chunks(
    plan: Plan, batches: Batches, levels: Collection[str], source: np.random.Generator
) -> Iterator[analyst_pb2.ExportRowsResponse]:
    """Yield the answers at these levels of the batches' rows, leaving out rows that have none.

    The rows of a page are mixed in an order that `source` draws.
    """
    for page in batches:
        yield from _mixed(plan, page, levels, source)


def _mixed(
    plan: Plan,
    batches: Sequence[collector_pb2.Batch],
    levels: Collection[str],
    source: np.random.Generator,
) -> Iterator[analyst_pb2.ExportRowsResponse]:
    answered = np.zeros(sum(batch.rows for batch in batches), dtype=bool)
    places: dict[_Key, list[NDArray[np.intp]]] = {}
    codes: dict[_Key, list[bytes]] = {}
    start = 0
    for batch in batches:
        for column in batch.columns:
            if column.level not in levels:
                continue
            key = column.attribute, column.level, column.map
            where = start + np.flatnonzero(presence.unpack(column.present, batch.rows))
            answered[where] = True
            places.setdefault(key, []).append(where)
            codes.setdefault(key, []).append(column.codes)
        start += batch.rows
    rows = int(np.count_nonzero(answered))
    order = np.empty(answered.size, dtype=np.intp)
    order[answered] = source.permutation(rows)
    columns = {}
    for key, parts in places.items():
        attribute, level, chosen = key
        width = plan.levels[level].by_map[attribute][chosen].code_bytes
        where = order[np.concatenate(parts)]
        entries = np.frombuffer(b"".join(codes[key]), dtype=np.uint8).reshape(-1, width)
        sorting = np.argsort(where)
        columns[key] = where[sorting], entries[sorting]
    size = sum(entries.size for _, entries in columns.values())
    step = max(1, rows * _CHUNK // max(size, 1))
    for begin in range(0, rows, step):
        count = min(step, rows - begin)
        yield analyst_pb2.ExportRowsResponse(
            period=batches[0].period,
            rows=count,
            columns=[
                _column(key, where, entries, begin, count)
                for key, (where, entries) in columns.items()
                if np.searchsorted(where, begin) < np.searchsorted(where, begin + count)
            ],
        )


def _column(
    key: _Key,
    where: NDArray[np.intp],
    entries: NDArray[np.uint8],
    begin: int,
    count: int,
) -> collector_pb2.Column:
    """Return the part of a column that is in rows begin..begin + count - 1."""
    first, last = np.searchsorted(where, (begin, begin + count))
    present = np.zeros(count, dtype=bool)
    present[where[first:last] - begin] = True
    return collector_pb2.Column(
        attribute=key[0],
        level=key[1],
        map=key[2],
        codes=entries[first:last].tobytes(),
        present=presence.pack(present),
    )


def pairs_by_level(
    plan: Plan, attribute: str, levels: Iterable[str], batches: Batches
) -> dict[str, PairTally]:
    """Return the counts of pairs of members of a set's reports, for the levels that tell pairs.

    Raises `InvalidInput` where no level does.
    """
    mechanisms = {name: plan.levels[name].mechanisms[attribute] for name in levels}
    telling = {name: m for name, m in mechanisms.items() if can_pair(m)}
    if not telling:
        names = " and ".join(sorted({m.name for m in mechanisms.values()}))
        raise InvalidInput(
            f"no report of {attribute!r} tells which items go together: that takes the mechanism "
            f"set_pairs in the survey, and its reports, of {names}, do not"
        )
    found: dict[str, PairTally] = {}
    for page in batches:
        for batch in page:
            for column in batch.columns:
                if column.attribute != attribute or column.level not in telling:
                    continue
                mechanism = telling[column.level]
                codes = mechanism.decode(column.codes, len(column.codes) // mechanism.code_bytes)
                seen = count_pairs(mechanism, codes, mechanism, codes)
                level = column.level
                found[level] = found[level] + seen if level in found else seen
    return found


def supports_by_level(
    plan: Plan, attribute: str, levels: Iterable[str], targets: Sequence[int], batches: Batches
) -> dict[str, Supports]:
    """Return the supports of each level's reports, for the levels that can be tested.

    Reports of people who chose a map are left out: none of their mechanisms has tests. Raises
    `InvalidInput` where no level can be.
    """
    mechanisms = {name: plan.levels[name].mechanisms[attribute] for name in levels}
    tested = {name: m for name, m in mechanisms.items() if has_tests(m)}
    if not tested:
        supports(next(iter(mechanisms.values())), np.empty(0), targets)  # says why not
    found: dict[str, Supports] = {}
    for page in batches:
        codes: dict[str, list[bytes]] = {name: [] for name in tested}
        for batch in page:
            for column in batch.columns:
                if (column.attribute, column.map) == (attribute, "") and column.level in tested:
                    codes[column.level].append(column.codes)
        for name, parts in codes.items():
            data, mechanism = b"".join(parts), tested[name]
            step = _TESTED * mechanism.code_bytes
            for begin in range(0, len(data), step):
                some = data[begin : begin + step]
                read = mechanism.decode(some, len(some) // mechanism.code_bytes)
                seen = supports(mechanism, read, targets)
                found[name] = found[name] + seen if name in found else seen
    return found
