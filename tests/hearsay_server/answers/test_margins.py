"""Estimates weighted to known margins, from batches with properties to tables and plots."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collected import DAYS, batch, register
from command import hearsay
from serving import submit

from hearsay import Analyst, InvalidInput
from hearsay.asking import Answer, wire
from hearsay.asking.margins import messages, read_margins
from hearsay.asking.selection import quietly
from hearsay.plans.plan import Plan, parse
from hearsay.v1 import analyst_pb2, answer_pb2
from hearsay_server.answers import questions
from hearsay_server.answers.repeats import of_groups, of_levels
from hearsay_server.demo.sources import from_csv
from hearsay_server.ingest.intake import Cohort
from hearsay_server.surveys.survey import from_toml, resolve
from ldp import Tally
from ldp.core.repeated import factors
from support import rows_of

TOML = """
name = "weather"
period = "P1D"
[levels]
strict = 8.0
open = 16.0
[[properties]]
name = "platform"
values = ["ios", "android", "web"]
[[properties]]
name = "country"
values = ["de", "fr"]
[[attributes]]
name = "sky"
title = "How is the sky?"
mechanism = "krr"
categorical.values = ["blue", "grey"]
[[attributes]]
name = "degrees"
mechanism = "piecewise"
[attributes.numeric]
low = 0
high = 40
[[attributes]]
name = "hours"
mechanism = "square_wave"
[attributes.numeric]
low = 0
high = 4
step = 1
[[attributes]]
name = "clothes"
[attributes.set]
values = ["hat", "coat", "scarf", "boots", "gloves", "mittens"]
at_most = 2
[[attributes]]
name = "stars"
[attributes.ratings]
keys = ["wind", "rain"]
low = 1
high = 5
at_most = 2
"""
ROWS = {
    ("ios", "de"): 1200,
    ("ios", "fr"): 300,
    ("android", "de"): 300,
    ("android", "fr"): 200,
    ("web", "de"): 40,
    ("", "fr"): 90,
}
BLUE = {"ios": 0.9, "android": 0.3, "web": 0.3, "": 0.5}
MARGINS: Any = {
    "platform": {"ios": 0.2, "android": 0.7, "web": 0.1, "": 0.0},
    "country": {"de": 0.5, "fr": 0.5},
}


@pytest.fixture(scope="module")
def weather(address: str) -> Iterator[tuple[str, Analyst]]:
    with Analyst(address) as analyst:
        _, plan = register(address, TOML)
        for number, level in enumerate(plan.levels):
            for (platform, country), rows in ROWS.items():
                blue = np.arange(rows) < BLUE[platform] * rows
                answers: dict[str, Any] = {
                    "sky": np.where(blue, 0, 1),
                    "clothes": np.where(blue, 0, 1)[:, np.newaxis],
                    "degrees": np.where(blue, 0.5, -0.5),
                    "hours": np.where(blue, 0.5, -0.5),
                    "stars": np.stack([np.where(blue, 0, 1), np.full(rows, 2)], axis=1),
                }
                sent = batch(plan, level, DAYS[0], answers, 10_000 * number + 10 * rows)
                sent.properties.extend([platform, country])
                submit(address, sent)
        yield address, analyst


def asked(weather: tuple[str, Analyst], *arguments: object, view: str = "query") -> str:
    done = hearsay(*view.split(), "weather", *arguments, "--target", weather[0])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The margins as files: shares of platforms, and numbers of people by country."""
    (tmp_path / "platform.csv").write_text("platform,share\nios,0.2\nandroid,0.7\nweb,0.1\n,0\n")
    (tmp_path / "country.csv").write_text("country,count\nde,41000\nfr,41000\n")
    return ["--margins", f"{tmp_path}/platform.csv", "--margins", f"{tmp_path}/country.csv"]


TRUTH = 0.2 * 0.9 + 0.8 * 0.3


@pytest.mark.filterwarnings("ignore:small groups|.*are left out")
@pytest.mark.parametrize("attribute", ["sky", "clothes"])
def test_weighted_shares_are_of_the_population_and_stand_beside_the_unweighted(
    weather: tuple[str, Analyst], attribute: str
) -> None:
    plain = weather[1].estimate("weather", attribute).to_frame()
    found = weather[1].estimate("weather", attribute, margins=MARGINS, least=2).to_frame()
    assert found["low"].iloc[0] < TRUTH < found["high"].iloc[0]
    assert not plain["low"].iloc[0] < TRUTH < plain["high"].iloc[0]
    assert found["unweighted"].tolist() == pytest.approx(plain["estimate"].tolist())
    assert found["unweighted_standard_error"].tolist() == pytest.approx(
        plain["standard_error"].tolist()
    )
    assert found.attrs["reports"] <= 2 * (sum(ROWS.values()) - 90)
    assert 1.5 < found.attrs["design_effect"] < 10
    assert found.attrs["weights"][0] < 1 < found.attrs["weights"][1]
    assert found.attrs["method"] == "weighted to platform, country"


@pytest.mark.filterwarnings("ignore:small groups|.*are left out")
def test_means_ratings_sizes_and_sums_are_weighted_too(weather: tuple[str, Analyst]) -> None:
    analyst = weather[1]
    mean = analyst.estimate("weather", "degrees", margins=MARGINS).to_frame()
    assert mean["low"].iloc[0] < 10 + 20 * TRUTH < mean["high"].iloc[0]
    ratings = analyst.estimate("weather", "stars", margins=MARGINS).to_frame()
    assert ratings.loc["wind", "low"] < 1 + 4 * TRUTH < ratings.loc["wind", "high"]
    assert ratings.loc["rain", "share_low"] <= 1 <= ratings.loc["rain", "share_high"] + 1e-9
    sizes = analyst.set_sizes("weather", "clothes", margins=MARGINS).to_frame()
    assert sizes["estimate"].loc["1"] == pytest.approx(1, abs=0.1)
    sums = analyst.sums("weather", "sky", [["blue", "grey"], ["blue"]], margins=MARGINS).to_frame()
    assert sums["estimate"].tolist() == pytest.approx([1, TRUTH], abs=0.1)


@pytest.mark.filterwarnings("ignore:small groups|.*are left out")
def test_ranges_quantiles_and_histograms_are_weighted(
    weather: tuple[str, Analyst], files: list[str]
) -> None:
    analyst = weather[1]
    found = analyst.between("weather", "hours", 3, 4, margins=MARGINS).to_frame().iloc[0]
    assert found["low"] < TRUTH < found["high"]
    plain = analyst.between("weather", "hours", 3, 4).to_frame().iloc[0]
    assert plain["low"] > TRUTH
    assert found["standard_error"] > plain["standard_error"]
    assert found.attrs["design_effect"] > 1.5
    middle = analyst.quantile("weather", "hours", margins=MARGINS).to_frame()
    assert (
        middle["estimate"].iloc[0],
        analyst.quantile("weather", "hours").to_frame().iloc[0, 0],
    ) == (1, 3)
    answer = analyst.distribution("weather", "hours", edges=[0, 1.5, 4], margins=MARGINS)
    shares = answer.to_frame()
    assert shares["estimate"].sum() == pytest.approx(1)
    printed = asked(weather, "hours", 3, 4, *files, view="ask between")
    assert "weighted to platform, country" in printed and "design effect" in " ".join(
        printed.split()
    )
    with pytest.raises(InvalidInput, match="its curve cannot be weighted"):
        analyst.distribution("weather", "degrees", margins=MARGINS).to_frame()


def test_rows_are_chosen_by_the_weighted_estimates(weather: tuple[str, Analyst]) -> None:
    with pytest.warns(UserWarning, match="180 respondents of groups with a share of 0"):
        found = weather[1].estimate("weather", "sky", margins=MARGINS, top=1).to_frame()
    assert found.index.tolist() == ["grey"]  # without weights it is blue
    assert found.attrs["rows_left_out"] == 1


@pytest.mark.filterwarnings("ignore:small groups|.*are left out")
def test_each_level_is_weighted_by_itself(weather: tuple[str, Analyst]) -> None:
    with pytest.warns(UserWarning, match="left out"):
        found = weather[1].by_level("weather", "sky", margins=MARGINS).to_frame()
    alone = weather[1].estimate("weather", "sky", margins=MARGINS, levels=["open"]).to_frame()
    assert found.loc["open", "estimate"].tolist() == pytest.approx(alone["estimate"].tolist())


@pytest.mark.filterwarnings("ignore:.*left out|.*small groups|.*the shares of country are taken")
def test_each_value_of_a_property_is_weighted_to_margins_of_the_others(
    weather: tuple[str, Analyst],
) -> None:
    analyst, country = weather[1], {"country": {"de": 0.5, "fr": 0.5}}
    found = analyst.by_property("weather", "sky", "platform", margins=country).to_frame()
    alone = analyst.estimate(
        "weather", "sky", margins=country, where={"platform": ["ios"]}
    ).to_frame()
    assert found.loc["ios", "estimate"].tolist() == pytest.approx(alone["estimate"].tolist())
    with pytest.raises(InvalidInput, match="reports are selected by platform, which is all that a"):
        analyst.by_property("weather", "sky", "platform", margins=MARGINS).to_frame()
    with pytest.raises(InvalidInput, match="reports are selected by platform, which is all that a"):
        analyst.estimate("weather", "sky", margins=MARGINS, where={"platform": ["ios"]}).to_frame()
    both: Any = {("platform", "country"): {("web", "de"): 0.5, ("android", "fr"): 0.5}}
    with pytest.raises(InvalidInput, match="has no share of the population with platform 'ios'"):
        analyst.estimate("weather", "sky", margins=both, where={"platform": ["ios"]}).to_frame()


OWN = """
name = "own"
period = "P1D"
[levels]
open = 8.0
[[properties]]
name = "platform"
values = ["ios", "web"]
[[properties]]
name = "country"
values = ["de", "fr", "it", "nl"]
[[attributes]]
name = "sky"
mechanism = "krr"
categorical.values = ["blue", "grey"]
"""


def weighed(reports: dict[tuple[str, str], list[int]], margins: Any, days: int = 1) -> Answer:
    """Answer for ios, from groups' numbers of the two codes, the same on each day."""
    frozen = resolve(from_toml(OWN, "own.toml"))
    plan = parse(frozen)
    tallies = {
        Cohort("own", plan.revision, "sky", "open", day, "", 0, plan.properties.group(group)): (
            Tally(sum(codes), np.array(codes))
        )
        for group, codes in reports.items()
        for day in (f"2026-01-{number:02}" for number in range(1, days + 1))
    }
    question = analyst_pb2.EstimateRequest(survey="own", attribute="sky", margins=messages(margins))
    answer = questions.by(frozen, question, {"ios": tallies}, "platform")
    return wire.from_message(answer_pb2.Answer.FromString(answer))


def test_a_value_has_its_own_mix_where_a_margin_tells_it_and_otherwise_a_warning() -> None:
    reports = {("ios", "de"): [720, 80], ("ios", "fr"): [20, 180]}  # 90% and 10% are blue
    country = {"de": 0.5, "fr": 0.5}
    told = {("ios", "de"): 0.4, ("ios", "fr"): 0.1, ("web", "de"): 0.1, ("web", "fr"): 0.4}
    alone = weighed(reports, {"country": country})
    assert rows_of(alone)[0].estimate == pytest.approx(0.5, abs=0.01)
    assert "the shares of country are taken to be the same within each platform" in alone.warning
    for margins in (
        {("platform", "country"): told},
        {"country": country, ("platform", "country"): told},
    ):
        own = weighed(reports, margins)
        assert rows_of(own)[0].estimate == pytest.approx(0.8 * 0.9 + 0.2 * 0.1, abs=0.01)
        assert not own.warning


def test_which_rows_are_joined_does_not_depend_on_the_order_of_the_file() -> None:
    sizes = {"de": [5, 0], "fr": [0, 5], "it": [5, 0], "nl": [0, 5]}
    shares = {"de": 0.1, "fr": 0.4, "it": 0.2, "nl": 0.3}
    reports = {("ios", country): codes for country, codes in sizes.items()}
    answers = {
        (rows_of(answer)[0].estimate, answer.warning)
        for order in (shares, sorted(shares, reverse=True), ("fr", "nl", "it", "de"))
        for answer in [weighed(reports, {"country": {name: shares[name] for name in order}})]
    }
    ((_, warning),) = answers
    assert "country fr + de (10 people)" in warning


def test_a_group_of_few_people_on_many_days_is_small() -> None:
    reports = {("ios", name): codes for name, codes in (("de", [1, 0]), ("fr", [20, 40]))}
    answer = weighed(reports, {"country": {"de": 0.5, "fr": 0.5}}, 30)
    assert "country fr + de (61 people)" in answer.warning


def test_the_table_fits_into_80_columns_and_has_before_and_after(
    weather: tuple[str, Analyst], files: list[str], tmp_path: Path
) -> None:
    printed = asked(weather, "sky", *files, "--plot", tmp_path / "sky.svg")
    assert max(map(len, printed.splitlines())) <= 80
    assert "unweighted" in printed
    assert "weighted to platform, country" in printed
    assert "raise the variance by the design effect" in " ".join(printed.split())
    assert (tmp_path / "sky.svg").stat().st_size > 1000
    (row, *_) = csv.DictReader(io.StringIO(asked(weather, "sky", *files, "--csv")))
    assert {"unweighted", "unweighted_standard_error"} <= row.keys()
    document = json.loads(asked(weather, "sky", *files, "--json"))
    assert document["figures"]["design_effect"] > 1.5
    least, most = document["figures"]["weights"]
    assert most > least > 0


def test_small_values_are_joined_and_the_warning_names_them(
    weather: tuple[str, Analyst], files: list[str]
) -> None:
    done = hearsay("query", "weather", "sky", *files, "--target", weather[0], "--least", 150)
    assert "small groups are taken together: platform" in done.stderr
    assert "web" in done.stderr


@pytest.mark.parametrize(
    ("margins", "options", "message"),
    [
        ({"size": {"s": 1.0}}, {}, "the survey has no property 'size'; it declares platform"),
        ({"country": {"de": 0.5, "uk": 0.5}}, {}, "the property 'country' has no value 'uk'"),
        ({"country": {"de": 1.0}}, {}, "respondents have country 'fr', for which the margin"),
        ({"country": {"de": 1.0, "fr": 1.0}}, {}, "must have shares that sum to 1, got 2"),
        (
            {"country": {"de": 0.5, "fr": 0.5}, ("country",): {"de": 0.3, "fr": 0.7}},
            {},
            "the margins contradict each other: the share of country 'de' is 0.5 in one and 0.3",
        ),
        ({"country": 0.5}, {}, "must have a share by value, got 0.5"),
        ({"country": {"de": None, "fr": 1.0}}, {}, "numbers >= 0, got None for 'de'"),
        ({"country": {"de": "0.5"}}, {}, "numbers >= 0, got '0.5' for 'de'"),
        ({"country": {2020: 0.5}}, {}, "the values of a row of .* must be a string, or a tuple"),
        ({5: {"a": 1.0}}, {}, "a margin's properties must be a string, or a tuple .* got 5"),
        (MARGINS, {"least": 1}, "the least number of people of a row must be >= 2, got 1"),
        ("country", {}, "margins are a mapping of a property"),
        (MARGINS, {"method": "mle"}, "are stratified by level, got the method 'mle'"),
        (MARGINS, {"consistency": "norm-sub"}, "have no consistency: leave it out"),
        (MARGINS, {"forged": 3}, "have no forged"),
    ],
    ids=range(15),
)
def test_margins_that_do_not_fit_are_refused(
    weather: tuple[str, Analyst], margins: Any, options: Any, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        weather[1].estimate("weather", "sky", margins=margins, **options).to_frame()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("platform,part\nios,1\n", "heading must be properties and then"),
        ("", "is empty"),
        ("share\n1\n", "heading must be properties"),
        (
            "platform,share\nios,most\n",
            "row 2: 'most' is no share: expected a number >= 0, such as 0.31",
        ),
        ("platform,share\nios,0.5\nios,0.5\n", "row 3: ios is there twice"),
        ("platform,share\nios\n", "row 2 has 1 cell, the heading has 2"),
        ("platform,count\nios,0\n", "must have a positive sum"),
        ("platform,share\nios,0.5\n\n\nweb,nan\n", "row 5: 'nan' is no share"),
        ("platform,share\nios,-1\n", "row 2: '-1' is no share"),
    ],
    ids=range(9),
)
def test_a_file_that_has_no_margin_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "margin.csv"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_margins([file])


def test_a_margin_is_read_as_the_other_tables(tmp_path: Path) -> None:
    file = tmp_path / "margin.csv.gz"
    text = "sep=;\r\n Age group ;Share\r\n cafe\u0301 ; 0.25 \r\n\r\nb;0.75\r\n"
    file.write_bytes(gzip.compress(text.encode("utf-16")))
    assert read_margins([file]) == {("age_group",): {("caf\u00e9",): 0.25, ("b",): 0.75}}


def test_a_file_may_have_combinations_and_counts(tmp_path: Path) -> None:
    file = tmp_path / "margin.csv"
    file.write_text("platform,country,count\nios,de,3\nios,,1\n")
    found = read_margins([file])
    assert found == {("platform", "country"): {("ios", "de"): 0.75, ("ios", ""): 0.25}}
    (message,) = messages(found)
    assert [list(row.values) for row in message.rows] == [["ios", "de"], ["ios", ""]]
    with pytest.raises(InvalidInput, match="another table has the margin of platform, country"):
        read_margins([file, file])
    with pytest.raises(InvalidInput, match="cannot read"):
        read_margins([tmp_path / "none.csv"])


SURE = """
name = "sure"
levels_differ_at_most = 0
[levels]
strict = 8.0
open = 16.0
[[properties]]
name = "platform"
values = ["ios", "web"]
[[attributes]]
name = "sky"
mechanism = "krr"
categorical.values = ["blue", "grey"]
[[attributes]]
name = "apps"
mechanism = "set_pairs"
set = { values = ["maps", "news", "chess"], at_most = 2, clamp = true }
"""


@pytest.fixture
def sure(own: Callable[[str], Plan], weather: tuple[str, Analyst]) -> str:
    """The name of a survey whose levels are declared to answer alike, and do not."""
    plan = own(SURE)
    for number, (level, platform) in enumerate(product(plan.levels, ("ios", "web"))):
        sizes = np.arange(600) % 3 if platform == "ios" else np.zeros(600, dtype=int)
        sets = np.array([[-1, -1], [0, -1], [0, 1]])[sizes]
        sky = np.full(600, int(level == "open"))
        rows = batch(plan, level, "once", {"sky": sky, "apps": sets}, 10 * number)
        rows.properties.append(platform)
        submit(weather[0], rows)
    return plan.survey


SHARES = {"platform": {"ios": 0.9, "web": 0.1}}


def test_what_is_noted_is_of_the_weighted_estimates(
    sure: str, weather: tuple[str, Analyst]
) -> None:
    with quietly():
        pooled = weather[1].estimate(sure, "sky")
        found = weather[1].estimate(sure, "sky", margins=SHARES)
        sized = weather[1].set_sizes(sure, "apps", margins=SHARES)
    assert [note.code for note in pooled.notes] == ["groups_differ"]
    assert found.notes == ()  # neither the weighted nor the unweighted estimates are pooled
    assert found.table().column("unweighted").values[0] == pytest.approx(0.5, abs=0.05)
    (note,) = sized.notes
    assert note.given == {"most": 2, "share": sized.table().column("estimate").values[-1]}


@pytest.mark.parametrize("margins", [{}, {"margins": SHARES}], ids=["plain", "weighted"])
def test_simultaneous_intervals_of_sizes_cover_their_mean_too(
    sure: str, weather: tuple[str, Analyst], margins: Any
) -> None:
    with quietly():
        at_once = weather[1].set_sizes(sure, "apps", simultaneous=True, **margins)
        alone = weather[1].set_sizes(sure, "apps", confidence=1 - 0.05 / 4, **margins)
    for table, end in product(("rows", "mean"), ("low", "high")):  # of three sizes and the mean
        ends = [answer.table(table).column(end).values for answer in (at_once, alone)]
        assert ends[0] == pytest.approx(ends[1])


def test_groups_share_people_with_the_other_groups_of_other_periods() -> None:
    plan = parse(resolve(from_toml(TOML, "weather.toml")))
    size = plan.levels["open"].mechanisms["sky"].tally_size

    def cohort(group: str, day: str, n: int) -> tuple[Cohort, Tally]:
        found = Cohort("weather", plan.revision, "sky", "open", day, "", 0, group)
        return found, Tally(n, np.zeros(size, dtype=np.int64))

    first = dict([cohort("a", DAYS[0], 100), cohort("a", DAYS[1], 50)])
    second = dict([cohort("b", DAYS[0], 30), cohort("b", DAYS[1], 70)])
    found = of_groups(plan, {"a": first, "b": second})
    assert found["a"] == of_levels(plan, first, second)
    assert found["b"] == of_levels(plan, second, first)
    assert found["a"][0].factor == pytest.approx(factors([[100, 50], [30, 70]])[0])


def test_surveys_without_properties_have_no_margins(address: str) -> None:
    text = TOML.replace('"weather"', '"plain"')
    begin, end = text.index("[[properties]]"), text.index("[[attributes]]")
    _, plan = register(address, text[:begin] + text[end:])
    submit(address, batch(plan, "open", DAYS[0], {"sky": np.zeros(50, dtype=int)}, 1))
    with Analyst(address) as analyst, pytest.raises(InvalidInput, match="declares no properties"):
        analyst.estimate("plain", "sky", margins=MARGINS).to_frame()


def test_the_demo_takes_properties_from_columns(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text(
        "Platform,sky,degrees,hours,clothes,stars\nios,blue,20,,,\nbeos,grey,10,,,\nweb,,,,,\n"
    )
    source = from_csv(file, from_toml(TOML, "weather.toml"))
    assert source.properties == [{"platform": "ios"}, {}, {"platform": "web"}]
    assert len(source.respondents) == 3
