"""The analyst's pages: their numbers are those of `Analyst`, whatever the titles are."""

import csv
import html
import io
import json
import os
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import pandas as pd
import pytest
from collected import DAYS, batch, register
from over_http import Answer
from serving import connected, submit, tokens_of
from visiting import Browser, Site, showing

from hearsay import Analyst
from hearsay.asking.answer import Column, Level, Role, Table
from hearsay.plans.plan import Plan, parse
from hearsay.v1 import admin_pb2, admin_pb2_grpc
from hearsay_server.pages.analyst import charts, show
from hearsay_server.pages.words import many
from hearsay_server.spreadsheets import rewritten

TOML = """
name = "lives"
title = "</script><script>alert(1)</script>"
period = "P1D"
[levels]
strict = 12.0
open = 32.0
[[attributes]]
name = "how"
title = "How do you go to <b>work</b>?"
[attributes.categorical]
values = ["bus", "bike, or foot", "<img src=x onerror=alert(1)>", "=1+1"]
[[attributes]]
name = "smokes"
[attributes.categorical]
values = ["no", "yes"]
[[attributes]]
name = "drink"
mechanism = "oue"
[attributes.categorical]
values = ["tea", "coffee", "water"]
[[attributes]]
name = "hours"
mechanism = "square_wave"
[attributes.numeric]
low = 0
high = 8
step = 1
[[attributes]]
name = "apps"
mechanism = "set_pairs"
[attributes.set]
values = ["mail", "maps", "chess"]
at_most = 2
[[attributes]]
name = "stars"
[attributes.ratings]
keys = ["food", "staff"]
low = 1
high = 5
at_most = 2
"""

WORDS = """
name = "terms"
period = "P1D"
[levels]
open = 18.0
[[attributes]]
name = "word"
[attributes.strings]
alphabet = "abcdefghijklmnopqrstuvwxyz'"
longest = 3
[[attributes]]
name = "mood"
[attributes.categorical]
values = ["good", "bad"]
"""

QUICK = [
    "estimate?attribute=how",
    "estimate?attribute=how&level=open&consistent=norm-sub&top=2",
    "estimate?attribute=how&sum=bus%2C%22bike%2C+or+foot%22",
    "estimate?attribute=stars",
    "sizes?attribute=apps",
    "by?attribute=how&by=level&simultaneous=1",
    "by?attribute=smokes&by=period",
    "compare?attribute=how&compare=level%3Dstrict%2Copen",
    f"change?attribute=how&change={DAYS[0]}&change={DAYS[1]}",
    "distribution?attribute=hours",
    "quantiles?attribute=hours&quantile=0.5",
    "cdf?attribute=hours",
    "between?attribute=hours&between=2&between=5",
    "forged?attribute=how&forged=7",
    "forecast?attribute=how&goal=0.01",
]
"""Views that are answered from tallies."""

LONG = [
    "trend?attribute=how",
    "suspicions?attribute=drink",
    "suspicions?attribute=drink&suspect=tea&suspect=water",
    "pairs?attribute=apps",
    "joint?attribute=how&other=smokes",
    "independent?attribute=how&other=smokes",
    "given?attribute=how&given=smokes",
    "differences?attribute=how&given=smokes&confidence=0.9",
]
"""Views for which the server reads the reports, or that need many days."""


def people(plan: Plan, rows: int, seed: int) -> dict[str, Any]:
    source = np.random.default_rng(seed)
    sets = np.array([[0, 1], [0, -1], [-1, -1], [1, 2]])
    stars = np.array([[0, 3], [0, -1], [1, 2], [-1, -1]])
    return {
        "how": source.choice(4, rows, p=[0.4, 0.3, 0.2, 0.1]),
        "smokes": source.integers(0, 2, rows),
        "drink": source.integers(0, 3, rows),
        "hours": source.beta(2, 4, rows) * 2 - 1,
        "apps": sets[source.integers(0, 4, rows)],
        "stars": stars[source.integers(0, 4, rows)],
    }


def fill(address: str, token: str | None = None) -> None:
    """Register the survey, with reports of three days at each level."""
    _, plan = register(address, TOML, token)
    cohorts = [(level, day) for level in plan.levels for day in DAYS]
    batches = [
        batch(plan, level, day, people(plan, 300, seed), seed)
        for seed, (level, day) in enumerate(cohorts)
    ]
    submit(address, *batches)


@pytest.fixture(scope="module")
def lives(site: Site) -> Site:
    """A site with a survey that has reports."""
    fill(site.grpc)
    return site


def shown_code(page: str, name: str) -> str:
    found = re.search(f'<code id="{name}">(.*?)</code>', page, re.DOTALL)
    assert found
    return html.unescape(found[1])


def check(site: Site, view: str, survey: str = "lives") -> None:
    """The code that a page shows gives the numbers of its CSV and table, to the last digit."""
    page = site.text(f"/analyst/{survey}/{view}")
    told = site.text(f"/analyst/{survey}/{view.replace('?', '.csv?')}")
    names: dict[str, Any] = {}
    code = shown_code(page, "python")
    exec(code, names)
    table = names["table"]
    names["analyst"].close()
    exec(code.replace("table = ", "answer = ").replace(".to_frame()", ""), names)
    names["analyst"].close()
    assert rewritten(names["answer"].to_csv()) == told
    document = json.loads(site.text(f"/analyst/{survey}/{view.replace('?', '.json?')}"))
    assert document == json.loads(names["answer"].to_json())
    assert len(table) > 0
    exact = [float(each) for each in re.findall('<data value="([^"]*)">', page)]
    rows = table.drop(
        columns=["share_standard_error", "unweighted_standard_error"], errors="ignore"
    )
    wanted = [value for value in rows.to_numpy().ravel().tolist() if not isinstance(value, str)]
    assert sorted(map(repr, exact)) == sorted(repr(float(value)) for value in wanted)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_code_beside_views_of_tallies_gives_their_numbers(lives: Site) -> None:
    for view in QUICK:
        check(lives, view)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("view", LONG)
def test_the_code_beside_views_of_rows_gives_their_numbers(lives: Site, view: str) -> None:
    check(lives, view)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_code_beside_words_and_breaks_gives_their_numbers(site: Site) -> None:
    _, plan = register(site.grpc, WORDS)
    spelled = plan.attributes["word"].domain.spelling.numbers(["you", "the", "how"])  # type: ignore[union-attr]
    for seed in range(6):
        source = np.random.default_rng(seed)
        words = spelled[source.choice(3, 800, p=[0.6, 0.3, 0.1])]
        moods = source.choice(2, 800, p=[0.8, 0.2] if seed < 3 else [0.2, 0.8])
        day = (datetime.now(UTC) - timedelta(days=5 - seed)).strftime("%Y-%m-%d")
        one = batch(plan, "open", day, {"word": words, "mood": moods}, 10 * seed)
        submit(site.grpc, one)
    found = "words?attribute=word"
    for view in (found, f"{found}&candidates=you%0Athe", "breaks?attribute=mood"):
        check(site, view, "terms")
    assert "you" in site.text(f"/analyst/terms/{found}")
    assert "(of up to 3 letters) is found about every second time" in site.text(
        f"/analyst/terms/{found}"
    )


def test_a_chart_has_the_numbers_of_the_table(lives: Site) -> None:
    page = lives.text("/analyst/lives/estimate?attribute=smokes")
    found = re.search('data-numbers="([^"]*)"', page)
    assert found
    chart = json.loads(html.unescape(found[1]))
    told = list(
        csv.DictReader(io.StringIO(lives.text("/analyst/lives/estimate.csv?attribute=smokes")))
    )
    assert [row["label"] for row in chart["rows"]] == ["no", "yes"]
    for row, line in zip(chart["rows"], told, strict=True):
        assert [row["estimate"], row["low"]] == [float(line["estimate"]), float(line["low"])]
        assert row["alike"][0] == float(line["alike"])


def test_the_interval_stands_right_of_its_estimate(lives: Site) -> None:
    for view in (
        "estimate?attribute=smokes",
        "compare?attribute=how&compare=level%3Dstrict%2Copen",
    ):
        headings = re.findall(
            r'<th scope="col"[^>]*>(.*?)</th>', lives.text(f"/analyst/lives/{view}")
        )
        assert headings[2] == "95% interval", headings


def test_an_estimate_outside_of_its_interval_is_noticed() -> None:
    numbers = {"estimate": [0.2, -0.1], "low": [0.1, 0.0], "high": [0.3, 0.1]}

    def told(rows: int, names: Sequence[Role]) -> bool:
        columns = [Column(name, name, "share", numbers[name][:rows]) for name in names]  # type: ignore[arg-type]
        return show.is_outside(Table("rows", (Level("x", ["a", "b"][:rows]),), tuple(columns)))

    assert told(2, ["estimate", "low", "high"])
    assert not told(1, ["estimate", "low", "high"])
    assert not told(2, ["low"])


def test_a_test_of_independence_says_its_verdict_in_words(lives: Site) -> None:
    text = lives.text("/analyst/lives/independent?attribute=how&other=smokes")
    assert re.search(r"the two are independent: chi-squared [-+.e\d]+ with \d+ degrees", text)
    assert re.search(r"would be found at significance 0.05 in 80% of cases", text)
    assert "pvalue" not in re.sub("<pre.*?</pre>", "", text, flags=re.S)


def test_one_report_is_no_plural() -> None:
    assert [many(n, "report") for n in (0, 1, 1200)] == [
        "0 reports",
        "1 report",
        "1,200 reports",
    ]


def test_hostile_titles_and_values_are_text(lives: Site) -> None:
    for path in ("", "/lives", "/lives/estimate?attribute=how", "/lives/by?attribute=how&by=level"):
        page = lives.text(f"/analyst{path}")
        for raw in ("<img src=x", "<b>work", "<script>alert", "</script><script>"):
            assert raw not in page, path
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert lives.get(f"/analyst/lives/estimate?attribute={quote('<b>x')}").status == 404


def test_a_regression_is_at_an_address_of_its_formula(lives: Site) -> None:
    formula = "hours ~ C(smokes)"
    address = f"/analyst/lives/fit{{}}?formula={quote(formula)}&level=open"
    with Analyst(lives.grpc) as analyst:
        fitted = analyst.ols("lives", formula, levels=["open"])
    assert json.loads(lives.text(address.format(".json"))) == json.loads(fitted.to_json())
    assert lives.text(address.format(".csv")) == rewritten(fitted.to_csv())
    assert lives.get(address.format("")).status == 404  # it has no page
    wrong = lives.get("/analyst/lives/fit.json?formula=hours")
    assert wrong.status == 400 and b"hours" in wrong.body


def test_a_program_posts_what_is_longer_than_an_address(weather: Site) -> None:
    def post(fields: list[tuple[str, str]], view: str = "estimate") -> Answer:
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return weather.ask(f"/analyst/weather/{view}.json", urlencode(fields), kind)

    told = post([("attribute", "sky"), ("margins", PLATFORM), ("margins", COUNTRY)])
    asked = f"attribute=sky&margins={quote(PLATFORM)}&margins={quote(COUNTRY)}"
    assert told.status == 200
    assert told.json() == json.loads(weather.text(f"/analyst/weather/estimate.json?{asked}"))
    long = post([("attribute", "sky"), ("level", "no such level" * 400)])
    assert long.status == 400 and "no such level" in long.json()["error"]
    for fields, view, status, words in (
        ([("attribute", "moon")], "estimate", 404, "'weather' has no attribute 'moon'; it has"),
        ([("attribute", "sky"), ("tpo", "3")], "estimate", 400, "no option 'tpo'"),
        ([("attribute", "sky")], "nothing", 404, "no view 'nothing'"),
        ([("formula", "hours")], "fit", 400, "hours"),
    ):
        refused = post(fields, view)
        assert refused.status == status and words in refused.json()["error"]
    file = (
        '--x\r\nContent-Disposition: form-data; name="margins"; filename="a.csv"\r\n\r\na\r\n--x--'
    )
    kind = {"content-type": "multipart/form-data; boundary=x"}
    refused = weather.ask("/analyst/weather/estimate.json", file, kind)
    assert refused.status == 400 and "a field is a file" in refused.json()["error"]


def test_a_view_that_cannot_be_answered_says_why(lives: Site) -> None:
    path = "/analyst/lives/estimate{}?attribute=how&period=2020-01-01"
    page = lives.text(path.format(""))
    assert "there are no" in page or "no such reports" in page
    assert lives.get(path.format(".csv")).status == 409
    assert lives.get(path.format(".json")).status == 409
    assert lives.get("/analyst/lives/nothing?attribute=how").status == 404
    assert lives.get("/analyst/nowhere").status == 404
    wrong = lives.get("/analyst/lives/estimate?attribute=how&tpo=3")
    assert wrong.status == 400 and b"no option" in wrong.body and b"<form" in wrong.body
    suggested = lives.get("/analyst/lives/by?attribute=how")
    assert suggested.status == 200
    assert suggested.body == lives.get("/analyst/lives/by?attribute=how&by=level").body
    ranged = lives.text("/analyst/lives/between?attribute=hours")
    assert "data-numbers" in ranged and 'value="2"' in ranged and "dragging" in ranged
    listed = lives.text("/analyst/lives/compare?attribute=how")
    assert '<option value="level=strict,open">' in listed
    assert "/suspicions?attribute=drink" in lives.text("/analyst/lives/by?attribute=drink&by=level")
    assert "/suspicions?attribute=how" not in listed  # of this mechanism there is no test
    lines = ("sum=a%0Db", "where=a=b%0Dc", "values=a%0Db", "change=1")
    for bad in ("confidence=x", "confidence=2", "top=-1", "between=1", "where=%22", *lines):
        path = f"/analyst/lives/estimate.csv?attribute=how&{bad}"
        refused, shown = lives.get(path), lives.get(path, accept="text/html,*/*")
        assert refused.status == shown.status == 400
        assert refused.headers["content-type"].startswith("text/plain")  # of a program
        assert b"<h1" in shown.body and b"<h1" not in refused.body


def test_csv_at_an_address_has_the_table_that_is_named(lives: Site) -> None:
    path = "/analyst/lives/given.csv?attribute=how&given=smokes&table="
    assert lives.text(f"{path}differences").startswith("attribute,first_group,second_group,how,")
    refused = lives.get(f"{path}x")
    assert refused.status == 400 and b"has no table 'x', only" in refused.body


def test_a_comparison_of_several_lines_is_refused(lives: Site) -> None:
    path = "/analyst/lives/compare.json?attribute=how&compare=level=strict%0D,open"
    assert lives.get(path).status == 400


def test_a_view_that_did_not_change_is_not_sent_again(lives: Site) -> None:
    page = lives.text("/analyst/lives/estimate?attribute=smokes")
    found = re.search('hx-get="([^"]*)"', page)
    assert found
    again = lives.get(html.unescape(found[1]))
    assert (again.status, again.body) == (204, b"")
    other = lives.get(html.unescape(found[1]).partition("have=")[0] + "have=old")
    assert other.status == 200 and b"<table>" in other.body and b"<html" not in other.body


def test_tokens_open_the_pages_as_the_calls_and_curl_does_the_same(tmp_path: Any) -> None:
    tokens = tokens_of(tmp_path)
    made = {role: tokens.create(role, f"a {role}")[1] for role in ("device", "analyst", "admin")}
    with showing(tmp_path) as site:
        fill(site.grpc, made["admin"])
        path = "/analyst/lives/estimate?attribute=smokes&level=open"
        for role, status in {"device": 403, "admin": 403, "analyst": 200}.items():
            for each in (path, path.replace("?", ".csv?"), "/analyst", "/analyst/lives"):
                assert site.get(each, authorization=f"Bearer {made[role]}").status == status
        refused = site.signed_in(made["admin"]).get(path).body.decode()
        assert "needs a token of role analyst; yours is of role admin" in refused
        assert f'href="/sign-in?to={quote(path, safe="")}"' in refused
        page = site.signed_in(made["analyst"]).text(path)
        assert 'token=os.environ["HEARSAY_TOKEN"]' in shown_code(page, "python")
        line = shown_code(page, "curl")
        told = subprocess.run(
            ["sh", "-c", line],
            env=os.environ | {"HEARSAY_TOKEN": made["analyst"]},
            capture_output=True,
            check=True,
        ).stdout
        csv_path = path.replace("?", ".csv?")
        assert told == site.signed_in(made["analyst"]).get(csv_path).body
        assert made["analyst"] not in page + line


PLATFORM = "platform,share\r\nios,0.2\r\nandroid,0.8\r\n"
COUNTRY = "country,count\nde,41000\nfr,41000\n"
GROUPED = """
name = "weather"
period = "P1D"
[levels]
strict = 8.0
[[properties]]
name = "platform"
values = ["ios", "android"]
[[properties]]
name = "country"
values = ["de", "fr"]
[[attributes]]
name = "sky"
categorical.values = ["blue", "grey"]
[[attributes]]
name = "hours"
mechanism = "square_wave"
[attributes.numeric]
low = 0
high = 4
step = 1
"""


@pytest.fixture(scope="module")
def weather(site: Site) -> Site:
    """A site with a survey of public groups that answer differently; one has 15 people."""
    _, plan = register(site.grpc, GROUPED)
    groups = {("ios", "de"): 600, ("ios", "fr"): 300, ("android", "de"): 200, ("android", "fr"): 15}
    for seed, (properties, rows) in enumerate(groups.items()):
        blue = np.arange(rows) < (0.9 if "ios" in properties else 0.3) * rows
        answers = {"sky": np.where(blue, 0, 1), "hours": np.where(blue, 0.5, -0.5)}
        sent = batch(plan, "strict", DAYS[0], answers, 50 + seed)
        sent.properties.extend(properties)
        submit(site.grpc, sent)
    return site


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_weighted_views_equal_analyst_beside_the_unweighted(weather: Site) -> None:
    margins = f"margins={quote(PLATFORM)}"
    for view in (
        f"estimate?attribute=sky&{margins}",
        f"estimate?attribute=sky&{margins}&margins={quote(COUNTRY)}&least=2",
        f"by?attribute=sky&by=level&{margins}",
        f"quantiles?attribute=hours&quantile=0.5&{margins}",
        f"between?attribute=hours&between=2&between=3&{margins}",
    ):
        check(weather, view, "weather")
    page = weather.text(f"/analyst/weather/estimate?attribute=sky&{margins}")
    assert "Weighted to known shares" in page and "unweighted" in page
    assert "ios,0.2\nandroid,0.8</textarea>" in page
    with Analyst(weather.grpc) as analyst:
        shares = {"platform": {"ios": 0.2, "android": 0.8}}
        answer = analyst.estimate("weather", "sky", margins=shares)
        table = answer.to_frame()
    told = weather.text(f"/analyst/weather/estimate.csv?attribute=sky&{margins}")
    assert rewritten(answer.to_csv()) == told
    assert (table["estimate"] != table["unweighted"]).all()


def test_margins_that_cannot_be_asked_with_are_refused_in_words(weather: Site, lives: Site) -> None:
    path = "/analyst/weather/estimate{}?attribute=sky&margins={}"
    for text, words in {
        "platform\nios": "the heading must be properties and then",
        "platform,share\nios,x": "row 2: &#39;x&#39; is no share",
        "platform,share\nios,0.5\nandroid,0.1": "sum to",
    }.items():
        page = weather.get(path.format("", quote(text)))
        assert words in page.body.decode(), page.body
        assert weather.get(path.format(".csv", quote(text))).status == 400
    long = weather.get(path.format("", quote("platform,share\n" + "x,0\n" * 1200)))
    assert long.status == 400 and b"whose --margins reads files" in long.body
    least = weather.get("/analyst/weather/estimate?attribute=sky&least=5")
    assert least.status == 400 and b"with margins" in least.body
    both = "between?attribute=hours&between=1&between=2&other=hours&other-between=1"
    both += f"&other-between=2&margins={quote(PLATFORM)}"
    assert b"leave out the other one" in weather.get(f"/analyst/weather/{both}").body
    assert "<textarea" not in lives.text("/analyst/lives/estimate?attribute=how")


def test_a_group_of_under_20_people_has_its_warning_on_the_page(weather: Site) -> None:
    where = "where=platform%3Dandroid&where=country%3Dfr"
    page = weather.text(f"/analyst/weather/estimate?attribute=sky&{where}")
    told = "there are 15 of the level &#39;strict&#39;"
    assert told in page
    assert "data-numbers" not in page


@pytest.mark.slow
def test_files_of_margins_go_into_the_address(
    weather: Site, browser: Browser, tmp_path: Path
) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    files = [tmp_path / "platform.csv", tmp_path / "country.csv"]
    for file, text in zip(files, (PLATFORM, COUNTRY), strict=True):
        file.write_text(text)
    page = browser.open(weather, "/analyst/weather/estimate?attribute=sky")
    page.click("summary:has-text('Options')")
    page.set_input_files("input[type=file]", files)
    # No function in the page is waited for: to ask it again needs eval, which its policy forbids.
    playwright.expect(page.locator("textarea").nth(1)).to_have_value(re.compile("country"))
    page.click("text=Show")
    page.wait_for_selector("text=Weighted to known shares")
    assert page.url.count("margins=") == 2


@pytest.mark.slow
def test_pictures_are_png(lives: Site) -> None:
    for view in (
        "estimate.png?attribute=how",
        "distribution.png?attribute=hours",
        "trend.png?attribute=how",
        "trend.png?attribute=hours",
        "trend.png?attribute=how&sum=bus",
        "independent.png?attribute=how&other=smokes",
        "suspicions.png?attribute=drink",
    ):
        answer = lives.get(f"/analyst/lives/{view}")
        assert answer.status == 200 and answer.body.startswith(b"\x89PNG")


@pytest.mark.slow
def test_charts_fit_a_telephone_and_are_drawn_within_the_policy(
    lives: Site, browser: Browser
) -> None:
    page = browser.open(lives, "/analyst/lives")
    for width, views in {
        390: [f"/{view}" for view in QUICK] + [""],
        1280: [f"/{QUICK[5]}"],
    }.items():
        page.set_viewport_size({"width": width, "height": 900})
        for view in views:
            page.goto(f"{lives.origin}/analyst/lives{view}")
            page.wait_for_selector("figure.chart svg")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view
            assert page.evaluate("document.querySelectorAll('style, [style*=url]').length") == 0


@pytest.mark.slow
def test_a_range_is_chosen_by_dragging_and_by_two_fields(lives: Site, browser: Browser) -> None:
    page = browser.open(lives, "/analyst/lives/distribution?attribute=hours")
    box = page.locator("figure.chart svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 120)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 120)
    page.mouse.up()
    page.wait_for_url("**/between?*")
    low, high = (float(each.input_value()) for each in page.locator("[name=between]").all())
    assert 0 <= low < high <= 8
    plain = browser.open(lives, page.url.removeprefix(lives.origin), java_script_enabled=False)
    plain.fill("[name=between] >> nth=0", "1")
    plain.press("[name=between] >> nth=0", "Enter")
    plain.wait_for_url("**between=1&**")
    assert plain.locator("table data").count() == 4
    assert plain.locator("noscript img, img").count() == 1  # the picture stands for the chart


@pytest.mark.slow
def test_a_view_renews_itself_as_reports_arrive(lives: Site, browser: Browser) -> None:
    page = browser.open(lives, "/analyst/lives/estimate?attribute=smokes")
    before = page.locator(".numbers .hint").last.inner_text()
    with Analyst(lives.grpc) as analyst:
        plan = parse(analyst.show_survey("lives").plan)
    submit(lives.grpc, batch(plan, "open", DAYS[2], people(plan, 500, 99), 99))
    page.wait_for_function(
        "text => ![...document.querySelectorAll('.numbers .hint')].at(-1).innerText.includes(text)",
        arg=before,
        timeout=20_000,
    )
    page.wait_for_selector("figure.chart svg")


ASKED = """
name = "{name}"
period = "P1D"
{more}
[levels]
one = 2.0
two = 4.0
[page]
public = true
results = true
[[attributes]]
name = "how"
[attributes.categorical]
values = ["foot", "bike", "bus"]
"""


def _answered(site: Site, name: str, more: str, parts: list[tuple[str, str, float]]) -> None:
    """Register a survey and send 1,000 reports for each level, day and share of "foot"."""
    _, plan = register(site.grpc, ASKED.format(name=name, more=more))
    draw = np.random.default_rng(1)
    for number, (level, day, share) in enumerate(parts):
        answers = np.where(draw.random(1000) < share, 0, draw.integers(1, 3, 1000))
        submit(site.grpc, batch(plan, level, day, {"how": answers}, number))


def test_a_forecast_is_made_from_now_and_of_an_open_survey(site: Site) -> None:
    days = [f"{datetime.now(UTC) - timedelta(days=n):%Y-%m-%d}" for n in (40, 39, 38, 3, 2)]
    _answered(site, "silent", "", [("one", day, 0.5) for day in days[:3]])
    _answered(site, "shut", "", [("one", day, 0.5) for day in days])
    analyst = Analyst(site.grpc)
    assert analyst.forecast("silent", "how").to_frame().attrs["rate"] is None  # none came of late
    found = analyst.forecast("shut", "how", goal=0.001).to_frame().attrs
    assert found["rate"] == pytest.approx(2000 / 7)
    assert min(found["twice"], found["reached"]) > f"{datetime.now(UTC):%Y-%m-%d}"
    with connected(site.grpc) as channel:
        request = admin_pb2.CloseSurveyRequest(survey="shut")
        admin_pb2_grpc.AdminStub(channel).CloseSurvey(request, timeout=20)
    found = analyst.forecast("shut", "how", goal=0.001).to_frame().attrs
    assert found["closed"]
    assert found["rate"] is found["twice"] is found["reached"] is None
    assert "This survey is closed" in site.text("/analyst/shut/forecast?attribute=how")


def test_the_crowd_is_not_shown_where_what_is_pooled_describes_nobody(site: Site) -> None:
    parts = [("one", DAYS[0], 0.8), ("two", DAYS[0], 0.1)]
    _answered(site, "pooled", "levels_differ_at_most = 0.0", parts)
    _answered(site, "mixed", "", parts)
    assert "answer differently" in site.text("/asked/pooled/crowd")
    assert "foot" not in site.text("/asked/pooled/crowd")
    assert "foot" in site.text("/asked/mixed/crowd")


def test_errors_to_come_are_drawn_around_the_estimates() -> None:
    table = pd.DataFrame(
        {
            "estimate": [-0.02, 1.02],
            "standard_error": [0.04, 0.02],
            "low": [0.0, 0.98],
            "high": [0.06, 1.0],
            "with_twice": [0.03, 0.01],
        },
        index=pd.Index(["no", "yes"], name="how"),
    )
    table.attrs = {"attribute": "how", "title": "", "statistic": "frequency", "confidence": 0.95}
    chart = charts.errors(table)
    assert chart is not None
    assert chart["rows"][0]["twice"] == pytest.approx([-0.02, -0.05, 0.01])
    assert chart["rows"][1]["low"] == pytest.approx(1.0)
