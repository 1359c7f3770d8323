"""How a survey's records are sealed: the threshold, the one size, and which key a period has."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Protocol

from hearsay.plans import period
from hearsay.plans.properties import Properties
from hearsay.v1 import collector_pb2, shuffler_pb2, survey_pb2
from ldp import InvalidInput, Mechanism
from ldp.planning.budget import Budget

LEAST = 1000
"""The least threshold of a shuffler: below, amplification claims nothing."""

STEP = 256
"""Padded records have a multiple of so many bytes."""

PREFIX_BYTES = 4
"""Bytes before a record in its padding: its length, big-endian."""

TRUST = (
    "This holds against the collector alone, if the shuffler is honest and tells the collector "
    "nothing, and if the other records of the line are honest. Records of one person in several "
    "periods add up. Every device's ledger is charged the local epsilon, which holds against "
    "everybody."
)
"""Who must be honest for what mixing is said to give."""

MOST_KEYS, MOST_DAYS = 255, 366
"""The most keys of a survey, whose place is a byte in a KeyConfig, and of days that one lasts."""

DEFAULT_DAYS, DEFAULT_KEYS = 30, 24

_MOST_SIZE = 1 << 21
_KEY_BYTES = 32


@dataclass(frozen=True)
class Sealing:
    """What a plan says of sealing. `publics` are X25519 keys, and `since` says from when on each
    has its turn, in seconds since 1970; both are empty before the survey is registered."""

    least: int
    size: int
    rotate_days: int
    key_count: int
    publics: tuple[bytes, ...]
    since: tuple[int, ...]

    def key(self, unit: str, name: str) -> int:
        """Return the place of the key of the period `name` of `unit`: the last key whose `since`
        is not after the period's beginning, or the first one where there is none.

        Raises `InvalidInput` where `name` is no period, and where there are no keys yet.
        """
        if not self.since:
            raise InvalidInput("this plan has no keys to seal with: its survey is not registered")
        begin = period.start(unit, name)
        if begin == datetime.min.replace(tzinfo=UTC):  # once: it has no beginning
            return 0
        return max(0, bisect_right(self.since, int(begin.timestamp())) - 1)


def sealing_of(survey: survey_pb2.Survey) -> Sealing | None:
    """Return how a survey's records are sealed, as a plan says it; None where they are not.

    Raises `InvalidInput` where the threshold is less than 1,000, the size no multiple of 256 up to
    2 MiB, or the keys are no X25519 keys, not different, or not in the order of their turns.
    """
    if not survey.HasField("sealing"):
        return None
    wire = survey.sealing
    if wire.least < LEAST:
        raise InvalidInput(f"sealing: least must be >= {LEAST:,}, got {wire.least:,}")
    if not 1 <= wire.rotate_days <= MOST_DAYS:
        raise InvalidInput(
            f"sealing: rotate_days must be 1 to {MOST_DAYS}, got {wire.rotate_days:,}"
        )
    if not 1 <= wire.key_count <= MOST_KEYS:
        raise InvalidInput(f"sealing: key_count must be 1 to {MOST_KEYS}, got {wire.key_count:,}")
    if not 0 < wire.size <= _MOST_SIZE or wire.size % STEP:
        raise InvalidInput(
            f"sealing: size must be a multiple of {STEP} bytes, at most {_MOST_SIZE:,}, "
            f"got {wire.size:,}"
        )
    if len(wire.keys) > MOST_KEYS:
        raise InvalidInput(f"sealing: there are at most {MOST_KEYS} keys, got {len(wire.keys)}")
    publics = tuple(key.public for key in wire.keys)
    since = tuple(key.since for key in wire.keys)
    for public in publics:
        if len(public) != _KEY_BYTES:
            raise InvalidInput(f"sealing: a key has {_KEY_BYTES} bytes, got {len(public)}")
    if len(set(publics)) != len(publics):
        raise InvalidInput("sealing: two keys are the same")
    if any(later <= earlier for earlier, later in pairwise(since)):
        raise InvalidInput("sealing: the times of the keys must rise")
    return Sealing(wire.least, wire.size, wire.rotate_days, wire.key_count, publics, since)


class Level(Protocol):
    """What a level says of the size of records: see `hearsay.plans.plan.Level`."""

    @property
    def name(self) -> str: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def by_map(self) -> Mapping[str, Mapping[str, Mechanism]]: ...


def least_size(
    survey: survey_pb2.Survey,
    asked: Iterable[str],
    levels: Iterable[Level],
    properties: Properties,
) -> int:
    """Return the bytes of a padded record: the least multiple of 256 that fits the largest one.

    The largest record reports the questions of the longest columns, as many as one may report at
    its level, and has the longest value of each property. A `Forget` always fits.
    """
    longest = [max(each.values, key=lambda v: len(v.encode())) for each in properties.declared]
    common = collector_pb2.Batch(
        id=bytes(16),
        survey=survey.name,
        revision=bytes(32),
        period=period.label(survey.period, datetime(2000, 1, 1, tzinfo=UTC)),
        rows=1,
        panel=survey.panels,
        properties=longest,
    )
    largest = 0
    for level in levels:
        columns = [_largest(level.name, name, level.by_map[name]) for name in asked]
        columns.sort(key=lambda column: -column.ByteSize())
        record = collector_pb2.Batch()
        record.CopyFrom(common)
        record.columns.extend(columns[: level.budget.reported])
        largest = max(largest, shuffler_pb2.Sealed(batch=record).ByteSize())
    return -(-(PREFIX_BYTES + largest) // STEP) * STEP


def _largest(level: str, name: str, by_map: Mapping[str, Mechanism]) -> collector_pb2.Column:
    """Return the longest column that one row of a question has at a level."""
    columns = (
        collector_pb2.Column(
            attribute=name, level=level, codes=bytes(mechanism.code_bytes), map=chosen
        )
        for chosen, mechanism in by_map.items()
    )
    return max(columns, key=lambda column: column.ByteSize())


DELTA = 1e-6
"""The delta of what is said of records in a shuffler's order, unless another is asked for."""
