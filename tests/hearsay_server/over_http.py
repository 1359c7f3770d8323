"""A client of the HTTP door, which also sends what no client would."""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving import serving

from support import free_port

JSON = {"content-type": "application/json"}
PROTO = {"content-type": "application/proto"}
GET_PLAN = "/hearsay.v1.Collector/GetPlan"
SUBMIT = "/hearsay.v1.Collector/Submit"
LIST = "/hearsay.v1.Admin/ListSurveys"
ESTIMATE = "/hearsay.v1.Answers/Estimate"
ROWS = "/hearsay.v1.Answers/ExportRows"
"""A call that streams: first the plan of a survey, then its rows in an order drawn anew."""

WATCH = "/hearsay.v1.Answers/Watch"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error, as Connect names it."""
        return str(self.json()["code"])


class Door:
    """Where a server answers HTTP."""

    def __init__(self, port: int, grpc: str) -> None:
        self.port = port
        self.grpc = grpc

    def ask(
        self,
        path: str,
        body: bytes | str | None = b"{}",
        headers: dict[str, str] = JSON,
        method: str = "POST",
    ) -> Answer:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, 20)) as line:
            data = body.encode() if isinstance(body, str) else body
            line.request(method, path, data, headers)
            found = line.getresponse()
            named = {name.lower(): value for name, value in found.getheaders()}
            return Answer(found.status, named, found.read())

    def plugged(self, data: bytes = b"") -> socket.socket:
        """Open a connection, and send some bytes."""
        line = socket.create_connection(("127.0.0.1", self.port), 20)
        line.sendall(data)
        return line

    def lives(self) -> bool:
        """Tell whether a good call is answered: the sign that the server lives."""
        return self.ask(LIST).status == 200

    def open_calls(self) -> int:
        """Return how many calls are under way."""
        text = self.ask("/metrics", None, {}, "GET").body.decode()
        (line,) = [line for line in text.splitlines() if line.startswith("hearsay_open_calls ")]
        return int(float(line.split()[1]))

    def head(self, path: str = LIST, **headers: str) -> bytes:
        """Return the head of a request in JSON, without its last line."""
        lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        given = {"Content-Type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        lines += [f"{name}: {value}" for name, value in given.items()]
        return "".join(f"{line}\r\n" for line in lines).encode()


@contextlib.contextmanager
def answering(data: Path, **keys: Any) -> Iterator[Door]:
    """Serve at both doors with these keys of the configuration while the context lasts."""
    port = free_port()
    with serving(data, http=f"127.0.0.1:{port}", **keys) as address:
        yield Door(port, address)


def envelope(data: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(data).to_bytes(4, "big") + data


def envelopes(data: bytes) -> list[tuple[int, bytes]]:
    """Return flags and contents of the envelopes in an answer."""
    found = []
    while data:
        size = int.from_bytes(data[1:5], "big")
        assert len(data) >= 5 + size
        found.append((data[0], data[5 : 5 + size]))
        data = data[5 + size :]
    return found


def rest(line: socket.socket) -> bytes:
    """Return all that comes until the server closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := line.recv(65536):
            parts.append(part)
    return b"".join(parts)
