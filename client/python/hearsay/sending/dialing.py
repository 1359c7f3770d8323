"""The way to a server over HTTP: its URL, the environment's proxy, the connection and TLS."""

import functools
import re
import socket
import ssl
from dataclasses import dataclass

from hearsay.sending.connection import Call, Connection
from hearsay.sending.framing import Malformed
from hearsay.sending.proxies import Proxy, proxy_of
from hearsay.sending.transport import Tls, Unreachable, check_tls, is_loopback
from hearsay.trouble import Reason
from ldp.errors import InvalidInput

_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253})"
    r"(?::(?P<port>[0-9]{1,5}))?/?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Site:
    """A server's URL, taken apart, and what its TLS needs."""

    url: str
    host: str
    port: int
    tls: Tls | None
    is_tls: bool

    @property
    def authority(self) -> str:
        """The host and, unless it is the scheme's own, the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.is_tls else 80
        return host if self.port == usual else f"{host}:{self.port}"


def site(url: str, *, tls: Tls | None, insecure: bool) -> Site:
    """Take a server's URL apart. Raises `InvalidInput` for a URL that is not "https://host[:port]",
    for "http://" beyond loopback unless `insecure`, or with `tls`, and for unreadable files."""
    check_tls(tls)
    found = _URL.fullmatch(url)
    if found is None or not 1 <= int(found["port"] or 1) <= 65535:
        # Not the URL itself: it may have a password or a token in it.
        raise InvalidInput(
            'a URL is "https://host" or "https://host:port", without a path or a user; a name in '
            "another script is written as xn--..."
        )
    is_tls = found["scheme"].lower() == "https"
    port = int(found["port"] or (443 if is_tls else 80))
    if not is_tls and tls is not None:
        raise InvalidInput(f"tls is for https://, got {url!r}")
    if not is_tls and not insecure and not is_loopback(f"{found['host']}:{port}"):
        raise InvalidInput(
            f"{url!r} would send reports and the token in the clear: give https://, or "
            "insecure=True (--insecure) where you trust the network"
        )
    made = Site(url, found["host"].strip("[]"), port, tls, is_tls)
    if is_tls:
        _context(made)
    return made


def open_connection(to: Site, call: Call) -> Connection:
    """Connect to a server, through the environment's proxy where there is one.

    Raises `OSError`, `Interrupted` and `Answered`, which `explained` puts into words, and
    `Unreachable`.
    """
    proxy = None
    if not is_loopback(f"{to.host}:{to.port}"):  # no proxy sees calls that are to stay here
        try:
            proxy = proxy_of("https" if to.is_tls else "http", to.host, to.port)
        except InvalidInput as error:
            raise Unreachable(str(error)) from None
    host, port = (proxy.host, proxy.port) if proxy is not None else (to.host, to.port)
    try:
        sock = _connected(host, port, call)
    except TimeoutError:
        raise
    except OSError as error:
        if proxy is None:
            raise
        why = "does not resolve" if isinstance(error, socket.gaierror) else "cannot be reached"
        unknown = isinstance(error, socket.gaierror)
        reason = Reason.NAME_NOT_FOUND if unknown else Reason.UNREACHABLE
        raise Unreachable(f"the proxy at {host}:{port} {why}", reason=reason) from None
    try:
        _let_it_notice(sock)
        if to.is_tls:
            if proxy is not None:
                _tunnel(sock, to, proxy, call)
            sock = _secured(sock, to, call)
    except BaseException:
        call.let_go()
        sock.close()
        raise
    return Connection(sock, None if to.is_tls else proxy)


def _connected(host: str, port: int, call: Call) -> socket.socket:
    """Connect to the first address of a host that answers, each having its share of the time."""
    addresses = call.addresses(host, port)
    failed: OSError = socket.gaierror(socket.EAI_NONAME, "no address")
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:  # such as IPv6, which the system may not have
            failed = error
            continue
        try:
            call.attend(sock)
            left = call.left()
            sock.settimeout(None if left is None else left / (len(addresses) - number))
            sock.connect(address)
            call.left()  # some systems take a socket that was shut down for a connected one
            return sock
        except OSError as error:
            call.let_go()
            sock.close()
            call.left()
            failed = error
        except BaseException:
            call.let_go()
            sock.close()
            raise
    raise failed


def _let_it_notice(sock: socket.socket) -> None:
    """Send at once, and notice within 70 s that a connection died under a long call."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 2)):
        if hasattr(socket, name):  # Linux; newer ones of the others
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _tunnel(sock: socket.socket, to: Site, proxy: Proxy, call: Call) -> None:
    """Let a proxy pass the connection on."""
    host = f"[{to.host}]" if ":" in to.host else to.host
    lines = [f"CONNECT {host}:{to.port} HTTP/1.1", f"Host: {host}:{to.port}"]
    if proxy.authorization is not None:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    connection = Connection(sock, proxy)
    named = f"the proxy at {proxy.host}:{proxy.port}"
    try:
        response = connection.ask(call, _head(lines))
    except (ConnectionError, Malformed):
        raise Unreachable(f"{named} does not answer as one") from None
    if response.status == 407:
        raise Unreachable(f"{named} asks for a login, as http://USER:PASSWORD@HOST:PORT")
    if not 200 <= response.status < 300:
        raise Unreachable(f"{named} refuses to connect to {to.url}: status {response.status}")
    if not connection.is_quiet:
        raise Unreachable(f"{named} answers itself, in the place of {to.url}")


def _head(lines: list[str]) -> bytes:
    """Return the head of a request, of lines that are printable ASCII."""
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _secured(sock: socket.socket, to: Site, call: Call) -> ssl.SSLSocket:
    try:
        context = _context(to)
    except InvalidInput as error:
        raise Unreachable(str(error), reason=Reason.TLS) from None
    name = to.host if to.tls is None or to.tls.server_name is None else to.tls.server_name
    secured = call.secure(
        lambda: context.wrap_socket(
            sock,
            server_hostname=name.removesuffix("."),  # certificates have names without it
            do_handshake_on_connect=False,
        )
    )
    try:
        secured.settimeout(call.left())
        secured.do_handshake()
    except BaseException as error:
        call.let_go()
        secured.close()
        if isinstance(error, OSError):
            call.left()
        raise
    return secured


def _context(to: Site) -> ssl.SSLContext:
    """Return what TLS needs; files are read anew, since certificates are renewed.

    Raises `InvalidInput` where a file cannot be read.
    """
    tls = to.tls
    if tls is None or (tls.authorities is None and tls.certificate is None):
        return _usual_context()
    if tls.authorities is None:
        context = _bare_context()
        context.load_default_certs()
    else:
        context = _bare_context()
        # What the app trusts ends a chain, also where another authority signed it: as over gRPC.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    tls.read()  # says which file is missing
    try:
        if isinstance(tls.authorities, bytes):
            context.load_verify_locations(cadata=tls.authorities.decode("ascii"))
        elif tls.authorities is not None:
            context.load_verify_locations(tls.authorities)
        if tls.certificate is not None:
            # The empty password: OpenSSL would ask for one at the terminal.
            context.load_cert_chain(tls.certificate, tls.key, password="")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        said = getattr(error, "reason", None) or type(error).__name__
        raise InvalidInput(
            f"cannot read a file for TLS ({said}): it must be in PEM, and a key have no password"
        ) from None
    return context


def _bare_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificates and names
    context.hostname_checks_common_name = False  # RFC 9525, section 6.3
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


@functools.cache
def _usual_context() -> ssl.SSLContext:
    context = _bare_context()
    context.load_default_certs()
    return context
