"""A batch is decoded strictly: every refusal has its reason, and leaves nothing behind."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearsay.plans import plan
from hearsay.v1 import collector_pb2
from hearsay_server.ingest.intake import Cohort, Limits, Refused, Terms, decode
from hearsay_server.surveys import survey as surveys
from ldp import Tally
from support import SURVEY

ONCE = SURVEY.replace('mechanism = "hybrid"', 'mechanism = "onebit"')
PLAN = plan.parse(surveys.resolve(surveys.from_toml(ONCE, "test.toml")))
DAILY = plan.parse(
    surveys.resolve(surveys.from_toml(ONCE.replace("[levels]", 'period="P1D"\n[levels]'), "d"))
)
NOW = datetime(2026, 7, 4, 12, tzinfo=UTC)
Column = collector_pb2.Column
Change = Callable[[collector_pb2.Batch], object]


def batch() -> collector_pb2.Batch:
    """Nine records: all say whether they smoke, two of them at another level; five give an age."""
    return collector_pb2.Batch(
        id=bytes(range(16)),
        survey="health",
        revision=PLAN.revision,
        period="once",
        rows=9,
        columns=[
            Column(
                attribute="smokes",
                level="strict",
                codes=bytes([0, 1, 2, 0, 1, 2, 0]),
                present=b"\x7f\x00",
            ),
            Column(attribute="smokes", level="open", codes=b"\x02\x02", present=b"\x80\x01"),
            Column(attribute="age", level="open", codes=b"\1\1\0\1\1", present=b"\x1f\x00"),
        ],
    )


def take(message: collector_pb2.Batch, resolved: plan.Plan = PLAN) -> dict[Cohort, Tally]:
    return decode(message, Terms({"health": resolved}, NOW, Limits(batch_rows=1 << 32)))


def test_a_good_batch_becomes_one_tally_per_cohort() -> None:
    tallies = {(c.attribute, c.level): t for c, t in take(batch()).items()}
    assert {key: (t.n, t.counts.tolist()) for key, t in tallies.items()} == {
        ("smokes", "strict"): (7, [3, 2, 2]),
        ("smokes", "open"): (2, [0, 0, 2]),
        ("age", "open"): (5, [1, 4]),
    }


def _put(**fields: object) -> Change:
    def change(message: collector_pb2.Batch) -> None:
        for name, value in fields.items():
            setattr(message, name, value)

    return change


def _put_column(index: int, **fields: object) -> Change:
    def change(message: collector_pb2.Batch) -> None:
        for name, value in fields.items():
            setattr(message.columns[index], name, value)

    return change


REFUSED: dict[str, tuple[Change, str, str]] = {
    "short id": (_put(id=b"abc"), "BAD_ID", "a batch id is 16 bytes, got 3"),
    "no id": (_put(id=b""), "BAD_ID", "got 0"),
    "survey": (_put(survey="x"), "UNKNOWN_SURVEY", "there is no survey 'x' here"),
    "revision": (_put(revision=b"\xab" * 32), "UNKNOWN_REVISION", "got abababababab: fetch"),
    "no revision": (_put(revision=b""), "UNKNOWN_REVISION", "got none"),
    "period": (_put(period="2026"), "BAD_PERIOD", "the one period 'once', got '2026'"),
    "no rows": (_put(rows=0), "BAD_ROWS", "at least one row, got 0"),
    "no columns": (lambda b: b.ClearField("columns"), "BAD_ROWS", "9 rows has no column"),
    "attribute": (_put_column(0, attribute="x"), "BAD_COLUMN", "'health' has no attribute 'x'"),
    "level": (_put_column(0, level="x"), "BAD_COLUMN", "'health' has no level 'x'"),
    "column twice": (_put_column(1, level="strict"), "BAD_COLUMN", "'strict' is there twice"),
    "row twice": (
        _put_column(1, present=b"\x81\x00"),
        "BAD_COLUMN",
        "row 0 answers 'smokes' twice",
    ),
    "short presence": (_put_column(0, present=b"\x7f"), "BAD_COLUMN", "9 rows take 2 bytes"),
    "long presence": (_put_column(0, present=b"\x7f\0\0"), "BAD_COLUMN", "presence bits, got 3"),
    "presence beyond": (
        _put_column(0, present=b"\x7f\x80"),
        "BAD_COLUMN",
        "a presence bit lies beyond row 8",
    ),
    "presence of none": (_put_column(0, present=b"\0\0"), "BAD_COLUMN", "no row is present"),
    "too few codes": (
        _put_column(0, codes=b"\0\0"),
        "BAD_CODES",
        "'smokes': 7 krr codes take 7 bytes, got 2",
    ),
    "trailing bytes": (_put_column(0, codes=bytes(8)), "BAD_CODES", "take 7 bytes, got 8"),
    "code outside": (
        _put_column(0, codes=bytes([0, 1, 3, 0, 0, 0, 0])),
        "BAD_CODES",
        "'smokes': a krr code must be below 3, got 3",
    ),
    "row that answers nothing": (lambda b: b.columns.pop(1), "BAD_ROWS", "row 7 answers nothing"),
    "rows without codes": (
        lambda b: (_put(rows=2**32 - 1)(b), _put_column(0, present=b"")(b)),
        "BAD_CODES",
        "4294967295 rows take at least 4294967295 bytes of codes, got 7",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_batch_is_refused_with_its_reason(case: str) -> None:
    change, reason, detail = REFUSED[case]
    message = batch()
    change(message)
    with pytest.raises(Refused) as refused:
        take(message)
    assert collector_pb2.Reason.Name(refused.value.reason) == reason
    assert detail in str(refused.value)


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("2026-7-4", "a P1D period reads like '2026-07-04', got '2026-7-4'"),
        ("2026-07-06", "the period '2026-07-06' has not begun yet"),
        ("2026-05-04", "the period '2026-05-04' is closed"),
    ],
)
def test_a_bad_period_is_refused(name: str, detail: str) -> None:
    message = batch()
    message.revision = DAILY.revision
    message.period = name
    with pytest.raises(Refused, match=detail):
        take(message, DAILY)


@pytest.mark.parametrize("name", ["2026-07-05", "2026-05-05"])
def test_a_clock_one_day_ahead_and_a_report_sixty_days_late_are_forgiven(name: str) -> None:
    message = batch()
    message.revision = DAILY.revision
    message.period = name
    assert {cohort.period for cohort in take(message, DAILY)} == {name}


@pytest.mark.parametrize("case", ["survey", "revision", "period to come"])
def test_what_may_become_right_is_not_refused_for_good(case: str) -> None:
    message = batch()
    message.revision = DAILY.revision
    message.period = "2027-01-01"
    change: dict[str, Change] = {"survey": _put(survey="x"), "revision": _put(revision=b"x")}
    change.get(case, lambda b: None)(message)
    with pytest.raises(Refused) as refused:
        take(message, DAILY)
    assert not refused.value.final


columns = st.builds(
    Column,
    attribute=st.sampled_from(["smokes", "age", "x"]),
    level=st.sampled_from(["strict", "open", "x"]),
    codes=st.binary(max_size=12),
    present=st.binary(max_size=3),
)


@given(st.integers(0, 12), st.lists(columns, max_size=4))
def test_random_columns_are_counted_in_full_or_refused(
    rows: int, given_columns: list[Column]
) -> None:
    message = batch()
    message.rows = rows
    del message.columns[:]
    message.columns.extend(given_columns)
    try:
        tallies = take(message)
    except Refused:
        return
    for attribute in ("smokes", "age"):
        assert sum(t.n for c, t in tallies.items() if c.attribute == attribute) <= rows
    assert all(tally.n == tally.counts.sum() for tally in tallies.values())
