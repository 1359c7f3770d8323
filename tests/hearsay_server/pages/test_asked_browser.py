"""The scripts of a survey's page: what would leave, and answering, in Chromium."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asked import SURVEY, register
from serving import connected, create
from visiting import Browser, Site, showing

from hearsay import Analyst
from hearsay.plans.kinds import Categorical, Domain, Numeric, SetOf
from hearsay.v1 import admin_pb2, admin_pb2_grpc
from hearsay_server.surveys import catalogue
from hearsay_server.surveys.describe import describe
from hearsay_server.surveys.readings import labels, reading
from ldp import Mechanism, PolicyUnary, SetBits, SetSelection
from ldp.core.policy import Policy
from ldp.planning.design import design
from ldp.testing import SeededCoins
from support import wait_until

pytestmark = pytest.mark.slow


def test_what_would_leave_is_drawn_in_the_browser_and_nothing_is_sent(
    site: Site, browser: Browser
) -> None:
    register(site, "tried", "public = true")
    page = browser.open(site, "/asked/tried?level=standard")
    page.wait_for_selector("html[data-tryable]")
    page.wait_for_load_state("networkidle")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.check("#try-form input[name=late][value='1']")
    page.fill("#try-minutes", "30")
    for _ in range(3):
        page.click("text=See what would leave")
    page.locator("#tried ul").nth(2).wait_for()
    assert "counts as" in page.inner_text("#tried")
    page.click("#try-many")
    page.wait_for_selector("#tried table")
    said = {
        row.split("\t")[0]: int(row.split("\t")[1])
        for row in page.inner_text("#tried table").splitlines()
        if "\t" in row
    }
    assert said["no"] + said["yes"] == 100
    assert 50 <= said["yes"] <= 95  # 73 are expected: five standard errors
    page.locator("#level").fill("0")  # the slider, to the level "strict"
    assert page.is_visible("#level-strict") and not page.is_visible("#level-standard")
    page.click("text=See what would leave")
    page.wait_for_selector("#tried li")
    assert asked == []
    storage = page.evaluate(
        "async () => [(await indexedDB.databases()).length, localStorage.length]"
    )
    assert storage == [0, 0]


def test_without_scripts_the_levels_are_links(site: Site, browser: Browser) -> None:
    register(site, "plain", "public = true")
    page = browser.open(site, "/asked/plain", java_script_enabled=False)
    page.click("nav.levels a:has-text('strict')")
    assert page.is_visible("#level-strict") and not page.is_visible("#level-standard")
    assert "Trying needs JavaScript" in page.inner_text("noscript")
    assert not page.is_visible("#trying")


SUBSETS = design(Policy.one_sided(40, range(20, 40), 2.0)).mechanism
CASES: list[tuple[Domain, Mechanism, Any]] = [
    (Categorical(("a", "b", "c", "d")), catalogue.categorical(name, 4, 1.0), 2)
    for name in ("krr", "oue", "subset", "ordered", "olh", "blh", "hrr", "hadamard", "projective")
]
CASES += [
    (Categorical(tuple(f"v{v}" for v in range(300))), catalogue.categorical("subset", 300, 5.0), 7),
    (Categorical(("a", "b", "c")), design(Policy.one_sided(3, [0], 1.0)).mechanism, 1),
    (Categorical(("a", "b", "c")), PolicyUnary.utility_optimised(3, [0], 1.0), 1),
    (Categorical(tuple("abcdef")), PolicyUnary.utility_optimised(6, [3, 4], 3.0), 0),
    (Categorical(tuple(f"v{v}" for v in range(40))), SUBSETS, 0),
    (Categorical(tuple(f"v{v}" for v in range(40))), SUBSETS, 39),
    (SetOf(("a", "b", "c"), at_most=2, clamp=False), SetSelection(3, 1.0, 2), [0, 1]),
    (SetOf(("a", "b", "c"), at_most=2, clamp=False), SetBits(3, 1.0), [0, 1]),
]
CASES += [
    (Numeric(0.0, 10.0, clamp=False), catalogue.numeric(name, 1.0), 0.5)
    for name in catalogue.NUMERIC
]


def test_codes_are_read_in_the_browser_as_the_server_reads_them(
    site: Site, browser: Browser
) -> None:
    page = browser.open(site, "/asked")
    script = re.search(r'"(/static/[0-9a-f]+/)site.css"', site.text("/"))
    assert script
    page.evaluate("async (at) => { window.reading = await import(at); }", f"{script[1]}reading.js")
    coins = SeededCoins(1)
    for domain, mechanism, value in CASES:
        for _ in range(5):
            code = mechanism.encode([mechanism.randomize(value, coins)])
            given = [reading(domain, mechanism), list(labels(domain)), list(code)]
            shown = page.evaluate("([r, l, c]) => reading.inWords(r, l, new Uint8Array(c))", given)
            expected = describe(domain, mechanism, code).partition("  ")[2]
            if isinstance(domain, Numeric):
                there = float(shown.partition("counts as ")[2].partition(" ")[0].replace(",", ""))
                assert there == pytest.approx(float(expected.split()[-1]), abs=0.06, rel=1e-3)
                continue
            named = re.findall("“(.*?)”", shown)
            if isinstance(mechanism, SetBits):
                assert expected == f"says: {named[0]}, {shown.split()[0]}"
            elif isinstance(mechanism, SetSelection):
                ours = [each for each in named if not each.startswith("blank")]
                theirs = expected.removeprefix("says: ").split(" or ")
                assert ours == [each for each in theirs if each in domain.labels]
            elif named or not expected.startswith(("(", "counts most for")):
                theirs = expected.partition(": ")[2].split(" or ")
                assert (named or ["none"])[:8] == theirs[:8]
                assert ("gives the answer away" in shown) == expected.startswith("reveals")


HASHED = """
name = "hashed"
period = "P1D"
[levels]
one = 9.0
[[attributes]]
name = "sketch"
mechanism = "cms"
categorical = { values = ["a", "b", "c"] }
[[attributes]]
name = "signs"
mechanism = "hcms"
categorical = { values = ["a", "b", "c"] }
[[attributes]]
name = "bits"
mechanism = "dbitflip"
memo = 1
categorical = { values = ["a", "b", "c"] }
[[attributes]]
name = "word"
memo = 2
strings = { alphabet = "ab", longest = 3, candidates = ["ab", "ba"] }
[page]
public = true
"""


def test_codes_that_hash_an_answer_are_told_in_words_where_they_are_tried(
    site: Site, browser: Browser
) -> None:
    create(site.grpc, HASHED)
    wait_until(lambda: site.get("/asked/hashed").status == 200)
    page = browser.open(site, "/asked/hashed")
    page.wait_for_selector("html[data-tryable]")
    for name in ("sketch", "signs", "bits"):
        page.check(f"#try-form input[name={name}][value='1']")
    page.fill("#try-form [name=word]", "ab")
    page.click("text=See what would leave")
    page.wait_for_selector("#tried li")
    told = dict(each.split(": ", 1) for each in page.locator("#tried li").all_inner_texts())
    assert set(told) == {"sketch", "signs", "bits", "word"}
    assert all(told[name].startswith("a code that fits ") for name in ("sketch", "signs"))
    assert re.match("(yes|no) to “", told["bits"])
    assert re.match(r"\d+ of 128 bits are set, by the hash functions of group \d+", told["word"])
    page.click("#try-many")
    page.locator("#tried h3", has_text="100 people").wait_for()
    assert "sketch: 100 reports" in page.inner_text("#tried")


def wait_for_a_record(site: Site, page: Any, survey: str) -> None:
    """Let a page's time go on until the server has its one record."""
    with connected(site.grpc) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        for _ in range(100):
            shown = admin.ShowSurvey(admin_pb2.ShowSurveyRequest(survey=survey))
            if shown.status.records:
                break
            page.wait_for_timeout(100)
    assert shown.status.records == 1


def test_an_answer_from_the_page_is_a_devices(tmp_path: Path, browser: Browser) -> None:
    """A browser that is new takes no answer before the day after tomorrow, and then one a day."""
    now = [datetime.now(UTC)]
    with showing(tmp_path, clock=lambda: now[0]) as site:
        create(site.grpc, SURVEY.format(name="daily") + "[page]\npublic = true\nanswers = true\n")
        page = browser.open(site, "/asked/daily")
        page.check("#consent")
        page.locator("#answer-status", has_text="is new here").wait_for()
        now[0] += timedelta(days=3)
        page.clock.install(time=now[0])  # from where it goes on
        page.reload()
        page.locator("#answer-status", has_text="Answers are taken now").wait_for()
        page.check("#answer-form input[name=late][value='1']")
        page.click("#answer-fields button")
        page.locator("#answer-status", has_text="Your report is made").wait_for()
        wait_for_a_record(site, page, "daily")
        page.check("#answer-form input[name=late][value='1']")
        page.click("#answer-fields button")
        page.locator("#answer-status", has_text="answered it in this period already").wait_for()
        page.click("#erase")
        page.locator("#answer-status", has_text="You have stopped").wait_for()
        assert not page.is_checked("#consent")
    # What the SDK tells the developer of an app, and the page has said in words.
    browser.forget("drops answers (spent)")


def test_a_level_and_a_plan_that_were_agreed_to_are_the_ones_that_answer(
    tmp_path: Path, browser: Browser
) -> None:
    """Neither a link nor another survey of the name chooses for somebody who has agreed."""
    text = SURVEY.format(name="daily") + "[page]\npublic = true\nanswers = true\n"
    with showing(tmp_path) as site:
        create(site.grpc, text)
        page = browser.open(site, "/asked/daily?level=strict")
        page.check("#consent")
        page.locator("#answer-status", has_text="is new here").wait_for()
        page.goto(f"{site.origin}/asked/daily")
        page.locator("#consent:checked").wait_for()
        assert page.inner_text("#answer-level") == "strict"
        page.goto(f"{site.origin}/asked/daily?level=standard")
        page.locator("#answer-status", has_text="You agreed to the level strict").wait_for()
        assert not page.is_checked("#consent")
        with connected(site.grpc) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            admin.DeleteSurvey(admin_pb2.DeleteSurveyRequest(survey="daily"), timeout=20)
        create(site.grpc, text.replace("standard = 2.0", "standard = 12.0"))
        wait_until(lambda: "epsilon 12" in site.text("/asked/daily"))
        page.goto(f"{site.origin}/asked/daily")
        page.locator("#answer-status", has_text="has changed since you agreed").wait_for()
        assert not page.is_checked("#consent")
        assert page.is_disabled("#answer-fields button")


MAPPED = """
name = "{name}"
period = "P1D"
[levels]
open = 6.0
[page]
public = true
answers = true
[[attributes]]
name = "diagnosis"
title = "What is it?"
[attributes.categorical]
values = ["none", "a cold", "the flu"]
maps = {{ mine = {{ sensitive = ["the flu"] }}, both = {{ sensitive = ["a cold", "the flu"] }} }}
"""


def test_a_map_that_is_chosen_decides_what_is_protected(tmp_path: Path, browser: Browser) -> None:
    """Without a map nothing gives an answer away; with one, an answer that it does not protect."""
    with showing(tmp_path) as site:
        create(site.grpc, MAPPED.format(name="mapped"))
        wait_until(lambda: site.get("/asked/mapped").status == 200)
        page = browser.open(site, "/asked/mapped")
        page.wait_for_selector("html[data-tryable]")
        page.check("#try-form input[name=diagnosis][value='0']")

        def tried(chosen: str) -> str:
            page.select_option("#try-diagnosis-map", chosen)
            assert page.inner_text("#tried") == ""  # what was tried before was of other choices
            found = ""
            for _ in range(12):
                page.click("text=See what would leave")
                page.locator("#tried li").first.wait_for()
                found += page.inner_text("#tried")
            return found

        assert "gives the answer away" not in tried("")
        assert "gives the answer away" in tried("mine")
        assert "gives the answer away" in tried("both")
        page.select_option("#try-diagnosis-map", "both")
        page.check("#try-form input[name=diagnosis][value='1']")
        page.click("#try-many")
        page.wait_for_selector("#tried table")
        assert "100 reports" in page.inner_text("#tried caption")


def test_a_map_goes_with_the_answers_of_the_page_and_is_remembered(
    tmp_path: Path, browser: Browser
) -> None:
    now = [datetime.now(UTC)]
    with showing(tmp_path, clock=lambda: now[0]) as site:
        create(site.grpc, MAPPED.format(name="mapped"))
        wait_until(lambda: site.get("/asked/mapped").status == 200)
        page = browser.open(site, "/asked/mapped")
        page.check("#consent")
        page.locator("#answer-status", has_text="is new here").wait_for()
        page.select_option("#answer-diagnosis-map", "both")
        now[0] += timedelta(days=3)
        page.clock.install(time=now[0])
        page.reload()
        page.locator("#answer-status", has_text="Answers are taken now").wait_for()
        assert page.input_value("#answer-diagnosis-map") == "both"
        page.check("#answer-form input[name=diagnosis][value='2']")
        page.click("#answer-fields button")
        page.locator("#answer-status", has_text="Your report is made").wait_for()
        wait_for_a_record(site, page, "mapped")
        with Analyst(site.grpc) as analyst:
            rows = analyst.rows("mapped")
        assert rows["diagnosis__map"].tolist() == ["both"]
