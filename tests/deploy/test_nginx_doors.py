"""Which calls, pages and probes a real nginx with `deploy/nginx/hearsay.conf` serves."""

import contextlib
import json
import pkgutil
import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from helping import helping
from proxied import Nginx, in_front
from sealing import Sealed
from serving import connected, registered, serving, tokens_of
from shuffling import shuffling

import hearsay.v1
from hearsay import MEMORY, Client
from hearsay.sending.transport import Tls
from hearsay_server.pages.site import PAGES, make_site
from support import Calendar, free_port

SERVED = {
    "hearsay.v1.Collector": "collector",
    "hearsay.v1.Trainer": "collector",
    "hearsay.v1.Attestation": "collector",
    "hearsay.v1.SealedCollector": "collector",
    "hearsay.v1.Shuffler": "shuffler",
    "hearsay.v1.Helper": "helper",
    "grpc.health.v1.Health": "collector",
}
"""Services that nginx lets through, and the process that has each."""

GRPC_ALONE = {"grpc.health.v1.Health"}
"""Those that no process has over HTTP."""

NOT_SERVED = {
    "hearsay.v1.Admin",
    "hearsay.v1.Answers",
    "grpc.reflection.v1alpha.ServerReflection",
}
"""Services that are not for devices and their helpers."""

WORDS = "this is not served at this address"


def services() -> dict[str, list[str]]:
    """Return the methods of every service that a process of ours may have, by its name."""
    names = [name for _, name, _ in pkgutil.iter_modules(hearsay.v1.__path__)]
    files = [import_module(f"hearsay.v1.{n}").DESCRIPTOR for n in names if n.endswith("_pb2")]
    return {
        service.full_name: [method.name for method in service.methods]
        for file in (*files, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
        for service in file.services_by_name.values()
    }


CALLS = [(service, method) for service, methods in services().items() for method in methods]


@dataclass(frozen=True)
class Doors:
    """An nginx before each kind of process, and the two doors of the collector behind it."""

    before: Mapping[str, Nginx]
    grpc: str
    http: str

    def of(self, service: str) -> Nginx:
        return self.before[SERVED.get(service, "collector")]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """All processes, each with both doors behind an nginx; the tests of this module share them."""
    folder, clock = tmp_path_factory.mktemp("doors"), Calendar()
    http = {name: f"127.0.0.1:{free_port()}" for name in ("collector", "shuffler", "helper")}
    with contextlib.ExitStack() as stack:
        keys = {"site": make_site, "clock": clock, "http": http["collector"]}
        address = stack.enter_context(serving(folder / "server", **keys))
        registered(address)
        sealed = Sealed(folder / "server", address, clock, tokens_of(folder / "server"), "")
        mixing = shuffling(folder / "shuffler", sealed, http=http["shuffler"])
        port = free_port()
        grpc_doors = {
            "collector": address,
            "shuffler": stack.enter_context(mixing).address,
            "helper": f"127.0.0.1:{port}",
        }
        stack.enter_context(helping(folder / "helper", address, port, clock, http=http["helper"]))
        before = {
            name: in_front(folder / f"nginx-{name}", grpc_doors[name], http[name])
            for name in grpc_doors
        }
        for each in before.values():
            stack.enter_context(each.running())
        yield Doors(before, address, http["collector"])


@dataclass(frozen=True)
class Answered:
    """An answer over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of Connect's error, "" where it is none."""
        if self.headers.get("content-type") != "application/json":
            return ""
        return str(json.loads(self.body)["code"])


class _Unfollowed(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:  # type: ignore[override]
        return None


def asked(url: str, ca: Path | None = None, **given: object) -> Answered:
    """Ask over HTTP/1.1, without following redirects."""
    context = ssl.create_default_context(cafile=ca) if ca else None
    opener = urllib.request.build_opener(
        _Unfollowed, *([urllib.request.HTTPSHandler(context=context)] if context else [])
    )
    request = urllib.request.Request(url, **given)  # type: ignore[arg-type]
    try:
        with opener.open(request, timeout=20) as answer:
            return Answered(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answered(error.code, error.headers, error.read())


def through(nginx: Nginx, path: str, **given: object) -> Answered:
    return asked(f"https://{nginx.address}{path}", nginx.authority.file, **given)


def posted(nginx: Nginx, path: str) -> Answered:
    return through(nginx, path, data=b"", headers={"content-type": "application/proto"})


def called(nginx: Nginx, path: str) -> tuple[grpc.StatusCode, str]:
    """Call a method with an empty message over gRPC; return its status and the words of it."""
    with connected(nginx.address, tls=Tls(nginx.authority.file)) as channel:
        call = channel.unary_stream(path)
        answers = call(b"", timeout=20)
        try:
            next(answers)
            answers.cancel()
            return grpc.StatusCode.OK, ""
        except StopIteration:
            return grpc.StatusCode.OK, ""
        except grpc.RpcError as error:
            return error.code(), error.details()


def test_every_service_has_a_line_that_says_whether_it_is_served() -> None:
    assert not SERVED.keys() & NOT_SERVED
    assert SERVED.keys() | NOT_SERVED == services().keys()


@pytest.mark.parametrize(("service", "method"), CALLS)
def test_a_call_over_grpc_reaches_the_server_where_it_is_served(
    doors: Doors, service: str, method: str
) -> None:
    code, words = called(doors.of(service), f"/{service}/{method}")
    if service in NOT_SERVED:
        assert (code, words) == (grpc.StatusCode.UNIMPLEMENTED, WORDS)
    else:
        assert code not in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE), words


@pytest.mark.parametrize(("service", "method"), CALLS)
def test_a_call_over_http_reaches_the_server_where_it_is_served(
    doors: Doors, service: str, method: str
) -> None:
    answer = posted(doors.of(service), f"/{service}/{method}")
    if service in NOT_SERVED | GRPC_ALONE:
        assert (answer.status, answer.code) == (404, "unimplemented")
    else:
        assert answer.status == 200 or answer.code not in ("", "unimplemented", "unavailable")


def test_json_goes_to_the_http_door(doors: Doors) -> None:
    path, headers = "/hearsay.v1.Collector/GetPlan", {"content-type": "application/json"}
    answer = through(doors.of(""), path, data=b'{"survey": "none"}', headers=headers)
    assert (answer.status, answer.code) == (404, "not_found")


@pytest.mark.parametrize("kind", ["application/grpc-web", "application/grpc-web+proto"])
def test_grpc_web_goes_to_the_http_door(doors: Doors, kind: str) -> None:
    path = "/hearsay.v1.Collector/GetPlan"
    answer = through(
        doors.of("hearsay.v1.Collector"), path, data=bytes(5), headers={"content-type": kind}
    )
    assert answer.status == 200
    assert b"grpc-status:5" in answer.body.replace(b" ", b"")  # no survey has an empty name


def of_page(address: str) -> str:
    return re.sub(r"\{\w+(:path)?\}", "x", address)


@pytest.mark.parametrize("page", sorted({of_page(page.address) for page in PAGES}))
def test_a_page_is_the_servers_own(doors: Doors, page: str) -> None:
    direct = asked(f"http://{doors.http}{page}")
    answer = through(doors.of(""), page)
    assert answer.status == direct.status
    assert answer.headers["content-type"] == direct.headers["content-type"]
    assert answer.body == direct.body


def test_what_a_page_loads_is_served(doors: Doors) -> None:
    page = through(doors.of(""), "/asked").body.decode()
    loaded = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page))
    assert loaded
    for path in loaded:
        answer = through(doors.of(""), path)
        assert (answer.status, bool(answer.body)) == (200, True)


def test_probes_are_served(doors: Doors) -> None:
    for nginx in doors.before.values():
        for path in ("/readyz", "/healthz"):
            answer = through(nginx, path)
            assert (answer.status, answer.body) == (200, b"ok\n")


@pytest.mark.parametrize(
    "path", ["/metrics", "/hearsay.v1.Admin", "/hearsay.v2.Collector/Submit", "/.git/config"]
)
def test_nothing_else_is_served(doors: Doors, path: str) -> None:
    for answer in (through(doors.of(""), path), posted(doors.of(""), path)):
        assert (answer.status, answer.code) == (404, "unimplemented")
    assert called(doors.of(""), path) == (grpc.StatusCode.UNIMPLEMENTED, WORDS)


def test_grpc_to_the_path_of_a_page_is_unknown_and_not_forbidden(doors: Doors) -> None:
    assert called(doors.of(""), "/operator/tokens")[0] is grpc.StatusCode.UNIMPLEMENTED


def test_a_host_that_is_not_ours_is_misdirected(doors: Doors) -> None:
    answer = through(doors.of(""), "/asked", headers={"host": "elsewhere.example"})
    assert answer.status == 421


def test_a_browser_may_ask_before_it_calls(doors: Doors) -> None:
    nginx = doors.of("")
    headers = {"origin": f"https://{nginx.address}", "access-control-request-method": "POST"}
    path = "/hearsay.v1.Collector/Submit"
    answer = through(nginx, path, method="OPTIONS", headers=headers)
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == headers["origin"]


def test_a_device_over_https_reports_through_nginx(doors: Doors) -> None:
    nginx = doors.of("")
    options = {"ledger": MEMORY, "consent": True, "strict": True, "epsilon": 64.0, "level": "open"}
    tls = Tls(nginx.authority.file)
    with Client(f"https://{nginx.address}", "health", tls=tls, **options) as client:
        assert client.wait_ready(), client.status()
        client.record(smokes="yes", age=40)
        assert client.flush()


# --- strangers ----------------------------------------------------------------------------------

_CALL = b"""POST /hearsay.v1.Collector/GetPlan HTTP/1.1\r
Host: localhost\r
Content-Type: application/grpc\r
Content-Length: 5\r
Connection: close\r
\r
\0\0\0\0\0"""

HOSTILE = {
    "no call": _CALL.replace(b"POST", b"PUT"),
    "no call, either": _CALL.replace(b"POST", b"GET"),
    "nothing said of trailers": _CALL,
    "no trailers": _CALL.replace(b"Host", b"TE: gzip\r\nHost"),
    "no host": _CALL.replace(b"Host: localhost\r\n", b"").replace(b"1.1", b"1.0"),
    "no text": _CALL.replace(b"/GetPlan", b"/\xff"),
    "no text on a detour": _CALL.replace(b"/GetPlan", b"/\xff/../GetPlan"),
    "no text in a query": _CALL.replace(b"/GetPlan", b"/GetPlan?\xff"),
    "an escape": _CALL.replace(b"/GetPlan", b"/%ff"),
}
"""Requests that are no calls, or hardly: a server answers them, or nginx does."""


def raw(nginx: Nginx, request: bytes) -> bytes:
    """Send bytes, and return what comes back until nginx hangs up."""
    host, _, port = nginx.address.partition(":")
    context = ssl.create_default_context(cafile=nginx.authority.file)
    with (
        socket.create_connection((host, int(port)), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_no_stranger_can_make_nginx_or_a_server_turn_devices_away(
    doors: Doors, tmp_path: Path
) -> None:
    address = doors.grpc
    # With two servers nginx asks the one nothing for 10 s with which a request has failed.
    nginx = in_front(tmp_path / "nginx", f"{address}; server {address}", doors.http)
    with nginx.running():
        for name, request in HOSTILE.items():
            for _ in range(2):
                assert b"no server answers" not in raw(nginx, request), name
                code, _ = called(nginx, "/hearsay.v1.Collector/GetPlan")
                assert code is grpc.StatusCode.NOT_FOUND, name
