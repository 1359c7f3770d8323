"""Questions about public groups: selections, answers by property, and differences of groups."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from collected import register
from command import hearsay
from serving import submit

from hearsay import Analyst, InvalidInput, NotReady
from hearsay.asking.plots import figure
from hearsay.plans.plan import Plan
from hearsay.v1 import collector_pb2
from ldp.core.mechanism import Categorical
from ldp.testing import SeededCoins

TODAY = datetime.now(UTC)
DAYS = [(TODAY - timedelta(days=back)).strftime("%Y-%m-%d") for back in (1, 0)]
TOML = """
name = "moods"
period = "P1D"
panels = 4
[levels]
strict = 1.0
open = 3.0
[[attributes]]
name = "mood"
[attributes.categorical]
values = ["bad", "so-so", "good"]
[attributes.categorical.maps.mine]
sensitive = ["bad"]
[[attributes]]
name = "smokes"
[attributes.categorical]
values = ["no", "yes"]
[[properties]]
name = "platform"
values = ["ios", "android", "web"]
[[properties]]
name = "version"
values = ["1", "2"]
"""
SHARES = {"ios": [0.6, 0.3, 0.1], "android": [0.2, 0.3, 0.5], "": [0.1, 0.1, 0.8]}
ROWS = {"ios": 900, "android": 700, "": 300}
"""Of each day, level and version; nobody uses the web."""


def batch(
    plan: Plan,
    day: str,
    level: str,
    platform: str,
    version: str,
    chosen: str,
    seed: int,
    rows: int = 0,
) -> collector_pb2.Batch:
    rng, coins = np.random.default_rng(seed), SeededCoins(seed)
    rows = rows or ROWS[platform]
    message = collector_pb2.Batch(
        id=seed.to_bytes(16, "big"),
        survey=plan.survey,
        revision=plan.revision,
        period=day,
        rows=rows,
        panel=1 + seed % 4,
        properties=[platform, version],
    )
    smokes = rng.integers(0, 2, rows)
    for name, by_map, truth in (
        ("mood", chosen, rng.choice(3, rows, p=SHARES.get(platform))),
        ("smokes", "", smokes),
    ):
        mechanism = plan.mechanism(level, name, by_map)
        assert isinstance(mechanism, Categorical)
        codes = mechanism.encode(mechanism.randomize_many(truth, coins))
        message.columns.add(attribute=name, level=level, codes=codes, map=by_map)
    return message


@pytest.fixture(scope="module")
def moods(address: str) -> Iterator[tuple[str, Analyst]]:
    _, plan = register(address, TOML)
    kinds = [
        (day, level, platform, version)
        for day in DAYS
        for level in plan.levels
        for platform in SHARES
        for version in ("1", "2")
    ]
    sent = [batch(plan, *kind, ("", "mine")[n % 2], n + 1) for n, kind in enumerate(kinds)]
    results = submit(address, *sent)
    assert {result.status for result in results} == {collector_pb2.Result.STORED}, results
    with Analyst(address) as analyst:
        yield address, analyst


def test_a_question_sums_all_panels_and_groups(moods: tuple[str, Analyst]) -> None:
    _, analyst = moods
    answer = analyst.estimate("moods", "mood")
    assert answer.reports == 8 * sum(ROWS.values())
    assert len(answer.cohorts) == 2 * 2 * 2  # days, levels, maps
    assert analyst.reports("moods").sum().sum() == 2 * answer.reports


@pytest.mark.parametrize("platform", SHARES)
def test_a_group_is_estimated_by_itself(moods: tuple[str, Analyst], platform: str) -> None:
    _, analyst = moods
    frame = analyst.estimate("moods", "mood", where={"platform": platform}).to_frame()
    assert frame.attrs["reports"] == 8 * ROWS[platform]
    assert (np.abs(frame["estimate"] - SHARES[platform]) <= 4 * frame["standard_error"]).all()
    by = analyst.by_property("moods", "mood", "platform").to_frame()
    assert by.index.names == ["platform", "mood"]
    assert list(dict.fromkeys(by.index.get_level_values(0))) == ["ios", "android", "(not given)"]
    same = by.loc[platform or "(not given)"]
    for column in ("estimate", "standard_error", "low", "high"):
        assert np.array_equal(same[column], frame[column])
    assert by.attrs["reports"][platform or "(not given)"] == frame.attrs["reports"]


def test_groups_are_selected_with_levels_maps_periods_and_panels(
    moods: tuple[str, Analyst],
) -> None:
    _, analyst = moods

    def reports(**selection: object) -> int:
        found: int = analyst.estimate("moods", "mood", **selection).reports  # type: ignore[arg-type]
        return found

    assert reports(where={"platform": ["ios", ""]}) == 8 * 1200
    assert reports(where={"platform": "ios", "version": "2"}) == 4 * 900
    assert reports(where={"platform": "ios"}, levels=["open"], periods=DAYS[:1]) == 2 * 900
    assert reports(where={"platform": "ios"}, maps=["mine"]) == 4 * 900
    panels = [reports(panels=[panel]) for panel in (1, 2, 3, 4)]
    assert sum(panels) == reports()
    assert reports(panels=[1, 4]) == panels[0] + panels[3]


def test_groups_are_compared(moods: tuple[str, Analyst]) -> None:
    _, analyst = moods
    ios, android = {"where": {"platform": "ios"}}, {"where": {"platform": "android"}}
    frame = analyst.compare("moods", "mood", ios, android).to_frame()  # type: ignore[arg-type]
    truth = np.subtract(SHARES["android"], SHARES["ios"])
    assert (np.abs(frame["difference"] - truth) <= 4 * frame["standard_error"]).all()
    assert frame["adjusted_p_value"]["bad"] < 1e-6 < 0.01 < frame["adjusted_p_value"]["so-so"]
    versions = [{"where": {"platform": "ios", "version": each}} for each in "12"]
    alike = analyst.compare("moods", "mood", *versions).to_frame()  # type: ignore[arg-type]
    assert alike["adjusted_p_value"].min() > 0.01
    one, others = ({"levels": ["open"], "panels": panels} for panels in ([1], [2, 3, 4]))
    apart = analyst.compare("moods", "smokes", one, others).to_frame()  # type: ignore[arg-type]
    assert sum(apart.attrs["reports"].values()) == 4 * 1900
    with pytest.raises(InvalidInput, match=r'in common: .* of the panel .*, of the group \["ios'):
        analyst.compare("moods", "mood", ios, {"where": {"version": "1"}}).to_frame()  # type: ignore[arg-type]


def test_two_attributes_within_a_group_are_of_its_records(moods: tuple[str, Analyst]) -> None:
    _, analyst = moods
    table = analyst.crosstab("moods", "mood", "smokes", where={"platform": "ios"}).to_frame()
    assert table.attrs["reports"] == 8 * 900
    with pytest.raises(InvalidInput, match="rows are exported of all devices together"):
        analyst.rows("moods", where={"platform": "ios"})
    with pytest.raises(InvalidInput, match="rows are exported of all devices together"):
        analyst.rows("moods", panels=[1])
    assert not {"panel", "platform", "version"} & set(analyst.rows("moods").columns)


def test_what_is_not_declared_is_refused_by_name(moods: tuple[str, Analyst]) -> None:
    _, analyst = moods
    colour = "no property 'colour'; it declares platform, version"
    with pytest.raises(InvalidInput, match=colour):
        analyst.estimate("moods", "mood", where={"colour": "red"}).to_frame()
    with pytest.raises(InvalidInput, match=f"level, period, map or a property, and .* {colour}"):
        analyst.by_property("moods", "mood", "colour").to_frame()
    with pytest.raises(InvalidInput, match="no value 'linux'; the survey declares ios, android"):
        analyst.estimate("moods", "mood", where={"platform": "linux"}).to_frame()
    with pytest.raises(InvalidInput, match="no panel 5; it has 1 to 4"):
        analyst.estimate("moods", "mood", panels=[5]).to_frame()
    with pytest.raises(NotReady, match="no such reports of 'mood'"):
        analyst.estimate("moods", "mood", where={"platform": "web"}).to_frame()


def test_a_group_of_few_reports_is_not_answered_about(address: str) -> None:
    _, plan = register(address, TOML.replace("moods", "few"))
    sent = [  # in panels 2, 3 and 4
        batch(plan, DAYS[0], "open", "ios", "1", "", 1, rows=20),
        batch(plan, DAYS[0], "open", "web", "1", "", 2, rows=19),
        batch(plan, DAYS[0], "open", "android", "1", "", 3, rows=45),
    ]
    results = submit(address, *sent)
    assert {result.status for result in results} == {collector_pb2.Result.STORED}, results
    android: Any = {"where": {"platform": "android"}}
    both: Any = {"where": {"platform": ["ios", "web"]}}
    with Analyst(address) as analyst:
        assert analyst.estimate("few", "mood").to_frame().attrs["reports"] == 84
        assert analyst.estimate("few", "mood", **android).to_frame().attrs["reports"] == 45
        assert analyst.crosstab("few", "mood", "smokes", **both).to_frame().attrs["reports"] == 39
        words = "left out are groups with fewer than 20 reports .*: ios .20 reports., web .19 rep"
        with pytest.warns(UserWarning, match=words):
            by = analyst.by_property("few", "mood", "platform").to_frame()
        assert by.attrs["reports"] == {"android": 45}
        asked: list[Callable[[Any], object]] = [
            lambda few: analyst.estimate("few", "mood", **few).to_frame(),
            lambda few: analyst.by_level("few", "mood", **few).to_frame(),
            lambda few: analyst.compare("few", "mood", android, few).to_frame(),
            lambda few: analyst.crosstab("few", "mood", "smokes", **few).to_frame(),
            lambda few: analyst.within("few", "mood", "smokes", **few).to_frame(),
            lambda few: analyst.ols("few", "smokes ~ mood", success="yes", **few).to_frame(),
        ]
        for few in ({"where": {"platform": ["web", ""]}}, {"panels": [3]}):
            for ask in asked:
                with pytest.raises(NotReady, match=f"19 of the level 'open' in {DAYS[0]}"):
                    ask(few)
        by_margin = {"platform": {"ios": 0.0, "android": 0.0, "web": 1.0}}
        with pytest.raises(NotReady, match=r"one report counts for 0\.053 of"):
            analyst.estimate("few", "mood", margins=by_margin).to_frame()


def test_groups_are_drawn_beside_each_other(moods: tuple[str, Analyst]) -> None:
    _, analyst = moods
    (axis,) = figure(analyst.by_property("moods", "mood", "platform")).axes
    dots = [line for line in axis.lines if line.get_marker() not in ("None", "")]
    assert [len(line.get_xdata()) for line in dots] == [3] * 3
    looks = {(line.get_color(), line.get_marker()) for line in dots}
    assert len({colour for colour, _ in looks}) == len({marker for _, marker in looks}) == 3
    beside = [text.get_text() for text in axis.texts]
    assert sorted(beside) == ["(not given)", "android", "ios"]
    assert "by platform" in axis.get_xlabel()


def test_the_command_answers_by_property_and_where(moods: tuple[str, Analyst]) -> None:
    address, analyst = moods
    query = "query", "moods", "mood", "--target", address
    shown = hearsay(*query, "--by", "platform")
    assert shown.returncode == 0, shown.stderr
    groups = [line.split()[1] for line in shown.stdout.splitlines() if line.startswith("│")]
    assert list(dict.fromkeys(groups)) == ["ios", "android", "(not"]
    assert "ios: 7,200, android: 5,600, (not given): 2,400" in shown.stdout
    where = hearsay(*query, "--where", "platform=ios,", "--where", "version=2", "--json")
    assert json.loads(where.stdout)["reports"] == 4 * 1200
    panel = hearsay(*query, "--where", "panel=1,2", "--json")
    assert (
        json.loads(panel.stdout)["reports"]
        == analyst.estimate("moods", "mood", panels=[1, 2]).reports
    )
    parts = ("platform=ios,", "--where", "version=1", "--target", address)
    compared = hearsay("ask", "compare", "moods", "mood", *parts)
    assert compared.returncode == 0, compared.stderr
    for arguments, message in (
        (("--by", "colour"), "the survey has no property 'colour'; it declares platform, version"),
        (("--where", "platform=linux"), "the survey declares ios, android, web"),
        (("--where", "panel=9"), "'moods' has no panel 9; it has 1 to 4"),
    ):
        refused = hearsay(*query, *arguments)
        assert refused.returncode == 1
        assert message in " ".join(refused.stderr.split())
