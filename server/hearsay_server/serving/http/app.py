"""What the HTTP door answers: calls of the services, probes, metrics, and pages if it has them."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import prometheus_client as prometheus
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from hearsay_server.serving.auth import bearer
from hearsay_server.serving.guard import Guard
from hearsay_server.serving.http.exchange import Exchange
from hearsay_server.serving.http.forms import FORMS, Form
from hearsay_server.serving.inside import Site
from hearsay_server.serving.status import Ended

_log = logging.getLogger("hearsay.server")

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[0-9.]+|[a-z0-9_.-]+)(:\d{1,5})?")
_ADDRESS = re.compile(r"\[.*\]|[0-9.]+")

_CODINGS = ("content-encoding", "connect-content-encoding", "grpc-encoding")

_ASKED = (
    b"authorization, content-type, connect-protocol-version, connect-timeout-ms, grpc-timeout, "
    b"x-grpc-web, x-user-agent"
)
_EXPOSED = b"retry-after, retry-after-ms, grpc-status, grpc-message"

_SCRAPE = "hearsay.v1.Admin/Metrics"
"""Admits to /metrics, as a method would."""


@dataclass(frozen=True)
class _Method:
    name: str
    handler: Callable[[Any, object], Any]
    request: type[Message]
    response: type[Message]
    streams: bool


@dataclass(frozen=True)
class Bounds:
    """Which hosts and origins are answered, and how large their messages may be."""

    hosts: Collection[str]
    origins: Collection[str]
    is_tls: bool
    max_bytes: int
    max_json_bytes: int


class App:
    """An ASGI application that answers calls of services by their servicers.

    The state of a request's scope has `on_lost`, which sets what the connection calls when it ends.
    """

    def __init__(
        self,
        services: Mapping[ServiceDescriptor, object],
        guard: Guard,
        bounds: Bounds,
        is_ready: Callable[[], bool],
        metrics: prometheus.CollectorRegistry,
        site: Site | None = None,
    ) -> None:
        """Answer `services`; `site` has the pages, and None where there are none."""
        self._site = site
        self._guard = guard
        self._bounds = bounds
        self._is_ready = is_ready
        self._metrics = metrics
        self._methods = {
            f"/{service.full_name}/{method.name}": _Method(
                f"{service.full_name}/{method.name}",
                getattr(servicer, method.name),
                GetMessageClass(method.input_type),
                GetMessageClass(method.output_type),
                method.server_streaming,
            )
            for service, servicer in services.items()
            for method in service.methods
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        exchange = Exchange(scope, receive, send)
        try:
            await self._answer(exchange)
        except _Refused as error:
            reads = "text/html" in (exchange.header("accept") or "")
            if reads and self._site is not None and _is_page(exchange):
                await exchange.refuse_reader(error, error.status)
            else:
                await exchange.refuse(error, error.status)
        except Ended as error:
            await exchange.refuse(error)
        except asyncio.CancelledError:
            if not exchange.left:
                raise
        except Exception:
            _log.exception("a request over HTTP failed")
            fault = Ended(grpc.StatusCode.INTERNAL, "the server failed to answer")
            with contextlib.suppress(RuntimeError):  # the answer had begun
                await exchange.refuse(fault)

    async def _answer(self, exchange: Exchange) -> None:
        if exchange.path in _PROBES and exchange.method in ("GET", "HEAD"):
            well = exchange.path == "/healthz" or self._is_ready()
            body = b"ok\n" if well else b"the database cannot be written\n"
            await exchange.respond(200 if well else 503, "text/plain", body)
            return
        exchange.check_once()
        self._check_host(exchange)
        self._check_origin(exchange)
        if exchange.method == "OPTIONS" and exchange.header("origin"):
            exchange.extra += [
                (b"access-control-allow-methods", b"POST"),
                (b"access-control-allow-headers", _ASKED),
                (b"access-control-max-age", b"7200"),
            ]
            await exchange.respond(204, "", b"")
        elif exchange.path == "/metrics" and exchange.method in ("GET", "HEAD"):
            await self._guard.admit(_SCRAPE, _token(exchange))
            body = await asyncio.to_thread(prometheus.generate_latest, self._metrics)
            await exchange.respond(200, prometheus.CONTENT_TYPE_LATEST, body)
        elif self._site is not None and _is_page(exchange):
            await exchange.pass_on(self._site)
        else:
            method, form = self._called(exchange)
            await self._call(exchange, method, form)

    def _check_host(self, exchange: Exchange) -> None:
        """Raise `_Refused` for a host that is not ours.

        A page of another site may make its own name lead to this server, and would then be of our
        origin to a browser. An address or localhost cannot be made to lead elsewhere.
        """
        found = _HOST.fullmatch((exchange.header("host") or "").lower())
        name = found[1] if found else ""
        if not (name in self._bounds.hosts or name == "localhost" or _ADDRESS.fullmatch(name)):
            detail = "this host is not served here: the operator lists hosts in http_hosts"
            raise _Refused(421, detail)

    def _check_origin(self, exchange: Exchange) -> None:
        """Raise `_Refused` for a page of an origin that is neither listed nor of this host."""
        origin = exchange.header("origin")
        if origin is None:
            return
        host = (exchange.header("host") or "").lower()
        own = {f"https://{host}"} if self._bounds.is_tls else {f"http://{host}", f"https://{host}"}
        if origin not in self._bounds.origins and origin not in own:
            detail = "pages of this origin may not call: the operator lists them in http_origins"
            raise _Refused(403, detail)
        exchange.extra = [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"origin"),
        ]

    def _called(self, exchange: Exchange) -> tuple[_Method, Form]:
        """Return the method that is called, and the form of its messages; or raise `Ended`."""
        method = self._methods.get(exchange.path)
        if method is None:
            detail = "there is nothing at this path: calls go to /package.Service/Method"
            raise _Refused(404, detail)
        if exchange.method != "POST":
            exchange.extra.append((b"allow", b"POST"))
            raise _Refused(405, "calls are made by POST")
        kind, _, parameters = (exchange.header("content-type") or "").lower().partition(";")
        form = FORMS.get(kind.strip())
        if form is None or not form.takes(method.streams) or _other_charset(parameters):
            ours = [name for name, each in FORMS.items() if each.takes(method.streams)]
            raise _Refused(415, f"{method.name} takes the content types {', '.join(ours)}")
        for name in _CODINGS:
            if exchange.header(name) not in (None, "", "identity"):
                raise Ended(grpc.StatusCode.UNIMPLEMENTED, f"{name} must be identity or missing")
        return method, form

    async def _call(self, exchange: Exchange, method: _Method, form: Form) -> None:
        begun = False
        try:
            async with self._guard.call(method.name, _token(exchange)) as call:
                most = self._bounds.max_json_bytes if form.is_json else self._bounds.max_bytes
                request_body = await exchange.read(most)
                call.read()
                request = await form.read(request_body, method.request)
                with exchange.attended():
                    async with _until(exchange.deadline()):
                        if not method.streams:
                            answer = await method.handler(request, None)
                            body = await form.write(answer, method.response)
                        else:
                            await exchange.start_stream(form.content_type)
                            begun = True

                            async def send(answer: Any) -> None:
                                await exchange.send_part(await form.write(answer, method.response))

                            await call.stream(method.handler(request, None), send)
        except Ended as error:
            if not form.has_envelopes:
                raise
            if not begun:
                await exchange.start_stream(form.content_type)
            await exchange.end(form.end(error))
            return
        if begun:
            await exchange.end(form.end(None))
        else:
            end = form.end(None) if form.has_envelopes else b""
            await exchange.respond(200, form.content_type, body + end)


class _Refused(Ended):
    """A request is refused before it is known to be a call, with a status of HTTP."""

    def __init__(self, status: int, detail: str) -> None:
        code = grpc.StatusCode.PERMISSION_DENIED if status in (403, 421) else _UNIMPLEMENTED
        super().__init__(code, detail)
        self.status = status


_UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED
_PROBES = ("/healthz", "/readyz")


def _token(exchange: Exchange) -> str | None:
    header = exchange.header("authorization")
    return None if header is None else bearer(header)


def _is_page(exchange: Exchange) -> bool:
    """Tell whether a request is for a page: the first part of a call's path has dots."""
    first = exchange.path[1:].partition("/")[0]
    return exchange.method in ("GET", "HEAD", "POST") and "." not in first


def _other_charset(parameters: str) -> bool:
    return "charset" in parameters and "utf-8" not in parameters


@contextlib.asynccontextmanager
async def _until(seconds: float | None) -> AsyncIterator[None]:
    """End a call after so many seconds, as its caller asked."""
    if seconds is None:
        yield
        return
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        detail = "the call took longer than its caller waits"
        raise Ended(grpc.StatusCode.DEADLINE_EXCEEDED, detail) from None
