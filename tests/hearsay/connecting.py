"""A server in this process that lets a gRPC servicer answer over HTTP, as Connect has it."""

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc

from hearsay.v1 import collector_pb2

STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.UNIMPLEMENTED: 501,
}


class _Aborted(Exception):
    pass


class _Context:
    """What a servicer uses of a gRPC context."""

    def __init__(self, token: str | None) -> None:
        self._token = token
        self.trailing: list[tuple[str, str]] = []
        self.error: tuple[grpc.StatusCode, str] | None = None

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [] if self._token is None else [("authorization", self._token)]

    def set_trailing_metadata(self, entries: list[tuple[str, str]]) -> None:
        self.trailing = entries

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.error = code, details
        raise _Aborted


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    servicer: Any

    def do_POST(self) -> None:
        name = self.path.rpartition("/")[2]
        body = self.rfile.read(int(self.headers["content-length"]))
        request = getattr(collector_pb2, f"{name}Request").FromString(body)
        context = _Context(self.headers["authorization"])
        status, kind, data = 200, "application/proto", b""
        try:
            data = getattr(self.servicer, name)(request, context).SerializeToString()
        except _Aborted:
            assert context.error is not None
            code, details = context.error
            status, kind = STATUS.get(code, 500), "application/json"
            name = code.name.lower().replace("cancelled", "canceled")
            data = json.dumps({"code": name, "message": details}).encode()
        with contextlib.suppress(ConnectionError):  # the caller may not wait any more
            self.send_response(status)
            for entry in context.trailing:
                self.send_header(*entry)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """Say nothing of a caller that hung up, or of one without TLS."""


@contextlib.contextmanager
def over_http(servicer: object, tls: ssl.SSLContext | None = None, port: int = 0) -> Iterator[str]:
    """Serve on loopback while the context lasts; yield the URL."""
    handler = type("Handler", (_Handler,), {"servicer": servicer})
    with _Server(("127.0.0.1", port), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        scheme, host = ("http", "127.0.0.1") if tls is None else ("https", "localhost")
        try:
            yield f"{scheme}://{host}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
