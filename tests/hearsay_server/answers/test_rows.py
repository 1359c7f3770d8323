"""Rows at some levels alone; what reports supported, counted a part at a time."""

import numpy as np
import pytest

import hearsay.plans.plan
from hearsay.plans import presence
from hearsay.v1 import collector_pb2
from hearsay_server.answers import rows
from hearsay_server.surveys import survey as surveys
from ldp.assurance.suspicion import supports
from ldp.testing import SeededCoins

SURVEY = """
name = "apps"
[levels]
strict = 1.0
open = 4.0
[[attributes]]
name = "first"
mechanism = "oue"
[attributes.categorical]
values = ["a", "b", "c", "d", "e"]
"""


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_supports_are_those_of_all_reports_however_many_are_counted_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = hearsay.plans.plan.parse(surveys.resolve(surveys.from_toml(SURVEY, "test.toml")))
    sent, codes = [], {}
    for seed, name in enumerate(plan.levels):
        mechanism = plan.levels[name].mechanisms["first"]
        codes[name] = mechanism.randomize_many(np.arange(45) % 5, SeededCoins(seed))
        for part in np.split(codes[name], 3):
            batch = collector_pb2.Batch(rows=15)
            batch.columns.add(attribute="first", level=name, codes=mechanism.encode(part))
            sent.append(batch)
    monkeypatch.setattr(rows, "_TESTED", at_once)
    found = rows.supports_by_level(plan, "first", plan.levels, [0, 3], [sent[:2], sent[2:]])
    assert found.keys() == plan.levels.keys()
    for name, seen in found.items():
        whole = supports(plan.levels[name].mechanisms["first"], codes[name], [0, 3])
        assert (seen.sizes.tolist(), seen.together) == (whole.sizes.tolist(), whole.together)


@pytest.mark.parametrize("levels", [["strict"], ["open"], ["strict", "open"]])
def test_a_row_has_its_answers_at_the_selected_levels_and_is_left_out_without_one(
    levels: list[str],
) -> None:
    text = SURVEY + SURVEY[SURVEY.index("[[attributes]]") :].replace("first", "second")
    plan = hearsay.plans.plan.parse(surveys.resolve(surveys.from_toml(text, "test.toml")))
    answered = [  # of each row the code of each attribute at a level
        {("first", "strict"): b"\1", ("second", "open"): b"\2"},
        {("first", "open"): b"\3"},
        {("second", "strict"): b"\4"},
        {("first", "open"): b"\5", ("second", "open"): b"\6"},
    ]
    batch = collector_pb2.Batch(rows=4)
    for key in dict.fromkeys(key for row in answered for key in row):
        present = np.array([key in row for row in answered])
        codes = b"".join(row[key] for row in answered if key in row)
        batch.columns.add(
            attribute=key[0], level=key[1], codes=codes, present=presence.pack(present)
        )
    (chunk,) = rows.chunks(plan, [[batch]], levels, np.random.default_rng(1))
    found: list[dict[tuple[str, str], bytes]] = [{} for _ in range(chunk.rows)]
    for column in chunk.columns:
        places = np.flatnonzero(presence.unpack(column.present, chunk.rows))
        for place, code in zip(places, column.codes, strict=True):
            found[place][column.attribute, column.level] = bytes([code])
    at_levels = [{key: row[key] for key in row if key[1] in levels} for row in answered]
    expected = [row for row in at_levels if row]
    assert len(expected) == {"strict": 2, "open": 3, "strict open": 4}[" ".join(levels)]
    assert sorted(sorted(row.items()) for row in found) == sorted(
        sorted(row.items()) for row in expected
    )


def test_a_page_without_answers_at_a_level_has_no_message() -> None:
    plan = hearsay.plans.plan.parse(surveys.resolve(surveys.from_toml(SURVEY, "test.toml")))
    batch = collector_pb2.Batch(rows=2)
    batch.columns.add(attribute="first", level="open", codes=b"\1\2")
    assert not list(rows.chunks(plan, [[batch]], ["strict"], np.random.default_rng(1)))
