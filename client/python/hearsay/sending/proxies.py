"""The proxies that a process's environment names for HTTP."""

import ipaddress
import os
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from ldp.errors import InvalidInput

_URL = re.compile(
    r"(?:http://)?(?:(?P<login>[^@/\s]*)@)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?/?"
)


@dataclass(frozen=True)
class Proxy:
    """A proxy's address, and the value of the header that says who asks; None without a login."""

    host: str
    port: int
    authorization: str | None


def proxy_of(
    scheme: str, host: str, port: int, environ: Mapping[str, str] = os.environ
) -> Proxy | None:
    """Return the proxy for a server, None where it is to be reached without one.

    `https_proxy` or `http_proxy` names it, by the server's scheme, and `no_proxy` the servers that
    need none; in small letters, or else in capitals. Raises `InvalidInput` where it is no URL of
    HTTP.
    """
    name = f"{scheme}_proxy"
    # A CGI script finds the header "Proxy" of whoever calls it in HTTP_PROXY.
    names = (name,) if scheme == "http" and "REQUEST_METHOD" in environ else (name, name.upper())
    url = _first(environ, names)
    if not url or _is_excepted(host, port, _first(environ, ("no_proxy", "NO_PROXY"))):
        return None
    found = _URL.fullmatch(url)
    if found is None or not 1 <= int(found["port"] or 80) <= 65535:
        # Not the URL itself: it may have a password in it.
        raise InvalidInput(f"{name} must be http://HOST:PORT: a proxy is spoken to over HTTP")
    login = found["login"]
    try:
        said = None if login is None else "Basic " + b64encode(unquote_to_bytes(login)).decode()
    except UnicodeError:  # bytes of the environment that are no UTF-8
        raise InvalidInput(f"{name} has a login that is not UTF-8: write it as %XX") from None
    return Proxy(found["host"].strip("[]"), int(found["port"] or 80), said)


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Return the variable that is set first, be it to nothing."""
    return next((environ[name].strip() for name in names if name in environ), "")


def _is_excepted(host: str, port: int, exceptions: str) -> bool:
    """Tell whether a list such as "example.org, .intern, 10.0.0.0/8, a.example:8443" has a host."""
    for entry in re.split(r"[,\s]+", exceptions.lower()):
        name, _, only = entry.rpartition(":")
        if name and only.isdecimal() and (":" not in name or name.endswith("]")):
            if only != str(port):
                continue
            entry = name
        if entry == "*" or (entry and _is_within(host.lower(), entry.strip("[]"))):
            return True
    return False


def _is_within(host: str, entry: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        host, entry = host.removesuffix("."), entry.removesuffix(".")
        bare = entry.removeprefix("*").removeprefix(".")
        return host == bare or host.endswith(f".{bare}")
