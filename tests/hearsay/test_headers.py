"""What a device's call says besides its message: what docs/wire.md lists, and no more."""

import json
import re
import shutil
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from hearsay.sending.over_grpc import GrpcTransport
from hearsay.sending.over_http import HttpTransport
from hearsay.sending.transport import Unreachable

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs/wire.md").read_text()


def listed(way: str) -> set[str]:
    """Return the headers that the page lists for a way to call."""
    (row,) = re.findall(rf"^\| {re.escape(way)} \| ([^|]*) \|", PAGE, re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", row))


def test_over_https_a_call_has_the_headers_that_the_page_lists() -> None:
    asked: list[bytes] = []

    def listen() -> None:
        line, _ = listener.accept()
        asked.append(line.recv(1 << 16))
        line.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(Unreachable):
            HttpTransport(url, token="secret").get_plan("health", 5.0)
        thread.join(5.0)
    _, *lines = asked[0].partition(b"\r\n\r\n")[0].decode().split("\r\n")
    assert {line.partition(":")[0].lower() for line in lines} == listed(
        'Python SDK, "https://host"'
    )
    assert not re.search(r"python|linux|windows|darwin|\d\.\d+\.\d", "".join(lines[1:]).lower())


def test_over_grpc_a_call_has_the_headers_that_the_page_lists() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node shows the headers of HTTP/2, and is not there")
    command = [node, str(HERE / "headers.mjs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shown:
        assert shown.stdout is not None
        try:
            transport = GrpcTransport(f"127.0.0.1:{int(shown.stdout.readline())}", token="secret")
            with pytest.raises(Unreachable):
                transport.get_plan("health", 5.0)
            headers = json.loads(shown.stdout.readline())
            transport.close()
        finally:
            shown.kill()
    assert set(headers) == listed('Python SDK, "host:port"')
    agent = r"grpc-python/[\d.]+ grpc-c/[\d.]+ \(\w+; chttp2\)"  # as the page says, and no more
    assert re.fullmatch(agent, headers["user-agent"])
