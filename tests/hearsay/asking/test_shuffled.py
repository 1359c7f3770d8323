"""What a shuffler's mixing gives is bounded for whole records, among those that look alike."""

from collections.abc import Iterator

import pytest

from hearsay import InvalidInput
from hearsay.asking.shuffled import Cohort, cohorts
from hearsay.plans.plan import parse
from hearsay.v1 import analyst_pb2
from hearsay_server.surveys import survey as surveys
from ldp.assurance.amplification import shuffled
from support import DAILY

SEALED = """
name = "commute"
period = "P1D"
levels = { strict = 1.0, open = 4.0 }

[[attributes]]
name = "mode"
mechanism = "krr"

[attributes.categorical]
values = ["bus", "car", "foot", "train"]

[[attributes]]
name = "late"
mechanism = "krr"

[attributes.categorical]
values = ["yes", "no"]

[sealing]
"""


def resolved(text: str) -> bytes:
    return bytes(surveys.resolve(surveys.from_toml(text, "test.toml")))


def mixes(text: str, *kinds: tuple[str, str, str, int]) -> Iterator[analyst_pb2.MixesResponse]:
    """The plan, then a mix of each kind: period, level, questions, records."""
    yield analyst_pb2.MixesResponse(plan=resolved(text))
    for period, level, names, records in kinds:
        answers = [
            analyst_pb2.MixedAnswer(attribute=name, level=level) for name in sorted(names.split())
        ]
        mixed = analyst_pb2.Mixed(period=period, answers=answers, records=records)
        yield analyst_pb2.MixesResponse(mixed=[mixed])


def found(cohort: Cohort) -> tuple[str, str, str, int]:
    return cohort.period, cohort.level, cohort.attributes, cohort.records


def test_a_record_hides_among_those_of_its_line() -> None:
    first, second, third = cohorts(
        mixes(
            SEALED,
            ("2026-07-04", "strict", "mode late", 1200),
            ("2026-07-04", "strict", "mode", 800),
            ("2026-07-05", "open", "mode late", 999),
        )
    )
    assert found(first) == ("2026-07-04", "strict", "mode, late", 1200)
    assert found(second) == ("2026-07-04", "strict", "mode", 800)
    assert found(third) == ("2026-07-05", "open", "mode, late", 999)
    plan = parse(resolved(SEALED))
    strict = plan.levels["strict"]
    spent = sum(strict.by_map[name][""].realised_epsilon for name in ("mode", "late"))
    assert first.epsilon == pytest.approx(spent, rel=1e-15) and first.epsilon <= 1.0
    record = [strict.by_map[name][""] for name in ("mode", "late")]
    assert first.shuffled == shuffled(record, 1200, 1e-6).epsilon
    assert second.shuffled is None and third.shuffled is None  # fewer than 1,000


def test_forged_records_hide_nobody() -> None:
    kind = ("2026-07-04", "strict", "mode", 1200)
    (one,) = cohorts(mixes(SEALED, kind), delta=1e-8, forged=200)
    mechanism = parse(resolved(SEALED)).levels["strict"].by_map["mode"][""]
    assert (one.records, one.shuffled) == (1200, shuffled([mechanism], 1000, 1e-8).epsilon)
    assert cohorts(mixes(SEALED, kind), forged=201)[0].shuffled is None


def test_nothing_is_claimed_for_values_that_may_be_revealed_or_for_memos() -> None:
    head, late = SEALED.split('name = "late"\nmechanism = "krr"\n')
    revealing = f'{head}name = "late"\n{late}'.replace('"no"]', '"no"]\nsensitive = ["yes"]')
    kept = f'{head}name = "late"\nmemo = 2\n{late}'
    for text in (revealing, kept):
        kinds = [("2026-07-04", "strict", names, 3000) for names in ("mode", "mode late")]
        first, second = cohorts(mixes(text, *kinds))
        assert (first.attributes, second.attributes) == ("mode", "mode, late")
        assert first.shuffled is not None and second.shuffled is None


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        (DAILY, {}, "go to the server directly"),
        (SEALED.replace("period", "panels = 2\nperiod"), {}, "panel or properties in the clear"),
        (SEALED, {"forged": -1}, "expected forged >= 0 and delta between 0 and 1, got -1"),
        (SEALED, {"delta": 1.0}, "got 0 and 1.0"),
    ],
)
def test_what_cannot_be_bounded_is_refused(text: str, given: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        cohorts(mixes(text), **given)
