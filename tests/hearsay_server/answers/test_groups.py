"""Panels and properties: from the survey's file over batches to tallies."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from command import hearsay as run_command

import hearsay.plans.plan
from hearsay import Agreement, Client, create_ledger
from hearsay.testing import RecordingTransport
from hearsay.v1 import analyst_pb2, collector_pb2
from hearsay_server.answers import rows
from hearsay_server.commands import explained
from hearsay_server.ingest.intake import Cohort, Limits, Reason, Refused, tallies_of
from hearsay_server.printing import Console
from hearsay_server.storage.forgetting import forget
from hearsay_server.storage.selection import Selected, resolve
from hearsay_server.storage.store import Store
from hearsay_server.storage.verify import Verdict, verify
from hearsay_server.surveys import explain
from hearsay_server.surveys import survey as surveys
from ldp import InvalidInput

APPS = """
name = "apps"
period = "P1D"
panels = 4

[levels]
open = 2.0

[[attributes]]
name = "mood"
mechanism = "krr"
categorical.values = ["bad", "good"]

[[properties]]
name = "platform"
title = "Platform"
values = ["ios", "android"]

[[properties]]
name = "version"
values = ["1", "2"]
"""
FROZEN = surveys.resolve(surveys.from_toml(APPS, "apps.toml"))
PLAN = hearsay.plans.plan.parse(FROZEN)
PLAIN = hearsay.plans.plan.parse(
    surveys.resolve(
        surveys.from_toml(APPS.replace("panels = 4", "").split("[[properties]]")[0], "plain.toml")
    )
)
DAY = "2026-07-04"
NOW = datetime(2026, 7, 4, 12, tzinfo=UTC)


def batch(
    number: int, panel: int = 1, properties: Sequence[str] = ("ios", "1"), codes: bytes = b"\0\1\1"
) -> collector_pb2.Batch:
    message = collector_pb2.Batch(
        id=number.to_bytes(16, "big"),
        survey="apps",
        revision=PLAN.revision,
        period=DAY,
        rows=len(codes),
        panel=panel,
        properties=properties,
    )
    message.columns.add(attribute="mood", level="open", codes=codes)
    return message


def cohort(panel: int = 0, group: str = "") -> Cohort:
    return Cohort("apps", PLAN.revision, "mood", "open", DAY, "", panel, group)


def read(store: Store, selected: Selected) -> dict[Cohort, tuple[int, list[int]]]:
    found = store.tallies("apps", "mood", selected)
    return {cohort: (tally.n, tally.counts.tolist()) for cohort, tally in found.items()}


SENT = [
    batch(1),
    batch(2, 2),
    batch(3, 2, ("android", ""), b"\0\0"),
    batch(4, 3, ("", "2"), b"\1"),
]


@pytest.fixture
def filled(where: Path | str) -> Iterator[Store]:
    opened = Store(where)
    opened.create_survey("apps", PLAN.revision, FROZEN)
    assert opened.add([("", each) for each in SENT], NOW, Limits()) == [True] * 4
    yield opened
    opened.close()


def test_a_plan_has_what_the_survey_declares() -> None:
    assert PLAN.panels == 4
    assert {each.name: each.values for each in PLAN.properties.declared} == {
        "platform": ("ios", "android"),
        "version": ("1", "2"),
    }
    assert PLAN.properties.by_name["platform"].title == "Platform"
    assert (PLAIN.panels, bool(PLAIN.properties)) == (0, False)


@pytest.mark.parametrize(
    ("given", "instead", "message"),
    [
        ("panels = 4", "panels = 1", "panels must be 2 to 64, or left out, got 1"),
        ('period = "P1D"', "", "panels need a survey with a period"),
        ('"version"', '"mood"', r"properties\[1\]: the name 'mood' is taken"),
        ("[[properties]]", "[properties]", "properties are written as \\[\\[properties\\]\\]"),
        ('title = "Platform"', "colour = 1", r"properties\[0\]: unknown key 'colour'"),
        ('"ios"', '"i os "', r"properties\[0\]: values: 'i os ' has a space at its beginning or"),
    ],
)
def test_a_survey_that_declares_them_wrongly_is_refused(
    given: str, instead: str, message: str
) -> None:
    text = APPS if given != "[[properties]]" else APPS.rsplit("[[properties]]", 1)[0]
    with pytest.raises(InvalidInput, match=message):
        surveys.resolve(surveys.from_toml(text.replace(given, instead), "apps.toml"))


def test_a_survey_whose_groups_would_fill_the_store_is_refused() -> None:
    text = APPS.replace("krr", "cms").replace("panels = 4", "panels = 64")
    listed = str([str(value) for value in range(63)]).replace("'", '"')
    text = text.replace('["ios", "android"]', listed).rsplit("[[properties]]", 1)[0]
    with pytest.raises(InvalidInput, match="4,096 combinations, and each has tallies of"):
        surveys.resolve(surveys.from_toml(text, "apps.toml"))
    surveys.resolve(surveys.from_toml(text.replace("cms", "krr"), "apps.toml"))


@pytest.mark.parametrize(
    ("panel", "properties", "message"),
    [
        (0, ("ios", "1"), "'apps' has 4 panels: expected 1 to 4, got 0"),
        (5, ("ios", "1"), "'apps' has 4 panels: expected 1 to 4, got 5"),
        (1, ("ios",), r"expected 2 values of properties \(platform, version\), got 1"),
        (1, ("ios", "1", ""), "expected 2 values of properties .*, got 3"),
        (1, ("linux", "1"), "'platform' has no value 'linux'; the survey declares ios, android"),
        (1, ("1", "ios"), "'platform' has no value '1'"),
    ],
)
def test_a_batch_of_no_such_group_is_refused(
    panel: int, properties: Sequence[str], message: str
) -> None:
    with pytest.raises(Refused, match=message) as refused:
        tallies_of(batch(1, panel, properties), PLAN)
    assert (refused.value.reason, refused.value.final) == (Reason.BAD_GROUP, True)


@pytest.mark.parametrize(
    ("panel", "properties", "message"),
    [(1, (), "has 0 panels: expected none, got 1"), (0, ("",), "none are declared.*, got 1")],
)
def test_a_survey_that_declares_nothing_takes_nothing(
    panel: int, properties: Sequence[str], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        tallies_of(batch(1, panel, properties), PLAIN)
    assert list(tallies_of(batch(1, 0, ()), PLAIN)) == [
        Cohort("apps", PLAIN.revision, "mood", "open", DAY)
    ]


def test_tallies_are_kept_by_panel_and_group_and_summed_when_they_are_read(filled: Store) -> None:
    ios, android, none = '["ios","1"]', '["android",""]', '["","2"]'
    assert read(filled, Selected()) == {cohort(): (9, [4, 5])}
    assert read(filled, Selected(apart=("panel",))) == {
        cohort(1): (3, [1, 2]),
        cohort(2): (5, [3, 2]),
        cohort(3): (1, [0, 1]),
    }
    assert read(filled, Selected(apart=("group",))) == {
        cohort(group=ios): (6, [2, 4]),
        cohort(group=android): (2, [2, 0]),
        cohort(group=none): (1, [0, 1]),
    }
    assert read(filled, Selected(groups=(ios,), panels=(2,), apart=("panel", "group"))) == {
        cohort(2, ios): (3, [1, 2])
    }


def test_reports_are_selected_by_panels_and_by_values_of_properties(filled: Store) -> None:
    def asked(panels: Sequence[int] = (), **where: list[str]) -> list[int]:
        selection = analyst_pb2.Selection(
            panels=panels,
            where=[analyst_pb2.Where(property=n, values=values) for n, values in where.items()],
        )
        found = filled.tallies("apps", "mood", resolve(PLAN, selection, "mood"))
        return [tally.n for tally in found.values()]

    assert asked() == [9]
    assert asked(platform=["ios"]) == [6]
    assert asked(platform=["ios", ""]) == [7]
    assert asked(platform=["ios", ""], version=["2"]) == [1]
    assert asked([2]) == [5]
    assert asked([2, 3, 2], platform=["android", ""]) == [3]
    assert asked(platform=["android"], version=["1"]) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"panels": [0]}, "'apps' has no panel 0; it has 1 to 4"),
        ({"panels": [5]}, "'apps' has no panel 5; it has 1 to 4"),
        ({"where": [("colour", ["red"])]}, "no property 'colour'; it declares platform, version"),
        ({"where": [("colour", [""])]}, "no property 'colour'; it declares platform, version"),
        ({"where": [("platform", ["linux"])]}, "no value 'linux'; the survey declares ios, andr"),
        ({"where": [("platform", [])]}, "select one value of 'platform' at least, got none"),
        ({"where": [("version", ["1"]), ("version", ["2"])]}, "each property once, got 'version'"),
    ],
)
def test_a_selection_of_what_is_not_declared_is_refused(
    fields: dict[str, list[object]], message: str
) -> None:
    where = [analyst_pb2.Where(property=n, values=v) for n, v in fields.pop("where", [])]  # type: ignore[misc]
    with pytest.raises(InvalidInput, match=message):
        resolve(PLAN, analyst_pb2.Selection(where=where, **fields), "mood")  # type: ignore[arg-type]


def test_a_batch_that_is_forgotten_leaves_the_tally_of_its_group(filled: Store) -> None:
    whole = Selected(apart=("panel", "group"))
    before = read(filled, whole)
    forget(filled.database, PLAN, DAY, [SENT[1].id], NOW)
    gone = cohort(2, '["ios","1"]')
    assert read(filled, whole) == {each: n for each, n in before.items() if each != gone}
    assert {each.verdict for each in verify(filled.database)} == {Verdict.EQUAL}


def test_verification_tells_a_group_that_differs(filled: Store) -> None:
    checked = [each for each in verify(filled.database) if each.attribute]
    assert {(each.panel, each.group): each.kept for each in checked} == {
        (1, '["ios","1"]'): 3,
        (2, '["android",""]'): 2,
        (2, '["ios","1"]'): 3,
        (3, '["","2"]'): 1,
    }


def test_rows_are_exported_without_panels_and_properties() -> None:
    plain = []
    for each in SENT:
        bare = collector_pb2.Batch.FromString(each.SerializeToString())
        bare.ClearField("panel")
        bare.ClearField("properties")
        plain.append(bare)
    found = [
        [chunk.SerializeToString() for chunk in rows.chunks(PLAN, [page], ["open"], source)]
        for page, source in ((sent, np.random.default_rng(5)) for sent in (SENT, plain))
    ]
    assert found[0] == found[1]
    assert sum(analyst_pb2.ExportRowsResponse.FromString(data).rows for data in found[0]) == 9


def test_explain_tells_what_is_in_the_clear() -> None:
    console = Console(width=200, record=True, file=StringIO())
    explained.show(
        explain.explain(surveys.from_toml(APPS, "apps.toml"), "apps.toml", 1000), console
    )
    text = console.export_text()
    assert "panel: 1 of 4, which a person's device draws once and sends with every report" in text
    assert "platform (Platform): ios or android, or none, as the app says" in text
    assert "1 of 36 combinations, 5.2 bits by which a person's reports may be linked" in text
    assert "27.8 of 1,000 respondents share a combination" in text


def test_a_ledger_shows_the_panel_and_what_each_batch_tells(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    create_ledger(file)
    agreement, properties = Agreement.on(FROZEN), {"platform": "ios"}
    with Client(
        RecordingTransport(FROZEN),
        agreement,
        ledger=file,
        level="open",
        consent=True,
        properties=properties,
    ) as client:
        assert client.record(mood="good")
        assert client.flush()
        panel = client.outbox().sent[0].batch.panel
    (survey,) = json.loads(run_command("device", "show", file, "--json").stdout)["surveys"]
    assert survey["panel"] == panel
    (sent,) = survey["sent"]
    assert (sent["panel"], sent["properties"]) == (panel, {"platform": "ios", "version": ""})
    text = run_command("device", "show", file, COLUMNS="160").stdout
    assert f"panel {panel}, which every report is sent with" in text
    assert f"panel {panel}, platform ios, version not given" in text
