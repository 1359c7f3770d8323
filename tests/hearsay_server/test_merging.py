"""Batches decoded together are judged, and counted, as if each had been alone."""

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored import NOW, asked_of_decode, batch, daily, decoded, register, tallied, terms

from hearsay.v1 import collector_pb2
from hearsay_server.ingest.intake import Cohort, Limits, Refused
from hearsay_server.ingest.merging import decode_all
from hearsay_server.storage import retention
from hearsay_server.storage.store import Store
from hearsay_server.storage.verify import Verdict, verify
from ldp import Tally


def one_by_one(
    batches: Sequence[collector_pb2.Batch],
) -> tuple[dict[Cohort, Tally], dict[int, tuple[int, str]]]:
    sums: dict[Cohort, Tally] = {}
    refused = {}
    for position, each in enumerate(batches):
        try:
            tallies = decoded(each)
        except Refused as error:
            refused[position] = (error.reason, str(error))
            continue
        for cohort, tally in tallies.items():
            sums[cohort] = sums[cohort] + tally if cohort in sums else tally
    return sums, refused


SPOILED: dict[str, Callable[[collector_pb2.Batch, collector_pb2.Column], object]] = {
    "good": lambda bad, first: None,
    "impossible code": lambda bad, first: setattr(first, "codes", b"\xff"),
    "no codes": lambda bad, first: setattr(first, "codes", b""),
    "codes to spare": lambda bad, first: setattr(first, "codes", b"\x00\x01"),
    "rows without codes": lambda bad, first: setattr(bad, "rows", 2),
    "no rows": lambda bad, first: setattr(bad, "rows", 0),
    "no columns": lambda bad, first: bad.ClearField("columns"),
    "a column twice": lambda bad, first: bad.columns.add().CopyFrom(first),
    "unknown attribute": lambda bad, first: setattr(first, "attribute", "height"),
    "unknown level": lambda bad, first: setattr(first, "level", "lax"),
    "unknown survey": lambda bad, first: setattr(bad, "survey", "weather"),
    "another revision": lambda bad, first: setattr(bad, "revision", b"r"),
    "another period": lambda bad, first: setattr(bad, "period", "2026-07-04"),
    "short id": lambda bad, first: setattr(bad, "id", b"i"),
    "presence bits": lambda bad, first: setattr(first, "present", b"\x01"),
    "presence bits of none": lambda bad, first: setattr(first, "present", b"\x00"),
    "two rows": lambda bad, first: double(bad),  # of an unusual form, but good
}


def double(batch: collector_pb2.Batch) -> None:
    batch.rows = 2
    for column in batch.columns:
        column.codes *= 2


def spoil(kind: str, good: collector_pb2.Batch) -> collector_pb2.Batch:
    """Return a copy of the batch that is spoiled in this way."""
    bad = collector_pb2.Batch()
    bad.CopyFrom(good)
    SPOILED[kind](bad, bad.columns[0])
    return bad


KINDS = tuple(SPOILED)


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(("good", "two rows", *KINDS))), max_size=40)
)
def test_what_is_decoded_together_is_what_each_is_alone(kinds: list[tuple[bool, str]]) -> None:
    batches = [
        spoil(kind, daily(number, number % 3) if often else batch(number))
        for number, (often, kind) in enumerate(kinds)
    ]
    together = decode_all(batches, terms())
    sums, refused = one_by_one(batches)
    assert together.sums == sums
    assert {n: (why.reason, str(why)) for n, why in together.refused.items()} == refused


@pytest.mark.parametrize("kind", KINDS[1:-1])
def test_one_bad_batch_costs_the_others_nothing_and_little_time(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [batch(2 * number) for number in range(256)]  # all of one form
    batches[100] = spoil(kind, batches[100])
    asked = asked_of_decode(monkeypatch)
    together = decode_all(batches, terms())
    sums, refused = one_by_one(batches)
    assert together.sums == sums
    assert together.refused.keys() == refused.keys()
    assert len(asked) <= 1 + 2 * 8  # the halves that hold it, each with its sibling


def test_small_ones_of_one_form_are_one_and_large_ones_are_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asked_of_decode(monkeypatch)
    small = [batch(0) for _ in range(50)]
    large = [collector_pb2.Batch(survey="health", rows=1000) for _ in range(3)]
    decode_all([*small, *large], terms())
    assert sorted(asked) == [50, 1000, 1000, 1000]


def judged(outcomes: Sequence[bool | Refused]) -> list[object]:
    return [(o.reason, str(o)) if isinstance(o, Refused) else o for o in outcomes]


@pytest.mark.parametrize("seed", range(4))
def test_a_group_fares_as_its_batches_would_one_after_the_other(seed: int, tmp_path: Path) -> None:
    """Replays, twins of one id, bad batches, closed periods, caps: in any mixture."""
    chance = random.Random(seed)
    sent: list[tuple[str, collector_pb2.Batch]] = []
    for number in range(90):
        each = daily(number, chance.randrange(4)) if chance.random() < 0.4 else batch(number)
        if chance.random() < 0.3:
            each = spoil(chance.choice(KINDS), each)
        if sent and chance.random() < 0.3:  # an id that came before, good or bad as it was
            earlier = chance.choice(sent[-20:])[1]
            each.id = earlier.id
            each = chance.choice((earlier, each))
        sent.append((chance.choice("aaab"), each))
    fates, kept = [], []
    for name, sizes in (("alone", [1]), ("grouped", [2, 5, 20])):
        with closing(Store(tmp_path / name)) as store:
            register(store)
            retention.close_survey(store.database, "daily", f"{NOW - timedelta(days=2):%Y-%m-%d}")
            answers, rest = list[object](), sent
            while rest:
                size = chance.choice(sizes)
                group, rest = rest[:size], rest[size:]
                answers += judged(store.add(group, NOW, Limits(token_rows=12)))
            fates.append(answers)
            kept.append((tallied(store, "health"), tallied(store, "daily"), store.surveys()))
            assert all(found.verdict is Verdict.EQUAL for found in verify(store.database))
    assert fates[0] == fates[1]
    assert kept[0] == kept[1]
    assert {True, False} <= set(fates[0])
    assert len({fate[0] for fate in fates[0] if isinstance(fate, tuple)}) >= 6  # reasons
