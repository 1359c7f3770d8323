"""The operator's pages show what the server knows, and end things only when asked twice."""

import contextlib
import math
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest
import trained
from certificates import Authority
from serving import create, registered, submit, tokens_of
from stored import NOW, add, batch, register
from visiting import Browser, Site, showing

from hearsay_server.pages import make_site
from hearsay_server.pages.operator import figures
from hearsay_server.pages.operator import overview as overview_page
from hearsay_server.pages.visit import Visit
from hearsay_server.serving.inside import Inside
from hearsay_server.serving.inside import Site as Site_
from hearsay_server.serving.metrics import Metrics
from hearsay_server.serving.minutes import Minutes, Sample
from hearsay_server.serving.tls import Certificates
from hearsay_server.storage import overview
from hearsay_server.storage.database import open_folder
from hearsay_server.storage.store import Store
from support import SURVEY

HOSTILE = "<script>alert(1)</script> & <b>"


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The pages of a server with surveys and a training, as an operator sees them."""
    folder = tmp_path_factory.mktemp("operator")
    with contextlib.closing(open_folder(folder)) as database:
        trained.register(database)
    token = tokens_of(folder).create("admin", HOSTILE)[1]
    with showing(folder, keep_batches_days=30) as site:
        daily = SURVEY.replace('"health"', '"daily"').replace(
            "[levels]", 'period = "P1D"\n[levels]'
        )
        create(site.grpc, daily.replace("A survey of two questions", HOSTILE), token)
        survey = registered(site.grpc, "health", token)
        submit(site.grpc, survey.batch(1, rows=1200), survey.batch(2, rows=34))
        wrong = survey.batch(3)
        wrong.revision = bytes(32)
        submit(site.grpc, wrong)
        yield site.signed_in(token)


def test_the_overview_has_the_figures_of_now(admin: Site) -> None:
    text = re.sub(r"\s+", " ", admin.text("/operator"))
    assert "<strong>Ready:</strong>" in text
    assert "Records in the last day</dt><dd>1,234</dd>" in text
    assert "unknown revision</bdi>" in text
    assert "dropped 30 days after they came" in text
    row = text[text.index('href="/operator/surveys/health"') :]
    assert re.findall(r'class="number">([^<]*)<', row)[:3] == ["1,234", "1,234", "2"]
    assert 'href="/operator/trainings/' in text


def test_the_overview_says_why_the_server_is_not_ready_and_when_its_certificate_ends(
    tmp_path: Path,
) -> None:
    issued = tmp_path / "certificate.pem", tmp_path / "key.pem"
    Authority(tmp_path).issue(*issued)
    ends = Certificates(*issued, None).ends()
    assert ends is not None

    def site(inside: Inside) -> Site_:
        inside.readiness.trouble = "a probe failed: the disk is full"
        week_before = ends - timedelta(days=7, hours=1)
        certificates = Certificates(*issued, None)
        return make_site(replace(inside, certificates=certificates, clock=lambda: week_before))

    with showing(tmp_path / "data", site=site) as pages:
        text = re.sub(r"\s+", " ", pages.text("/operator"))
    assert "<strong>Not ready:</strong> <bdi>a probe failed: the disk is full</bdi>" in text
    assert "The certificate ends in 7.0 days" in text and "7 days left" in text


def test_a_live_part_is_sent_again_only_when_it_has_changed(admin: Site) -> None:
    for _ in range(5):
        found = re.search(r'hx-get="([^"]*)"', admin.text("/operator"))
        assert found
        answer = admin.get(unescape(found[1]))
        if answer.status == 204:
            break
        assert answer.status == 200  # the figures may have changed since
        assert 'hx-trigger="every 5s"' in answer.body.decode()
    assert answer.status == 204
    assert admin.get("/operator/live?have=other").status == 200


def test_many_open_pages_cost_one_rendering(admin: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []
    render = overview_page._live_html

    async def counted(visit: Visit) -> str:
        made.append(time.monotonic())
        return await render(visit)

    monkeypatch.setattr(overview_page, "_live_html", counted)
    begin = time.monotonic()
    with ThreadPoolExecutor(10) as visitors:
        answers = list(visitors.map(admin.get, ["/operator/live?have=other"] * 50))
    assert {answer.status for answer in answers} == {200}
    assert len(made) <= 1 + (time.monotonic() - begin) // overview_page._EVERY


def test_titles_and_labels_of_others_are_text(admin: Site) -> None:
    for path in ("/operator", "/operator/surveys/daily", "/operator/tokens", "/operator/audit"):
        assert "<script>alert" not in admin.text(path), path
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;b&gt;" in admin.text("/operator")


def test_closing_and_deleting_name_what_is_lost_and_ask_again(admin: Site) -> None:
    token = {"token": "not needed"}
    survey = registered(admin.grpc, "ending", _token(admin))
    submit(admin.grpc, survey.batch(7, rows=5))
    page = "/operator/surveys/ending"
    assert "cannot be opened again" in admin.text(f"{page}/close")
    assert admin.post(f"{page}/close", token).status == 400
    assert "<dd>open</dd>" in admin.text(page)
    assert admin.post(f"{page}/close", {"sure": "yes"}).status == 303
    assert "<dd>closed</dd>" in admin.text(page)
    assert "5 records in 1 batches" in admin.text(f"{page}/delete")
    assert admin.post(f"{page}/delete", {"name": "health"}).status == 400
    assert admin.get(page).status == 200
    gone = admin.post(f"{page}/delete", {"name": "ending"})
    assert gone.status == 200 and "5 records of 1 batches are gone" in gone.body.decode()
    assert admin.get(page).status == 404
    log = admin.text("/operator/audit")
    for act in ("close survey", "delete survey"):
        found = re.search(rf"<bdi>([^<]*)</bdi></td>\s*<td><bdi>{act}<", log)
        assert found and HOSTILE in unescape(found[1])  # who signed in, not the server's user


def test_a_token_is_shown_once_and_ends_with_its_sessions_when_it_is_revoked(admin: Site) -> None:
    made = admin.post("/operator/tokens", {"role": "admin", "label": "second", "days": "1"})
    found = re.search(r'id="secret">([^<]*)<', made.body.decode())
    assert found and made.status == 200
    assert found[1] not in admin.text("/operator/tokens")
    second = Site(admin.port, admin.grpc).signed_in(found[1])
    row = re.search(
        r"<code>([0-9a-f]+)</code>.{0,120}second", second.text("/operator/tokens"), re.S
    )
    assert row
    rotated = admin.post(f"/operator/tokens/{row[1]}/rotate", {"days": "1", "grace": "1"})
    newer = re.search(r'id="secret">([^<]*)<', rotated.body.decode())
    assert newer and newer[1] != found[1]
    assert Site(admin.port, admin.grpc).signed_in(newer[1]).get("/operator").status == 200
    assert second.get("/operator").status == 200  # the old one works for an hour more
    assert "rotate token" in admin.text("/operator/audit")
    for wrong in ({"days": "1"}, {"grace": "1"}, {"days": "1", "grace": "-1"}):
        assert admin.post(f"/operator/tokens/{row[1]}/rotate", wrong).status == 400
    path = f"/operator/tokens/{row[1]}/revoke"
    assert "This is the token that you signed in with" in second.text(path)
    assert second.post(path).status == 400
    assert second.post(path, {"sure": "yes"}).status == 303
    time.sleep(1.1)  # a token that was looked up is trusted for a second
    assert second.get("/operator").status == 303
    assert second.post("/operator/tokens", {"role": "admin", "days": "1"}).status == 401


@pytest.mark.parametrize(
    "fields",
    [
        {"role": "root", "days": "1"},
        {"role": "admin", "days": "100000"},
        {"role": "admin"},
        {"role": "admin", "days": "1", "label": "a" * 201},
        {"role": "admin", "days": "1", "label": "\u202e"},
    ],
)
def test_a_token_is_made_only_as_the_form_offers_it(admin: Site, fields: dict[str, str]) -> None:
    assert admin.post("/operator/tokens", fields).status == 400


def test_the_first_token_that_pages_make_is_an_admins(site: Site) -> None:
    assert site.post("/operator/tokens", {"role": "analyst", "days": "1"}).status == 400
    assert "No token was ever made" in site.text("/operator/tokens")


def test_a_training_says_why_nobody_comes(admin: Site) -> None:
    found = re.search(r"/operator/trainings/[a-z0-9_]+", admin.text("/operator"))
    assert found
    text = admin.text(found[0])
    assert "No device has asked this server for this round" in text
    assert admin.get("/operator/trainings/none").status == 404


def test_todays_records_and_the_room_are_read_without_what_came_in(where: Path | str) -> None:
    with contextlib.closing(Store(where)) as store:
        register(store)
        add(store, [batch(number) for number in range(3)])
        found = overview.surveys(store.database, NOW)
        assert {name: each.today for name, each in found.items() if each.today} == {"health": 3}
        later = overview.surveys(store.database, NOW + timedelta(days=1))
        assert not any(each.today for each in later.values())
        assert overview.space(store.database).taken > 10_000


def test_rates_are_of_the_minutes_in_which_records_came() -> None:
    minutes = Minutes(Metrics(), clock=lambda: 86_400.0)
    made = [Sample(86_400.0 - 60 * n, 600 - 10 * n, ()) for n in range(60, -1, -1)]
    minutes._samples.clear()
    minutes._samples.extend(made)
    minutes.now = lambda: made[-1]  # type: ignore[method-assign]
    rates = figures.rates(minutes)
    assert (rates.last_minute, rates.last_day) == (10, 600)
    assert [bar.rate for bar in rates.bars] == [10.0] * 6 + [0.0]
    assert sum(rows for _, rows in rates.hours) == 600


def test_latencies_are_of_recent_commits() -> None:
    metrics = Metrics()
    minutes = Minutes(metrics)
    assert math.isnan(figures.latency(minutes).half)
    for seconds in [0.003] * 98 + [0.4] * 2:
        metrics.commit.observe(seconds)
    found = figures.latency(minutes)
    assert (found.commits, found.half, found.most) == (100, 0.005, 0.5)


@pytest.mark.slow
def test_figures_are_renewed_in_a_browser_and_fit_its_width(admin: Site, browser: Browser) -> None:
    survey = registered(admin.grpc, "live", _token(admin))
    page = browser.open(admin, "/operator", width=390)
    seen = page.locator(".facts dd").nth(1).inner_text()
    submit(admin.grpc, survey.batch(17, rows=1000))
    changed = "([seen]) => document.querySelectorAll('.facts dd')[1].innerText !== seen"
    page.wait_for_function(changed, arg=[seen], timeout=15_000)
    for path in ("", "/surveys/health", "/surveys/health/delete", "/tokens", "/audit"):
        page.goto(f"{admin.origin}/operator{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


def _token(admin: Site) -> str:
    made = admin.post("/operator/tokens", {"role": "admin", "days": "1"}).body.decode()
    found = re.search(r'id="secret">([^<]*)<', made)
    assert found
    return found[1]
