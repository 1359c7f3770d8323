"""One visit of a page: the request, who makes it, and the ways to answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from hearsay_server.pages.caller import Caller
from hearsay_server.pages.calling import Asking
from hearsay_server.pages.fragments import Fragments, Lately
from hearsay_server.pages.rendering import Templates
from hearsay_server.serving.auth import Proof
from hearsay_server.serving.inside import Inside
from hearsay_server.serving.status import Ended
from hearsay_server.storage.sessions import Sessions

_PLAIN = 64 << 10
"""Bytes of a form that is not multipart: it is parsed byte by byte, while all others wait."""

_PART = 4 << 20
"""Bytes of the largest field; the body's own bound comes first."""


@dataclass(frozen=True)
class Shared:
    """What all visits of a site share."""

    inside: Inside
    sessions: Sessions
    templates: Templates
    fragments: Fragments
    lately: Lately
    crowds: Lately
    """What the crowd says on public pages."""
    asking: Asking


@dataclass(frozen=True)
class Visit:
    """A request for a page by a caller who was let in."""

    request: Request
    caller: Caller
    shared: Shared

    @property
    def proof(self) -> Proof:
        """What calls in the caller's name come with."""
        return self.caller.proof

    @property
    def inside(self) -> Inside:
        """The server."""
        return self.shared.inside

    @property
    def path(self) -> dict[str, str]:
        """The parts of the address that the page's pattern names."""
        found: dict[str, str] = self.request.path_params
        return found

    async def call(self, method: str, request: Any) -> Any:
        """Call a method, such as "Admin/ListSurveys", as the caller; raise `Ended`."""
        return await self.inside.call(method, request, self.proof)

    async def form(self) -> FormData:
        """Return the fields of a posted form; raise `Ended` where it is too large, late or none."""
        kind, options = parse_options_header(self.request.headers.get("content-type"))
        charset = options.get(b"charset", b"utf-8").lower()
        if charset != b"utf-8":  # Python loads a codec for each name, and keeps the name for ever
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, "a form must be in UTF-8 here")
        size = self.request.headers.get("content-length", "")
        if kind == b"application/x-www-form-urlencoded" and not _is_small(size):
            detail = f"a form holds at most {_PLAIN} bytes here, unless it is multipart/form-data"
            raise Ended(grpc.StatusCode.OUT_OF_RANGE, detail)
        try:
            async with asyncio.timeout(self.inside.config.max_upload_seconds):
                form = self.request.form(max_files=4, max_fields=100, max_part_size=_PART)
                return await form
        except TimeoutError:
            detail = "the form took too long to come"
            raise Ended(grpc.StatusCode.DEADLINE_EXCEEDED, detail) from None
        except (MultiPartException, FormParserError, UnicodeError, LookupError):
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, "the form cannot be read") from None

    def page(self, template: str, status: int = 200, **values: object) -> Response:
        """Answer with a page that a template makes of some values."""
        return HTMLResponse(self.html(template, **values), status)

    def html(self, template: str, **values: object) -> str:
        """Return what a template makes of some values."""
        address = self.request.url.path
        return self.shared.templates.render(
            template, visitor=self.caller, address=address, **values
        )

    def go(self, address: str) -> Response:
        """Answer a POST by leading on to a page of ours."""
        return RedirectResponse(address, 303)

    @contextlib.asynccontextmanager
    async def closing_form(self) -> AsyncIterator[FormData]:
        """Yield the fields of a posted form, and close its files."""
        form = await self.form()
        try:
            yield form
        finally:
            await form.close()


def _is_small(length: str) -> bool:
    """Tell whether the length of a form that is not multipart is told, and small enough."""
    return length.isascii() and length.isdigit() and len(length) < 9 and int(length) <= _PLAIN
