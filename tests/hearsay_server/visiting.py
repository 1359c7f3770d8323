"""A visitor of a server's pages, without a browser and with one."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from over_http import Answer, Door
from serving import serving

from hearsay_server.pages import make_site
from hearsay_server.serving.inside import MakeSite
from support import free_port


@dataclass(frozen=True)
class Site(Door):
    """The pages of a server; `cookie` is of the session that was begun, if one was."""

    port: int
    grpc: str
    cookie: str = ""

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **headers: str) -> Answer:
        given = {"cookie": self.cookie} if self.cookie else {}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask(path, None, given | named, "GET")

    def text(self, path: str) -> str:
        """Return a page that is there."""
        answer = self.get(path)
        assert answer.status == 200, (answer.status, answer.body[:2000])
        return answer.body.decode()

    def post(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> Answer:
        given = {"origin": self.origin, "content-type": "application/x-www-form-urlencoded"}
        if self.cookie:
            given["cookie"] = self.cookie
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask(path, urlencode(fields or {}), given | named)

    def signed_in(self, token: str) -> "Site":
        """Return the pages as somebody with this token sees them."""
        answer = self.post("/sign-in", {"token": token})
        assert answer.status == 303, answer.body
        return Site(self.port, self.grpc, answer.headers["set-cookie"].partition(";")[0])


@contextlib.contextmanager
def showing(data: Path, site: MakeSite = make_site, **keys: Any) -> Iterator[Site]:
    """Serve with pages and these keys of the configuration while the context lasts."""
    port = free_port()
    with serving(data, site=site, http=f"127.0.0.1:{port}", **keys) as address:
        yield Site(port, address)


@dataclass
class Browser:
    """Chromium, which notes what no page of ours may do."""

    chromium: Any
    faults: list[str] = field(default_factory=list)
    """Errors on the console, and requests to other origins, of all pages that were opened."""

    def open(self, site: Site, path: str = "/", *, width: int = 1280, **options: Any) -> Any:
        """Open a page in a context of its own; `options` are those of playwright's contexts."""
        context = self.chromium.new_context(viewport={"width": width, "height": 900}, **options)
        if site.cookie:
            name, _, value = site.cookie.partition("=")
            context.add_cookies([{"name": name, "value": value, "url": site.origin}])
        page = context.new_page()

        def asked(request: Any) -> None:
            if not request.url.startswith((f"{site.origin}/", "data:", "blob:")):
                self.faults.append(f"asked for {request.url}")

        def said(message: Any) -> None:
            if message.type in ("error", "warning"):
                self.faults.append(f"{message.type} on {page.url}: {message.text}")

        page.on("request", asked)
        page.on("console", said)
        page.on("pageerror", lambda error: self.faults.append(f"{page.url}: {error}"))
        page.goto(site.origin + path)
        return page

    def forget(self, words: str) -> None:
        """Forget the faults with these words: what a test brings about is none."""
        self.faults[:] = [fault for fault in self.faults if words not in fault]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Run Chromium while the context lasts; skip the test where it is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield Browser(made)
        finally:
            made.close()
