"""What visitors and pages of others try: the server answers, forgets them, and goes on."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from over_http import rest
from serving import tokens_of
from visiting import Site, showing

from hearsay_server.pages.words import shown
from hearsay_server.storage.database import open_database
from hearsay_server.storage.sessions import LASTS, Sessions

FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An admin's token of the server."""
    return tokens_of(tmp_path_factory.getbasetemp() / "hurried").create("admin")[1]


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory, token: str) -> Iterator[Site]:
    """A server that waits a moment for a form, and asks for tokens."""
    with showing(tmp_path_factory.getbasetemp() / "hurried", max_upload_seconds=0.2) as site:
        yield site


def test_a_form_is_bounded(hurried: Site) -> None:
    answer = hurried.post("/sign-in", {"token": "x" * 70_000})
    assert answer.status == 413 and b"at most 65536 bytes" in answer.body
    chunked = (
        f"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1:{hurried.port}\r\nContent-Type: {FORM}\r\n"
        f"Origin: {hurried.origin}\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()
    part = b"2000\r\n" + b"x" * 0x2000 + b"\r\n"
    with contextlib.closing(hurried.plugged(chunked + 9 * part)) as line:
        assert b" 413 " in line.recv(100)


def test_a_form_that_does_not_come_is_given_up(hurried: Site) -> None:
    head = (
        f"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1:{hurried.port}\r\nContent-Type: {FORM}\r\n"
        f"Origin: {hurried.origin}\r\nContent-Length: 50\r\n\r\ntoken="
    ).encode()
    with contextlib.closing(hurried.plugged(head)) as line:
        assert b" 408 " in rest(line)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data; boundary=x", "--x\r\nnothing"),
        ("multipart/form-data", "x"),
        ("application/json", "{}"),
        (FORM, "token=%ff%fe%00&token=2&to=//evil"),
        (FORM, "&=&=" * 4000),
    ],
)
def test_a_broken_form_is_no_fault_of_ours(hurried: Site, kind: str, body: str) -> None:
    headers = {"origin": hurried.origin, "content-type": kind}
    assert hurried.ask("/sign-in", body, headers).status in (400, 401)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"cookie": "yes"}, 403),
        ({"cookie": "yes", "origin": "yes"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site", "cookie": "yes"}, 403),
        ({"sec-fetch-site": "none"}, 403),
    ],
)
def test_a_program_may_post_a_question_and_no_page_of_others_may(
    guarded: tuple[Site, dict[str, str]], headers: dict[str, str], status: int
) -> None:
    """A browser's POST names its origin or who began it, or comes with a cookie."""
    site, tokens = guarded
    given = {"content-type": FORM, "authorization": f"Bearer {tokens['analyst']}"} | headers
    if "cookie" in headers:
        given["cookie"] = site.signed_in(tokens["analyst"]).cookie
        given.pop("authorization")
    if headers.get("origin") == "yes":
        given["origin"] = site.origin
    answer = site.ask("/analyst/nowhere/estimate.json", "attribute=x", given)
    assert answer.status == (404 if status == 200 else status)  # let in, or not
    given.pop("authorization", None)
    changed = site.ask("/operator/tokens", "role=admin&name=x", given)
    assert changed.status == 403 or headers.get("origin") == "yes"  # which is of an analyst


def test_another_name_for_this_host_is_not_answered(hurried: Site) -> None:
    assert hurried.get("/", host="evil.example").status == 421


@pytest.mark.parametrize("host", ["127.0.0.1:99999", "127.0.0.1:0", "[::1]", "localhost"])
def test_a_session_is_looked_for_whatever_the_port_of_the_host(hurried: Site, host: str) -> None:
    assert hurried.get("/operator", host=host, cookie="hearsay-80=x; a=b").status == 303


def test_a_session_that_somebody_else_chose_is_not_taken_over(hurried: Site, token: str) -> None:
    name = f"hearsay-{hurried.port}"
    planted = Site(hurried.port, hurried.grpc, cookie=f"{name}=chosen")
    answer = planted.post("/sign-in", {"token": token})
    assert answer.status == 303 and "chosen" not in answer.headers["set-cookie"]
    assert planted.get("/operator").status == 303
    for part in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert part in answer.headers["set-cookie"]


def test_a_cookie_goes_over_tls_alone_where_the_browser_has_tls(hurried: Site, token: str) -> None:
    origin = f"https://127.0.0.1:{hurried.port}"  # a proxy has the TLS
    answer = hurried.post("/sign-in", {"token": token}, origin=origin)
    assert answer.headers["set-cookie"].startswith(f"__Host-hearsay-{hurried.port}=")
    assert "Secure" in answer.headers["set-cookie"]


def test_an_encoded_path_is_no_way_around_a_proxys_rules(hurried: Site) -> None:
    assert hurried.get("/%6fperator").status == 404
    assert hurried.get("//operator").status == 404
    assert hurried.get("/operator/../operator").status == 404


def test_the_door_goes_on_answering_calls(hurried: Site) -> None:
    assert hurried.ask("/hearsay.v1.Admin/ListSurveys").json()["code"] == "unauthenticated"
    assert hurried.get("/hearsay.v1.Admin/None").status == 404
    assert hurried.get("/healthz").body == b"ok\n"


def test_sessions_end_with_their_time_and_are_few(
    where: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("hearsay_server.storage.sessions._MOST", 3)
    with contextlib.closing(open_database(where)) as database:
        sessions = Sessions(database, lambda: now)
        first = sessions.begin(b"token")
        now += 1
        others = [sessions.begin(b"token") for _ in range(3)]
        assert sessions.find(first) is None  # the fourth took its place
        assert all(sessions.find(each) == b"token" for each in others)
        sessions.end(others[0])
        assert sessions.find(others[0]) is None and sessions.find(others[1]) is not None
        now += LASTS
        assert all(sessions.find(each) is None for each in others)


def test_characters_that_mislead_are_shown_as_such() -> None:
    assert shown("a\u202eb\x07\u2066c\n") == "a\ufffdb\ufffd\ufffdc\ufffd"
    assert shown("مرحبا 👍 <b>") == "مرحبا 👍 <b>"


@pytest.mark.parametrize("charset", ["utf-7", "punycode", "x" * 15_000])
def test_a_form_in_another_charset_is_refused_before_it_is_read(
    hurried: Site, charset: str
) -> None:
    kind = f"application/x-www-form-urlencoded; charset={charset}"
    answer = hurried.post("/sign-in", {"token": "x"}, **{"content-type": kind})
    assert answer.status == 400 and b"UTF-8" in answer.body
    assert (
        hurried.post(
            "/sign-in", {"token": "x"}, **{"content-type": kind.replace(charset, "UTF-8")}
        ).status
        == 401
    )


def test_a_long_form_that_is_not_multipart_is_refused_by_its_length(hurried: Site) -> None:
    answer = hurried.post("/sign-in", {"token": "&" * 30_000})
    assert answer.status == 413 and b"unless it is multipart" in answer.body


def test_pages_of_elsewhere_and_of_plain_http_do_not_act_for_a_session_of_tls(
    hurried: Site, token: str
) -> None:
    crossed = hurried.post("/sign-in", {"token": token}, **{"sec-fetch-site": "cross-site"})
    assert crossed.status == 403
    secure = f"https://127.0.0.1:{hurried.port}"
    cookie = hurried.post("/sign-in", {"token": token}, origin=secure).headers["set-cookie"]
    session = cookie.partition(";")[0]
    assert hurried.post("/sign-out", cookie=session, origin=hurried.origin).status == 403
    assert hurried.get("/operator", cookie=session).status == 200
    assert hurried.post("/sign-out", cookie=session, origin=secure).status == 303
