"""What reports supported, counted a part at a time."""

import numpy as np
import pytest

import hearsay.plan
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
    plan = hearsay.plan.parse(surveys.resolve(surveys.from_toml(SURVEY, "test.toml")))
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
