"""A real nginx on loopback, with the configuration of `deploy/nginx`."""

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from certificates import Authority

from support import free_port

_FILES = Path(__file__).resolve().parents[2] / "deploy" / "nginx"

_OF_A_TEST = """
    client_body_temp_path {folder}/client;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    # A test says from which address a call comes.
    set_real_ip_from 127.0.0.1;
    real_ip_header x-from;
"""


class Nginx:
    """An nginx with one of our files; its certificate is of `authority` and for localhost."""

    def __init__(self, folder: Path, name: str, listen: str, replaced: Mapping[str, str]) -> None:
        """Write its files. `listen` is how the file says where it listens; `replaced` are
        settings with another value, by their name."""
        self.binary = nginx()
        self.folder = folder
        folder.mkdir()
        self.authority = Authority(folder)
        self.authority.issue(folder / "server.pem", folder / "server.key")
        self.address = f"localhost:{(port := free_port())}"
        own = {
            listen: f"listen 127.0.0.1:{port}",
            "/etc/nginx/tls": str(folder),
            "/var/log/nginx": str(folder),
            **replaced,
        }
        _write(folder, _FILES / name, own)
        main = {
            "/etc/nginx/conf.d/*.conf": f"{folder}/{name}",
            "pid /tmp/nginx.pid": f"pid {folder}/nginx.pid",
            "/dev/stderr warn": f"{folder}/nginx.log info",
            "http {": "http {" + _OF_A_TEST.format(folder=folder),
        }
        _write(folder, _FILES / "nginx.conf", main)

    def _command(self, *options: str) -> list[str]:
        log = str(self.folder / "start.log")
        alone = "daemon off; master_process off;"
        file = str(self.folder / "nginx.conf")
        return [self.binary, "-e", log, "-g", alone, "-c", file, *options]

    def check(self) -> subprocess.CompletedProcess[str]:
        """Have nginx read the configuration, and not start."""
        return subprocess.run(self._command("-t"), capture_output=True, text=True, timeout=30)

    @contextlib.contextmanager
    def running(self) -> Iterator[int]:
        """Run it while the context lasts; yield its process id."""
        with subprocess.Popen(self._command()) as process:
            try:
                self._wait(process)
                yield process.pid
            finally:
                process.kill()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        host, _, port = self.address.partition(":")
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=5).close()
                return
            except ConnectionRefusedError:
                assert process.poll() is None, (self.folder / "nginx.log").read_text()
                assert time.monotonic() < deadline, "nginx does not listen"
                time.sleep(0.05)


def in_front(folder: Path, grpc: str, http: str = "127.0.0.1:1", **replaced: str) -> Nginx:
    """Return an nginx before the two doors of one process, with other values of some settings."""
    doors = {"server server:50051": f"server {grpc}", "server server:8080": f"server {http}"}
    return Nginx(folder, "hearsay.conf", "listen 443", doors | replaced)


def _write(folder: Path, source: Path, values: Mapping[str, str]) -> None:
    """Write a file of the project with other values in the place of its own."""
    text = source.read_text(encoding="utf-8")
    for old, new in values.items():
        assert old in text, f"{old!r} is not in {source}"
        text = text.replace(old, new)
    (folder / source.name).write_text(text, encoding="utf-8")


def nginx() -> str:
    """Return where nginx is; skip the test where there is none that can do what is asked."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip("there is no nginx here")
    built = subprocess.run([found, "-V"], capture_output=True, text=True, timeout=30).stderr
    for module in ("http_v2", "http_ssl", "http_realip"):
        if f"--with-{module}_module" not in built:
            pytest.skip(f"this nginx is built without {module}")
    return found
