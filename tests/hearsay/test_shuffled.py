"""What a shuffler's mixing gives is bounded for whole records, among those that look alike."""

from collections.abc import Iterator

import pytest

from hearsay import InvalidInput
from hearsay.plans import presence
from hearsay.plans.plan import parse
from hearsay.shuffled import Cohort, cohorts
from hearsay.v1 import analyst_pb2, collector_pb2
from hearsay_server.surveys import survey as surveys
from ldp.assurance.amplification import clone_bound, krr_clone_mass
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


def chunks(
    text: str, *kinds: tuple[str, str, int, dict[str, int]]
) -> Iterator[analyst_pb2.ExportRowsResponse]:
    """The plan, then a chunk of each kind: period, level, rows, and how many rows answer each."""
    plan = resolved(text)
    yield analyst_pb2.ExportRowsResponse(plan=plan)
    for period, level, rows, answered in kinds:
        chunk = analyst_pb2.ExportRowsResponse(period=period, rows=rows)
        for name, count in answered.items():
            chunk.columns.append(
                collector_pb2.Column(
                    attribute=name,
                    level=level,
                    codes=bytes(count),
                    present=presence.pack([row < count for row in range(rows)]),
                )
            )
        yield chunk


def found(cohort: Cohort) -> tuple[str, str, str, int]:
    return cohort.period, cohort.level, cohort.attributes, cohort.records


def test_records_hide_only_among_those_that_tell_the_same_in_the_clear() -> None:
    both = {"mode": 2000, "late": 1200}
    first, second, third = cohorts(
        chunks(
            SEALED,
            ("2026-07-04", "strict", 2000, both),
            ("2026-07-05", "open", 999, {"mode": 999, "late": 999}),
        )
    )
    assert found(first) == ("2026-07-04", "strict", "mode, late", 1200)
    assert found(second) == ("2026-07-04", "strict", "mode", 800)
    assert found(third) == ("2026-07-05", "open", "mode, late", 999)
    plan = parse(resolved(SEALED))
    strict = plan.levels["strict"]
    spent = sum(strict.by_map[name][""].realised_epsilon for name in ("mode", "late"))
    assert first.epsilon == pytest.approx(spent, rel=1e-15) and first.epsilon <= 1.0
    assert first.shuffled == clone_bound(first.epsilon, 1200, 1e-6)
    assert second.shuffled is None and third.shuffled is None  # fewer than 1,000


def test_parts_of_a_period_are_counted_together_and_forged_records_hide_nobody() -> None:
    half = ("2026-07-04", "strict", 600, {"mode": 600})
    (one,) = cohorts(chunks(SEALED, half, half), delta=1e-8, forged=200)
    mechanism = parse(resolved(SEALED)).levels["strict"].by_map["mode"][""]
    mass = krr_clone_mass(mechanism)  # type: ignore[arg-type]
    assert (one.records, one.shuffled) == (1200, clone_bound(one.epsilon, 1000, 1e-8, mass))
    assert cohorts(chunks(SEALED, half, half), forged=201)[0].shuffled is None


def test_nothing_is_claimed_for_values_that_may_be_revealed_or_for_memos() -> None:
    head, late = SEALED.split('name = "late"\nmechanism = "krr"\n')
    revealing = f'{head}name = "late"\n{late}'.replace('"no"]', '"no"]\nsensitive = ["yes"]')
    kept = f'{head}name = "late"\nmemo = 2\n{late}'
    for text in (revealing, kept):
        rows = {"mode": 5000, "late": 2000}
        first, second = cohorts(chunks(text, ("2026-07-04", "strict", 5000, rows)))
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
        cohorts(chunks(text), **given)
