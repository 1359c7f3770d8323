"""A relay of Oblivious HTTP before a gateway, in a thread of this process."""

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hearsay.sealed import oblivious

Answer = tuple[int, str, bytes]
"""Status, content type and body."""


class Relay:
    """A relay that notes what it sees, and may be told to lie."""

    def __init__(self, gateway: str) -> None:
        self.gateway = gateway
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[Answer] = []
        self.lie: Callable[[bytes], Answer] | None = None
        self.url = ""

    def passed(self, body: bytes) -> Answer:
        """Ask the gateway, as itself."""
        connection = http.client.HTTPConnection(self.gateway, timeout=20)
        try:
            kind = {"Content-Type": oblivious.REQUEST_TYPE}
            connection.request("POST", oblivious.PATH, body, kind)
            response = connection.getresponse()
            return response.status, response.headers["content-type"], response.read()
        finally:
            connection.close()


@contextlib.contextmanager
def relaying(gateway: str) -> Iterator[Relay]:
    """Run a relay before a gateway while the context lasts."""
    relay = Relay(gateway)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            relay.requests.append((dict(self.headers), body))
            status, kind, answer = (relay.lie or relay.passed)(body)
            relay.answers.append((status, kind, answer))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def handle(self) -> None:
            with contextlib.suppress(ConnectionResetError):  # a device that went away
                super().handle()

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        relay.url = f"http://127.0.0.1:{server.server_port}/mix"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield relay
        finally:
            server.shutdown()
            thread.join()
