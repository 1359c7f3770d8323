"""The page of the person who is asked: who may open it, and what it says."""

import asyncio
import json
import re
import time
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from asked import register
from serving import connected, create
from visiting import Site, showing

from hearsay import MEMORY, Client, asking
from hearsay.asking import roles, wire
from hearsay.plans.plan import parse
from hearsay.sealed.keys import fingerprint
from hearsay.v1 import admin_pb2, admin_pb2_grpc, analyst_pb2, analyst_pb2_grpc
from hearsay_server.pages.person.crowd import FEWEST, about, rounded
from hearsay_server.serving.inside import Inside
from support import DAILY, rows_of, wait_until


def test_a_survey_that_is_not_public_looks_like_one_that_is_not_there(site: Site) -> None:
    register(site, "hidden")
    register(site, "shown", "public = true")
    for path in ("/asked/{}", "/asked/{}/crowd"):
        answers = [site.get(path.format(name)) for name in ("hidden", "nowhere", "HIDDEN", "..")]
        assert {answer.status for answer in answers} == {404}
        assert len({answer.body for answer in answers}) == 1
    assert "/asked/hidden" not in site.text("/asked")
    assert "/asked/shown" in site.text("/asked")
    assert site.get("/asked/shown/crowd").status == 404  # which it does not show


def test_everybody_may_open_a_public_page_where_all_else_needs_a_token(
    guarded: tuple[Site, dict[str, str]],
) -> None:
    site, tokens = guarded
    register(site, "open", "public = true", tokens["admin"])
    assert "How people come to work" in site.text("/asked/open")
    assert site.get("/operator").status == 303
    for role in ("device", "analyst"):
        assert site.get("/asked/open", authorization=f"Bearer {tokens[role]}").status == 200


def test_a_page_says_the_odds_of_each_level_and_the_fingerprint(site: Site) -> None:
    register(site, "odds", "public = true")
    with connected(site.grpc) as channel:
        asked = admin_pb2.ShowSurveyRequest(survey="odds")
        revision = admin_pb2_grpc.AdminStub(channel).ShowSurvey(asked).status.revision
    page = site.text("/asked/odds?level=strict")
    assert revision.hex() in page
    text = re.sub(r"<[^>]+>", "", page)
    assert "Of 100 people who say yes, 56 send yes." in text  # an epsilon of 0.25 each
    assert "Of 100 people who say yes, 73 send yes." in text  # at the other level, of 1
    assert "by a factor of 1.7 at most" in text
    assert 'data-level="strict" aria-labelledby="level-strict-title">' in page
    assert 'data-level="standard" aria-labelledby="level-standard-title" hidden>' in page
    assert "Were &lt;i&gt;you&lt;/i&gt; late?" in page and "<i>you</i>" not in page
    assert "What the crowd says" not in page and 'id="answer-form"' not in page


def test_a_sealed_survey_says_where_records_go_and_to_which_keys(site: Site) -> None:
    text = f"{DAILY}\n[page]\npublic = true\n[sealing]\n"
    create(site.grpc, text.replace('"daily"', '"sealed"'))
    with connected(site.grpc) as channel:
        asked = admin_pb2.ShowSurveyRequest(survey="sealed")
        plan = parse(admin_pb2_grpc.AdminStub(channel).ShowSurvey(asked).plan)
    wait_until(lambda: site.get("/asked/sealed").status == 200)
    page = site.text("/asked/sealed")
    assert plan.sealing is not None and fingerprint(plan.sealing) in page
    assert "Who runs the shuffler" in page and "until there are 1,000 of a period" in page
    assert "This page cannot try it" not in page
    assert "the same number whatever you answer" in " ".join(page.split())


def test_the_crowd_is_asked_once_whoever_looks_and_how_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def own(self: Inside, method: str, request: Any) -> bytes:
        asked.append(request.attribute)
        await asyncio.sleep(0)
        n = FEWEST if request.attribute == "late" else FEWEST - 1
        numbers = {"estimate": 0.42134, "standard_error": 0.016, "low": 0.39, "high": 0.4527}
        columns = tuple(roles.column(name, [number], "share") for name, number in numbers.items())
        rows = asking.Table("rows", roles.index((request.attribute, ["yes"])), columns)
        subjects = (asking.Subject(request.attribute),)
        answer = asking.Answer("estimate", "crowd", subjects, "frequency", (rows,), reports=n)
        told = replace(answer, figures={"homogeneity": None})
        return wire.to_message(told).SerializeToString()

    monkeypatch.setattr(Inside, "own", own)
    with showing(tmp_path) as site:
        register(site, "crowd", "public = true\nresults = true")
        pages = [site.text(f"/asked/crowd?level={n}") for n in range(10)]
        part = site.text("/asked/crowd/crowd")
    assert asked == ["late", "minutes"]
    for page in [*pages, part]:
        assert "42%" in page and "39% to 46%" in page
        assert "0.42" not in page
        assert f"Fewer than {FEWEST} reports" in page


@pytest.mark.parametrize(
    ("given", "scale", "shown"),
    [
        ((0.42134, 0.39, 0.4527), 100.0, ("42", "39", "46")),
        ((0.42134, 0.2, 0.6), 100.0, ("40", "20", "60")),
        ((0.00123, 0.0011, 0.00136), 100.0, ("0.12", "0.11", "0.14")),
        ((-0.01, 0.0, 0.05), 100.0, ("0", "0", "5")),
        ((41234.0, 39000.0, 43000.0), 1.0, ("41,000", "39,000", "43,000")),
        ((36.8, 36.31, 37.29), 1.0, ("36.8", "36.3", "37.3")),
    ],
)
def test_numbers_have_the_digits_of_their_interval(
    given: tuple[float, float, float], scale: float, shown: tuple[str, str, str]
) -> None:
    assert rounded("v", *given, scale=scale) == ("v", *shown)


def test_the_number_of_reports_is_rounded_as_estimates_are() -> None:
    shown = {n: about(n) for n in (100, 104, 106, 2_345, 12_345, 1_234_567)}
    assert list(shown.values()) == [100, 100, 110, 2_340, 12_300, 1_235_000]
    told = sum(about(n) != about(n + 1) for n in range(FEWEST, 20_000))
    assert told < 20_000 / 40  # one report more is seen once in forty times


def test_what_the_crowd_says_is_what_an_analyst_is_told(site: Site) -> None:
    register(site, "many")
    with Client(site.grpc, "many", epsilon=2.0, ledger=MEMORY, consent=True) as client:
        assert client.wait_ready()
        for number in range(304):
            person = client.person(f"p{number}")
            person.grant()
            person.record(late="yes" if number % 3 else "no", minutes=30)
        assert client.flush(30)
    register(site, "many", "public = true\nresults = true")  # as its operator decides now
    part = site.text("/asked/many/crowd")
    drawn = json.loads(unescape(re.findall('data-numbers="([^"]*)"', part)[0]))
    page = re.sub(r"<[^>]+>", " ", part)
    assert "About 300 reports" in page and "304" not in page
    with connected(site.grpc) as channel:
        stub = analyst_pb2_grpc.AnswersStub(channel)
        request = analyst_pb2.EstimateRequest(survey="many", attribute="late")
        found = wire.from_message(stub.Estimate(request))
    for row in rows_of(found):
        _, estimate, low, high = rounded(row.label, row.estimate, row.low, row.high, scale=100.0)
        assert re.search(rf"{row.label}\s+{estimate}%\s+{low}% to {high}%", page)
        (same,) = (each for each in drawn["rows"] if each["label"] == row.label)
        assert [same["estimate"], same["low"], same["high"]] == [*map(float, (estimate, low, high))]


@pytest.mark.slow
def test_a_survey_with_every_kind_of_question_has_a_page(site: Site) -> None:
    reference = Path(__file__).parents[3] / "docs" / "survey-reference.md"
    example = re.findall(r"```toml\n(.*?)```", reference.read_text(), re.DOTALL)[0]
    name = create(site.grpc, example.replace("results = true\n", "")).survey
    while (answer := site.get(f"/asked/{name}")).status == 404:
        time.sleep(0.05)
    assert answer.status == 200
    text = re.sub(r"<[^>]+>", "", answer.body.decode())
    assert "That does not hold for answers that a report may reveal" in text
    assert "Over time it does not hold for answers that your device keeps" in text
    assert "reveals their answer" in text and "uses it again whenever you answer the same" in text
