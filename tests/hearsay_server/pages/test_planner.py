"""The page before registration."""

import re
from html import unescape

import numpy as np
import pytest
from over_http import Answer
from visiting import Browser, Site

import hearsay.plans.plan
from hearsay_server.pages import planner
from hearsay_server.surveys import explain_shares, planning
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.explain import explain
from ldp import InvalidInput
from ldp.testing import SeededCoins
from support import SURVEY

Guarded = tuple[Site, dict[str, str]]

TABLE = "id,How?,age\n" + "".join(f"{n},{'ab'[n % 2]},{n % 40}\n" for n in range(200))
_BOUNDARY = "a-boundary-of-parts"


def plan(
    site: Site, text: str = "", users: str = "1000", file: tuple[str, bytes] = ("", b"")
) -> Answer:
    """Post the planner's form as a browser does."""
    parts = [
        f'name="text"\r\n\r\n{text}'.encode(),
        f'name="users"\r\n\r\n{users}'.encode(),
        f'name="file"; filename="{file[0]}"\r\ncontent-type: text/csv\r\n\r\n'.encode() + file[1],
    ]
    between = f"--{_BOUNDARY}\r\ncontent-disposition: form-data; ".encode()
    body = b"".join(between + part + b"\r\n" for part in parts) + f"--{_BOUNDARY}--\r\n".encode()
    headers = {
        "origin": site.origin,
        "content-type": f"multipart/form-data; boundary={_BOUNDARY}",
    }
    return site.ask("/planner", body, headers | ({"cookie": site.cookie} if site.cookie else {}))


def planned(text: str, users: int = 1000, source: str = "s.toml") -> planning.Planned:
    return planning.planned([(source, text.encode())], users)


def test_a_survey_is_planned_and_its_text_comes_back(site: Site) -> None:
    answer = plan(site, SURVEY)
    html = unescape(answer.body.decode())
    assert answer.status == 200, html
    for told in (
        "every value from every other, by epsilon",
        "The smallest share that will be visible",
        ">30,000<",
        "epsilon 0.5",
        'budget = "auto" would make errors',
    ):
        assert told in html
    form = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", html, re.DOTALL)
    assert form
    assert form[1].strip() == SURVEY.strip()


def test_a_table_is_guessed_from_and_nothing_is_registered(site: Site) -> None:
    html = unescape(plan(site, file=("people.csv", TABLE.encode())).body.decode())
    assert "an identifier or free text: all rows differ" in html
    assert 'name = "people"' in html
    assert "a choice: few different values" in html
    assert site.ask("/hearsay.v1.Admin/ListSurveys").json() == {}


def test_a_table_is_compared_with_a_survey(site: Site) -> None:
    survey = '[levels]\na = 1.0\n[[attributes]]\nname = "how"\ntitle = "<b>"\n'
    survey = f'name = "t"\n{survey}[attributes.categorical]\nvalues = ["a", "<i>b"]\n'
    html = plan(site, survey, file=("people.csv", b"how\na\n<u>c\n")).body.decode()
    assert "1 cells are no answers" in html
    assert "&lt;u&gt;c" in html
    for hostile in ("<u>c", "<i>b", "<b>"):
        assert hostile not in html


@pytest.mark.parametrize(
    ("text", "users", "file", "said"),
    [
        ("", "10", ("", b""), "give a survey (TOML), a table (CSV) or one of each"),
        (SURVEY, "10", ("x.toml", SURVEY.encode()), "got 2 surveys and 0 tables"),
        (SURVEY, "many", ("", b""), "people must be a whole number, got 'many'"),
        (SURVEY, "0", ("", b""), "people must lie in 1..1,000,000,000,000, got 0"),
        ("name = 3", "10", ("", b""), "the text: "),
        ("a,b\n1\n", "10", ("", b""), "the text, row 2 has 1 cell"),
        ("", "10", ("x.csv", b"a,\xff\n"), "x.csv, line 1, character 3: byte 0xff is no UTF-8"),
        ("", "10", ("x.toml", b"\xff"), "x.toml, line 1, character 1"),
    ],
)
def test_what_cannot_be_planned_is_told(
    site: Site, text: str, users: str, file: tuple[str, bytes], said: str
) -> None:
    answer = plan(site, text, users, file)
    assert answer.status == 400
    assert said in unescape(answer.body.decode())


def test_a_file_above_4_mib_is_refused(site: Site) -> None:
    answer = plan(site, file=("x.csv", b"a\n" * (2 << 20)))
    assert answer.status == 413


def test_the_survey_of_the_form_is_a_download(site: Site) -> None:
    answer = site.post("/planner/survey.toml", {"text": "name = 'x'\n"})
    assert answer.body == b"name = 'x'\n"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert site.post("/planner/survey.toml", origin="http://evil.example").status == 403


def test_operators_and_analysts_may_plan_and_devices_may_not(guarded: Guarded) -> None:
    site, tokens = guarded
    assert site.get("/planner").status == 303
    assert plan(site, SURVEY).status in (303, 401)
    for role in ("admin", "analyst"):
        visitor = site.signed_in(tokens[role])
        assert visitor.get("/planner").status == 200
        assert plan(visitor, "name = 3").status == 400  # let in, and told what is wrong
    device = site.get("/planner", authorization=f"Bearer {tokens['device']}")
    assert device.status == 403


def test_a_survey_and_a_table_are_told_apart() -> None:
    for text in ("name = 'x'", "# note\n\n[levels]\n", 'title="a,b"', "levels.a = 1"):
        assert planning.is_survey("the text", text)
        assert not planning.is_survey("x.CSV", text)
    for text in ("a,b\n1,2", "id\n1", "", "# a,b\nc,d", "sep=,\na,b\n1,2"):
        assert not planning.is_survey("the text", text)
        assert planning.is_survey("x.toml", text)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_survey_and_a_table_are_read_by_the_mark_of_their_encoding(encoding: str) -> None:
    table = "sep=;\r\nmood;age\r\ngood;30\r\n"
    told = planning.planned(
        [("the text", SURVEY.encode(encoding)), ("upload", table.encode(encoding))], 1000
    )
    assert told.fit is not None
    assert told == planning.planned(
        [("the text", SURVEY.encode()), ("upload", table.encode())], 1000
    )


def test_the_numbers_are_those_of_explain() -> None:
    found = planned(SURVEY, users=3000)
    explained = explain(surveys.from_toml(SURVEY, "t"), "t", 3000)
    halves = {(level.name, a.name): a.half for level in found.levels for a in level.asked}
    for row in explained.rows:
        domain = explained.plan.questions[row.attribute].domain
        unit = getattr(domain, "high", 1) - getattr(domain, "low", 0)
        assert halves[row.level, row.attribute] == pytest.approx(1.959964 * row.error / unit)
    here = next(level for level in found.levels if level.name == found.level)
    at = planning.USERS.index(3000)
    assert [row[at] for row in found.by_users] == pytest.approx([a.half for a in here.asked])
    own, auto = found.budgets
    assert (own.budget, auto.budget, own.users) == ("split", "auto", 1.0)
    assert auto.half < own.half
    for row in found.by_epsilon:
        assert list(row) == sorted(row, reverse=True)


def test_the_smallest_visible_share_is_seen_every_second_time() -> None:
    plan_ = hearsay.plans.plan.parse(surveys.resolve(surveys.from_toml(SURVEY, "t")))
    level = next(iter(plan_.levels.values()))
    mechanism, coins, n = level.mechanisms["smokes"], SeededCoins(3), 4000
    domain = plan_.attributes["smokes"].domain
    share = explain_shares.smallest(domain, mechanism, n)
    k = len(domain.labels)
    truth = np.array([share] + [(1 - share) / (k - 1)] * (k - 1))
    rng = np.random.default_rng(5)
    seen = 0
    for _ in range(400):
        values = np.repeat(np.arange(k), rng.multinomial(n, truth))
        tally = mechanism.tally(mechanism.randomize_many(values, coins))
        estimate = float(mechanism.debias(tally)[0])
        error = float(np.sqrt(mechanism.variance(truth, n)[0]))
        seen += estimate - explain_shares.Z * error > 0
    assert 150 < seen < 250  # 200, with a standard error of 10
    assert np.isnan(explain_shares.smallest(plan_.attributes["age"].domain, mechanism, n))
    assert np.isnan(explain_shares.smallest(domain, mechanism, 2))


def test_every_kind_of_question_has_a_smallest_share() -> None:
    kinds = {
        "sens": '[attributes.categorical]\nvalues = ["a", "b", "c"]\nsensitive = ["a"]',
        "items": '[attributes.set]\nvalues = ["a", "b", "c"]\nat_most = 2',
        "rated": '[attributes.ratings]\nkeys = ["a", "b"]\nlow = 1\nhigh = 5',
        "word": '[attributes.strings]\nalphabet = "abcdefghij"\nlongest = 6',
        "bins": "[attributes.numeric]\nhigh = 10\nbins = 8",
        "mean": "[attributes.numeric]\nhigh = 10",
    }
    text = 'name = "t"\nperiod = "P1D"\n[levels]\none = 4.0\nname = 8.0\n'
    text += "".join(f'[[attributes]]\nname = "{n}"\n{t}\n' for n, t in kinds.items())
    found = planned(text, users=1_000_000)
    strict, loose = found.levels
    for one, other in zip(strict.asked, loose.asked, strict=True):
        assert one.has_shares == (one.name != "mean")
        if one.has_shares:
            assert 0 < other.smallest < one.smallest < 1
    tables = planner._tables(found)
    assert [row["at name"] for row in tables["smallest"]]  # type: ignore[attr-defined]
    assert found.costs[0][1] == 365


def test_questions_of_one_promise_are_one_line() -> None:
    lines = ["a: every value, by epsilon", "b: every value, by epsilon", "c: x from y"]
    assert planning._together(lines) == ("a, b: every value, by epsilon", "c: x from y")


def test_too_large_a_domain_is_told_by_its_survey() -> None:
    with pytest.raises(InvalidInput, match=r"s\.toml"):
        planned(SURVEY.replace("strict = 1.0", "strict = -1.0"))


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_draws_the_curves(site: Site, browser: Browser, width: int) -> None:
    page = browser.open(site, "/planner", width=width)
    page.fill("#text", TABLE)
    page.click("button:has-text('Plan')")
    page.wait_for_selector("figure svg")
    assert page.evaluate("document.querySelectorAll('figure svg').length") == 2
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    with page.expect_download() as download:
        page.click("button:has-text('Download')")
    assert 'budget = "auto"' in download.value.path().read_text()
