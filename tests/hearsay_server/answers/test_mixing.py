"""What a shuffler's mixing gives is bounded for whole records, among those that look alike."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hearsay import InvalidInput
from hearsay.asking import Answer, wire
from hearsay.checking import answers, tables
from hearsay.plans.plan import parse
from hearsay.v1 import analyst_pb2
from hearsay_server import cells
from hearsay_server.answers import mixing
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


def mixes(*kinds: tuple[str, str, str, int]) -> list[analyst_pb2.Mixed]:
    """A mix of each kind: period, level, questions, records."""
    return [
        analyst_pb2.Mixed(
            period=period,
            answers=[
                analyst_pb2.MixedAnswer(attribute=name, level=level)
                for name in sorted(names.split())
            ],
            records=records,
        )
        for period, level, names, records in kinds
    ]


def rows(text: str, *kinds: tuple[str, str, str, int], **given: Any) -> list[Any]:
    """The rows of an answer, as a DataFrame has them."""
    plan, request = parse(resolved(text)), analyst_pb2.MixingRequest(**given)
    mixing.check(plan, request)
    return list(mixing.mixing(plan, request, mixes(*kinds)).to_frame().itertuples())


def test_a_record_hides_among_those_of_its_line() -> None:
    third, first, second = rows(
        SEALED,
        ("2026-07-04", "strict", "mode late", 1200),
        ("2026-07-04", "strict", "mode", 800),
        ("2026-07-05", "open", "mode late", 999),
    )
    assert (first.Index, first.records) == (("2026-07-04", "strict", "mode, late"), 1200)
    assert (second.Index, second.records) == (("2026-07-04", "strict", "mode"), 800)
    assert (third.Index, third.records) == (("2026-07-05", "open", "mode, late"), 999)
    plan = parse(resolved(SEALED))
    strict = plan.levels["strict"]
    spent = sum(strict.by_map[name][""].realised_epsilon for name in ("mode", "late"))
    assert first.epsilon == pytest.approx(spent, rel=1e-15) and first.epsilon <= 1.0
    record = [strict.by_map[name][""] for name in ("mode", "late")]
    assert first.shuffled_epsilon == shuffled(record, 1200, 1e-6).epsilon
    assert math.isnan(second.shuffled_epsilon)  # fewer than 1,000
    assert math.isnan(third.shuffled_epsilon)


def test_forged_records_hide_nobody() -> None:
    kind = ("2026-07-04", "strict", "mode", 1200)
    (one,) = rows(SEALED, kind, delta=1e-8, forged=200)
    mechanism = parse(resolved(SEALED)).levels["strict"].by_map["mode"][""]
    assert one.records == 1200
    assert one.shuffled_epsilon == shuffled([mechanism], 1000, 1e-8).epsilon
    assert math.isnan(rows(SEALED, kind, forged=201)[0].shuffled_epsilon)


def test_nothing_is_claimed_for_values_that_may_be_revealed_or_for_memos() -> None:
    head, late = SEALED.split('name = "late"\nmechanism = "krr"\n')
    revealing = f'{head}name = "late"\n{late}'.replace('"no"]', '"no"]\nsensitive = ["yes"]')
    kept = f'{head}name = "late"\nmemo = 2\n{late}'
    for text in (revealing, kept):
        kinds = [("2026-07-04", "strict", names, 3000) for names in ("mode", "mode late")]
        first, second = rows(text, *kinds)
        assert (first.Index[2], second.Index[2]) == ("mode", "mode, late")
        assert first.shuffled_epsilon > 0 and math.isnan(second.shuffled_epsilon)


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        (DAILY, {}, "go to the server directly"),
        (SEALED.replace("period", "panels = 2\nperiod"), {}, "panel or properties in the clear"),
        (SEALED, {"delta": 1.0}, "expected delta between 0 and 1, got 1"),
        (SEALED, {"delta": math.nan}, "got nan"),
    ],
)
def test_what_cannot_be_bounded_is_refused(text: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        rows(text, **given)


def columns(number: int, name: str) -> Callable[[Answer], Answer]:
    """Return a lie: the first row's number in a column."""

    def lie(answer: Answer) -> Answer:
        table = answer.table()
        changed = [
            replace(each, values=np.r_[number, each.values[1:]]) if each.name == name else each
            for each in table.columns
        ]
        return replace(answer, tables=(replace(table, columns=tuple(changed)),))

    return lie


def labelled(level: str, label: str) -> Callable[[Answer], Answer]:
    """Return a lie: the first row's label in a level of the index."""

    def lie(answer: Answer) -> Answer:
        table = answer.table()
        changed = [
            replace(each, labels=[label, *each.labels[1:]]) if each.name == level else each
            for each in table.index
        ]
        return replace(answer, tables=(replace(table, index=tuple(changed)),))

    return lie


def told(**figures: Any) -> Callable[[Answer], Answer]:
    return lambda answer: replace(answer, figures=answer.figures | figures)


LIES = {
    "a bound above what is spent": columns(2, "shuffled_epsilon"),
    "a bound below zero": columns(-1, "shuffled_epsilon"),
    "an epsilon that is missing": columns(math.nan, "epsilon"),
    "a part of a record": columns(0.5, "records"),
    "a period that was not asked for": labelled("period", "2026-07-03"),
    "no period": labelled("period", "yesterday"),
    "another level": labelled("level", "strict, lax"),
    "another question": labelled("attributes", "mode, income"),
    "a question twice": labelled("attributes", "mode, mode"),
    "another delta": told(delta=1e-3),
    "other forged ones": told(forged=1),
    "words of its own": told(trust="trust this server"),
    "nobody to trust": lambda answer: replace(
        answer, figures={name: answer.figures[name] for name in ("delta", "forged")}
    ),
}


@pytest.mark.parametrize("lie", [None, *LIES])
def test_a_server_that_lies_is_refused(lie: str | None) -> None:
    plan = parse(resolved(SEALED))
    selection = analyst_pb2.Selection(first_period="2026-07-04")
    request = analyst_pb2.MixingRequest(survey="commute", selection=selection, delta=1e-6)
    kinds = [("2026-07-04", "strict", names, 3000) for names in ("mode", "mode late")]
    answer = mixing.mixing(plan, request, mixes(*kinds))
    answer = wire.from_message(wire.to_message(answer))
    if lie is None:
        tables.check_tables(answer)
        answers.check(request, answer, plan)
        return
    with pytest.raises(InvalidInput):
        changed = LIES[lie](answer)
        tables.check_tables(changed)
        answers.check(request, changed, plan)


def test_a_bound_is_shown_rounded_up() -> None:
    found = mixes(("2026-07-04", "strict", "mode late", 1200))
    answer = mixing.mixing(parse(resolved(SEALED)), analyst_pb2.MixingRequest(), found)
    answer = columns(0.08201, "shuffled_epsilon")(answer)
    (row,) = cells.shown(answer, answer.table()).rows
    assert row[-1].plain == "0.0821"
