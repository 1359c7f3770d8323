"""Judge a group of batches against stored ids and surveys: a pure function."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.unknown_fields import UnknownFieldSet

from hearsay.v1 import collector_pb2
from hearsay_server.ingest.intake import Cohort, Reason, Refused, Terms, closed, ends
from hearsay_server.ingest.merging import decode_all
from ldp import Tally
from ldp.core.tally import add_up

Outcome = bool | Refused
"""True for a new batch, False for one that is stored already, or why a batch is refused."""


Key = tuple[str, str, bytes]
"""A survey, a period and an id, which tell one batch from another."""


def key(batch: collector_pb2.Batch) -> Key:
    """Return what tells a batch from others."""
    return batch.survey, batch.period, batch.id


@dataclass(frozen=True)
class State:
    """A stored survey's revision and time unit; periods that end by `closed_before` are closed."""

    revision: bytes
    unit: str
    closed_before: int


@dataclass(frozen=True)
class Kept:
    """A known batch: its rows, 0 once forgotten, and its bytes, None once dropped."""

    rows: int
    data: bytes | None


@dataclass(frozen=True)
class Stored:
    """The stored batches with the keys of a group, and the stored surveys of the group."""

    batches: Mapping[Key, Kept]
    surveys: Mapping[str, State]


@dataclass(frozen=True)
class New:
    """A batch to be stored, its position in the group, and its bytes."""

    position: int
    batch: collector_pb2.Batch
    data: bytes


@dataclass(frozen=True)
class Judged:
    """The outcomes of a group of batches; the new batches, and the sums of their tallies."""

    outcomes: list[Outcome]
    fresh: list[New]
    sums: dict[Cohort, Tally]
    twins: set[Key]
    """Keys that several batches of the group have."""

    @property
    def refused(self) -> bool:
        """Whether any batch is refused."""
        return any(isinstance(outcome, Refused) for outcome in self.outcomes)


When = tuple[str, bytes, str]
"""A survey, a revision and a period, which decide whether a good batch is late."""


def judge(
    batches: Sequence[collector_pb2.Batch],
    terms: Terms,
    stored: Stored | None = None,
    barred: Mapping[int, Refused] | None = None,
) -> Judged:
    """Judge a group of batches; without `stored`, as if none were known and no period closed.

    True: the batch is new. False: the same batch is stored, or stands earlier in the group.
    `Refused`: `decode` refuses it, its period is closed, its device asked to forget it, another
    batch of its period has its id, or `barred` says so, which is keyed by position.
    """
    known = dict(stored.batches) if stored else {}
    states = stored.surveys if stored else None
    barred = {**_with_unknown_fields(batches), **(barred or {})}
    judged = Judged([True] * len(batches), [], {}, set())
    data = [batch.SerializeToString(deterministic=True) for batch in batches]
    waiting: Sequence[int] = range(len(batches))
    while waiting:
        first: dict[Key, int] = {}
        later: list[int] = []  # of a key that stands earlier, and may be refused there
        for position in waiting:
            this = key(batches[position])
            if this in known:
                judged.outcomes[position] = _again(this, data[position], known[this])
            elif position in barred:
                judged.outcomes[position] = barred[position]
            elif first.setdefault(this, position) != position:
                later.append(position)
                judged.twins.add(this)
        new = [New(position, batches[position], data[position]) for position in first.values()]
        for good in _decode(judged, new, states, terms):
            known[key(good.batch)] = Kept(good.batch.rows, good.data)
            judged.fresh.append(good)
        waiting = later
    return judged


def without(judged: Judged, positions: Collection[int], terms: Terms) -> dict[Cohort, Tally]:
    """Return the sums of the new batches' tallies, without the batches at `positions`.

    `terms` must be the terms of the judgement. Raises `Refused` where a fault of ours keeps one
    of these batches from being decoded again: the other batches' sums are not known then.
    """
    out = decode_all([new.batch for new in judged.fresh if new.position in positions], terms)
    for refused in out.refused.values():
        raise refused
    rest = dict(judged.sums)
    for cohort, tally in out.sums.items():
        whole = rest.pop(cohort)
        if whole.n > tally.n:
            rest[cohort] = Tally(whole.n - tally.n, whole.counts - tally.counts)
    return rest


def when(batch: collector_pb2.Batch) -> When:
    """Return a batch's survey, revision and period, which decide whether it is late."""
    return batch.survey, batch.revision, batch.period


def end(when_: When, states: Mapping[str, State]) -> int:
    """Return the period's end in Unix time; raise `Refused` where it is closed, or unknown."""
    survey, revision, period = when_
    state = states.get(survey)
    if state is None:  # deleted by another process since its plan was looked up
        detail = f"there is no survey {survey!r} here"
        raise Refused(Reason.UNKNOWN_SURVEY, detail, final=False)
    if state.revision != revision:
        detail = f"{survey!r} has another plan now: fetch it again"
        raise Refused(Reason.UNKNOWN_REVISION, detail, final=False)
    last = ends(state.unit, period)
    if last <= state.closed_before:
        raise closed(period)
    return last


def _decode(
    judged: Judged, new: Sequence[New], states: Mapping[str, State] | None, terms: Terms
) -> list[New]:
    """Add the outcomes and tallies of batches to `judged`; return the batches to be stored."""
    decoded = decode_all([each.batch for each in new], terms)
    late: dict[When, Refused | None] = {}
    good = []
    for number, each in enumerate(new):
        refused = decoded.refused.get(number)
        by_clock = refused is not None and refused.reason == Reason.PERIOD_CLOSED
        if states is not None and (refused is None or by_clock):
            key = when(each.batch)
            if key not in late:
                late[key] = _late(key, states)
            refused = late[key] or refused
        if refused is None:
            good.append(each)
        else:
            judged.outcomes[each.position] = refused
    in_time = (
        (cohort, tally)
        for cohort, tally in decoded.sums.items()
        if not late.get((cohort.survey, cohort.revision, cohort.period))
    )
    add_up(judged.sums, in_time)
    return good


def _with_unknown_fields(batches: Sequence[collector_pb2.Batch]) -> dict[int, Refused]:
    """Refuse batches with fields that the protocol lacks, by position.

    They would be stored with the batch, and no limit on its rows would bound their size.
    """
    return {
        position: Refused(
            Reason.UNKNOWN_FIELDS, "a batch or column has fields that are unknown here", final=False
        )
        for position, batch in enumerate(batches)
        if any(len(UnknownFieldSet(part)) for part in (batch, *batch.columns))
    }


def _again(key: Key, data: bytes, kept: Kept) -> Outcome:
    """Return the outcome of a batch whose key is known: False where it is the same batch."""
    if not kept.rows:
        return Refused(Reason.FORGOTTEN, "its device asked to forget this batch")
    if kept.data is not None and kept.data != data:
        detail = f"another batch has the id {key[-1].hex()}: draw ids at random"
        return Refused(Reason.BAD_ID, detail)
    return False


def _late(when_: When, states: Mapping[str, State]) -> Refused | None:
    try:
        end(when_, states)
    except Refused as refused:
        return refused
    return None
