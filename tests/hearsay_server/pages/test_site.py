"""The frame of all pages: who is let in, sessions, headers and errors."""

import contextlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from collected import register
from disks import mounted
from every_page import PICTURED
from serving import tokens_of
from visiting import Browser, Site, showing

from hearsay_server.commands.serve import _site
from hearsay_server.config import Config
from hearsay_server.pages import make_site
from hearsay_server.pages.calling import _THREADS, _WAITING
from hearsay_server.pages.site import _OPEN
from hearsay_server.serving.inside import Inside
from ldp.errors import MissingExtra
from support import wait_until

Guarded = tuple[Site, dict[str, str]]


def test_everything_is_open_on_loopback_while_there_is_no_token(site: Site) -> None:
    assert "No token was ever made" in site.text("/")
    assert "Operator" in site.text("/operator")


def test_pages_carry_the_headers_that_keep_other_sites_out(site: Site) -> None:
    answers = [site.get(path) for path in ("/", "/nowhere", "/sign-in")]
    style = re.search(r"/static/[^\"]*site.css", answers[0].body.decode())
    assert style
    kept = site.get(style[0])
    assert "immutable" in kept.headers["cache-control"]
    for answer in [*answers, kept]:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert {a.headers["cache-control"] for a in answers} == {"no-store"}
    assert site.get(style[0].replace("site.css", "../site.py")).status == 404


def test_a_session_is_let_in_as_its_token(guarded: Guarded) -> None:
    site, tokens = guarded
    answer = site.get("/operator?x=1")
    assert (answer.status, answer.headers["location"]) == (303, "/sign-in?to=%2Foperator%3Fx%3D1")
    admin, analyst = site.signed_in(tokens["admin"]), site.signed_in(tokens["analyst"])
    assert admin.get("/operator").status == 200
    assert analyst.get("/operator").status == 403
    assert tokens["admin"] not in admin.cookie
    assert admin.post("/sign-out").status == 303
    assert admin.get("/operator").status == 303  # the session is over, whoever keeps the cookie


def test_a_token_in_a_header_is_taken_as_calls_take_it(guarded: Guarded) -> None:
    site, tokens = guarded
    for role, status in {"admin": 200, "analyst": 403, "device": 403}.items():
        assert site.get("/operator", authorization=f"Bearer {tokens[role]}").status == status
    assert site.get("/operator", authorization="Bearer no").status == 401


def test_who_reads_a_page_is_refused_in_words(site: Site) -> None:
    for headers, status, words in (
        ({"host": "elsewhere.example"}, 421, b"lists hosts in http_hosts"),
        ({"origin": "https://elsewhere.example"}, 403, b"pages of this origin may not call"),
    ):
        answer = site.get("/operator", accept="text/html,*/*", **headers)
        assert answer.status == status and b"<h1>" in answer.body
        assert words[1:] in answer.body
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        called = site.get("/operator", **headers)
        assert called.status == status and called.body.startswith(b"{")


def test_a_devices_token_opens_no_session(guarded: Guarded) -> None:
    site, tokens = guarded
    answer = site.post("/sign-in", {"token": tokens["device"]})
    assert answer.status == 403 and "set-cookie" not in answer.headers
    assert site.post("/sign-in", {"token": "guess"}).status == 401


def test_a_full_disk_is_said_and_lets_a_browser_forget_its_session(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "4m") as disk:
        made, secret = tokens_of(disk.folder / "data").create("admin")
        with showing(disk.folder / "data") as site:
            admin = site.signed_in(secret)
            disk.fill()
            new = {"role": "device", "days": "7"}
            for answer in (
                site.post("/sign-in", {"token": secret}),
                admin.post("/operator/tokens", new),
            ):
                assert answer.status == 503
                assert b"the database cannot be used now" in answer.body
                assert "set-cookie" not in answer.headers
            left = admin.post("/sign-out")
            assert left.status == 503
            assert b"Revoke the token to end it" in left.body
            assert "Max-Age=0" in left.headers["set-cookie"]
            # The session is still there: its token can be revoked.
            revoked = admin.post(f"/operator/tokens/{made.id}/revoke", {"sure": "yes"})
            assert revoked.status == 303
            wait_until(lambda: admin.get("/operator").status == 303)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
        {"origin": "", "sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "same-site", "origin": "https://127.0.0.1:1"},
    ],
)
def test_a_post_from_elsewhere_changes_nothing(guarded: Guarded, headers: dict[str, str]) -> None:
    site, tokens = guarded
    admin = site.signed_in(tokens["admin"])
    assert admin.post("/sign-out", **headers).status == 403
    assert admin.get("/operator").status == 200


def test_a_page_of_another_port_reads_nothing(guarded: Guarded) -> None:
    site, tokens = guarded
    admin = site.signed_in(tokens["admin"])
    assert admin.get("/operator", sec_fetch_site="same-site").status == 403
    linked = admin.get("/operator", sec_fetch_site="same-site", sec_fetch_mode="navigate")
    assert linked.status == 200


@pytest.mark.parametrize(
    "to",
    ["//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nb: c", "javascript:1"],
)
def test_signing_in_leads_to_no_other_server(guarded: Guarded, to: str) -> None:
    site, tokens = guarded
    answer = site.post("/sign-in", {"token": tokens["analyst"], "to": to})
    assert (answer.status, answer.headers["location"]) == (303, "/analyst")


def test_without_the_extra_there_are_no_pages_unless_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _site(Config(http="127.0.0.1:0")) is not None
    assert _site(Config()) is None and _site(Config(http="127.0.0.1:0", pages=False)) is None
    for name in [name for name in sys.modules if name.startswith("hearsay_server.pages")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert _site(Config(http="127.0.0.1:0")) is None
    with pytest.raises(MissingExtra, match=r"pages = true needs .*hearsay-ldp\[web\]"):
        _site(Config(http="127.0.0.1:0", pages=True))


@pytest.mark.slow
def test_signing_in_works_in_a_browser(guarded: Guarded, browser: Browser) -> None:
    site, tokens = guarded
    page = browser.open(site, "/operator")
    page.fill("#token", tokens["admin"])
    page.press("#token", "Enter")
    page.wait_for_url("**/operator")
    assert page.locator("h1").inner_text() == "Operator"
    page.click("text=Sign out")
    page.wait_for_url(f"{site.origin}/")


def test_look_ups_of_made_up_sessions_have_a_bounded_number_of_places(tmp_path: Path) -> None:
    """While all places of strangers are taken, no further made-up cookie reaches the database."""
    made: list[Any] = []

    def site_of(inside: Inside) -> Any:
        made.append(make_site(inside))
        return made[0]

    _, token = tokens_of(tmp_path).create("admin", "an admin")
    with showing(tmp_path, site_of) as site, contextlib.ExitStack() as held:

        def stranger(path: str = "/") -> int:
            return site.get(path, cookie=f"hearsay-{site.port}={'A' * 43}").status

        assert stranger() == 200
        for _ in range(_OPEN):
            held.enter_context(made[0]._place(False))
        assert stranger() == 503
        assert site.get("/operator", authorization=f"Bearer {token}").status == 200
        held.close()
        assert stranger() == 200


def test_an_overload_that_passes_is_not_kept_as_the_answer(tmp_path: Path) -> None:
    made: list[Any] = []

    def site_of(inside: Inside) -> Any:
        made.append(make_site(inside))
        return made[0]

    with showing(tmp_path, site_of) as site:
        register(site.grpc, PICTURED)
        asking, path = made[0]._shared.asking, "/analyst/commute/estimate?attribute=how"
        asking._held = _THREADS + _WAITING
        refused = site.get(path)
        assert refused.status == 429 and "retry-after" in refused.headers
        asking._held = 0
        assert b"questions of pages" in refused.body
        assert "questions of pages" not in site.text(path)  # within the time that a view is kept
