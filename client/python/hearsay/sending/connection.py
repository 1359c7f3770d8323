"""A connection for HTTP/1.1: one deadline for the whole of a call, which another thread can end."""

import contextlib
import errno
import functools
import http.client
import ipaddress
import queue
import re
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any

from hearsay.sending.failures import ASKS, MISTRUSTS, on_one_line
from hearsay.sending.proxies import Proxy, proxy_of
from hearsay.sending.transport import Tls, Unreachable, check_tls, is_loopback
from hearsay.trouble import Reason
from ldp.errors import HearsayError, InvalidInput

LARGEST = 5 << 20
"""Bytes of the largest message that is read: a plan has 4 MiB, and a little comes with it."""

_AROUND = 256 << 10
"""Bytes of an answer beside its message: headers, the sizes of chunks, answers before the last."""

UNUSED = 60.0
"""Seconds without a call after which a connection is not used again: a router on the way may have
forgotten it, and all that is sent on it may be lost in silence."""

_PART = 1 << 16

_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253})"
    r"(?::(?P<port>[0-9]{1,5}))?/?",
    re.IGNORECASE,
)

_NAMES = {"HOSTNAME_MISMATCH": 62, "IP_ADDRESS_MISMATCH": 64}
"""OpenSSL's numbers for a certificate of another name."""

_NO_TLS = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "RECORD_LAYER",
    "PACKET_LENGTH",
    "UNKNOWN_PROTOCOL",
)
"""Parts of OpenSSL's names for bytes that are not of TLS."""


class Interrupted(HearsayError):
    """Another thread has ended the call."""


class Answered(HearsayError):
    """The other end has answered, and not as a server of ours does; the message says how."""


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
        raise InvalidInput(
            'a URL is "https://host" or "https://host:port", without a path or a user; a name in '
            f"another script is written as xn--...; got {url!r}"
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


class Call:
    """A call under way: when it must have ended, and how much may still come."""

    def __init__(self, timeout: float | None) -> None:
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._lock = threading.RLock()  # a socket is not closed while it is shut down
        self._socket: socket.socket | None = None
        self._names: queue.SimpleQueue[Any] | None = None
        self._interrupted = False
        self.room = LARGEST + _AROUND

    def left(self) -> float | None:
        """Return the seconds that are left, None where there is no limit.

        Raises `TimeoutError` where none are, and `Interrupted` once the call was interrupted.
        """
        if self._interrupted:
            raise Interrupted
        if self._deadline is None:
            return None
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def attend(self, sock: socket.socket) -> None:
        """Make this the socket that an interruption shuts down."""
        self._socket = sock
        self.left()  # an interruption before this line did not know the socket

    def let_go(self) -> None:
        """Forget the socket, which may be closed then."""
        with self._lock:
            self._socket = None

    def interrupt(self) -> None:
        """End the call, from another thread."""
        self._interrupted = True
        if (names := self._names) is not None:
            names.put(None)
        with self._lock, contextlib.suppress(OSError):
            if self._socket is not None:
                # Not SSLSocket's own, after which the socket would go on without TLS.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def addresses(self, host: str, port: int) -> list[Any]:
        """Return a host's addresses, as `getaddrinfo` does; raise as `left` does, too."""

        def look_up() -> list[Any]:
            # As bytes: a name that cannot be encoded would raise UnicodeError.
            return socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM)

        def work() -> None:
            try:
                names.put(look_up())
            except OSError as error:
                names.put(error)

        if host == "localhost" or _is_address(host):
            return look_up()
        # The resolver has timeouts of its own, and nothing ends it: another thread waits for it.
        names = self._names = queue.SimpleQueue()
        try:
            threading.Thread(target=work, name="hearsay-names", daemon=True).start()
        except RuntimeError:  # no more threads, as when Python ends
            return look_up()
        try:
            found = names.get(timeout=self.left())
        except queue.Empty:
            raise TimeoutError from None
        self.left()
        if isinstance(found, OSError):
            raise found
        return list(found)


class _Reader:
    """The file that `http.client` reads answers from.

    The file of a socket would wait for each part of an answer as long as for all of it, and has
    no limit. What is read beyond an answer stays here, where it can be seen.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = bytearray()
        self.call: Call | None = None
        self.received = 0

    @property
    def is_empty(self) -> bool:
        return not self._buffer

    def readline(self, limit: int = -1) -> bytes:
        looked = 0
        while True:
            end = self._buffer.find(b"\n", looked) + 1
            if end or 0 <= limit <= len(self._buffer):
                return self._take(end if end and not 0 <= limit < end else limit)
            looked = len(self._buffer)
            if not self._fill():
                return self._take(looked)

    def read(self, size: int) -> bytes:
        if size < 0:
            raise ValueError("a chunk has a size below 0")
        while len(self._buffer) < size and self._fill():
            pass
        return self._take(size)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _take(self, size: int) -> bytes:
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    def _fill(self) -> bool:
        assert self.call is not None
        self._socket.settimeout(self.call.left())
        data = self._socket.recv(_PART)
        self.call.left()  # an interruption looks like the end of the connection
        self.received += len(data)
        self.call.room -= len(data)
        if self.call.room < 0:
            raise Answered("with more than it may")
        self._buffer += data
        return bool(data)


class Connection:
    """A connection to a server, for one call at a time."""

    def __init__(self, sock: socket.socket, proxy: Proxy | None) -> None:
        self.proxy = proxy
        self._socket = sock
        self._reader = _Reader(sock)
        self._used = time.monotonic()

    def makefile(self, mode: str) -> Any:
        """Return what `http.client.HTTPResponse` reads from."""
        return self._reader

    def ask(self, call: Call, request: bytes, method: str) -> http.client.HTTPResponse:
        """Send a request, and return the answer, of which the head was read."""
        self._reader.call, self._reader.received = call, 0
        call.attend(self._socket)
        broken: OSError | None = None
        try:
            self._send(call, request)
        except TimeoutError:
            raise
        except OSError as error:  # it may have answered before it had read all, and hung up
            call.left()
            broken = error
        response = http.client.HTTPResponse(self, method=method)  # type: ignore[arg-type]
        try:
            response.begin()
        except (OSError, http.client.HTTPException, ValueError):
            call.left()
            if broken is not None and not self._reader.received:
                raise broken from None
            raise
        return response

    @property
    def was_answered(self) -> bool:
        """Whether anything of an answer to the last request has come."""
        return self._reader.received > 0

    def body(self, response: http.client.HTTPResponse, most: int) -> bytes:
        """Return the whole body of an answer; raise `Answered` where it is larger than `most`
        bytes, was cut off, or has no end."""
        check_length(response)
        if (response.length or 0) > most:
            raise Answered(f"with more than {most} bytes")
        data = response.read(most + 1)
        if len(data) > most:
            raise Answered(f"with more than {most} bytes")
        if response.length:  # `read` with a number does not say that the connection was closed
            raise http.client.IncompleteRead(data, response.length)
        return data

    def keeps(self, response: http.client.HTTPResponse) -> bool:
        """Tell whether another call can be made after an answer that was read to its end."""
        self._used = time.monotonic()
        return response.isclosed() and not response.will_close and self._reader.is_empty

    def waited(self) -> float:
        """Return the seconds since the last call."""
        return time.monotonic() - self._used

    def is_usable(self) -> bool:
        """Tell whether the server has neither hung up nor said anything since the last call."""
        if self.waited() >= UNUSED:
            return False
        try:
            self._socket.setblocking(False)
            # Not SSLSocket's own, which cannot look without taking.
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def close(self, call: Call | None = None) -> None:
        """Hang up, in the middle of this call perhaps."""
        if call is not None:
            call.let_go()
        self._socket.close()

    def abandon(self) -> None:
        """Close the descriptor of a forked child; the parent's connection goes on."""
        # Not `close` of the socket: TLS would have its say on what is the parent's connection.
        with contextlib.suppress(OSError):
            socket.close(self._socket.detach())

    def _send(self, call: Call, request: bytes) -> None:
        rest = memoryview(request)
        while rest:
            self._socket.settimeout(call.left())
            rest = rest[self._socket.send(rest) :]


def check_length(response: http.client.HTTPResponse) -> None:
    """Raise `Answered` for an answer that ends where the connection does, as a cut one would,
    and for one that is compressed."""
    if response.length is None and not response.chunked:
        raise Answered("without saying where its answer ends")
    coding = response.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise Answered(
            f"with the content encoding {on_one_line(coding)!r}, which was not asked for"
        )


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
    except OSError as error:
        if proxy is None or isinstance(error, TimeoutError):
            raise
        reason, words = explained(error, Site(f"{host}:{port}", host, port, None, is_tls=False))
        raise Unreachable(f"the proxy: {words}", reason=reason) from None
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


def explained(error: Exception, to: Site) -> tuple[Reason, str]:
    """Return the reason why a call failed, and an explanation on one line."""
    named = to.url
    cause, words = Reason.UNREACHABLE, f"{named} cannot be reached"
    match error:
        case Answered():
            words = f"the server at {named} answers {error}"
        case TimeoutError():
            words = f"the server at {named} did not answer in time"
        case socket.gaierror():
            cause, words = Reason.NAME_NOT_FOUND, f"the host name in {named} does not resolve"
        case ssl.SSLCertVerificationError():
            cause = Reason.TLS
            if error.verify_code in _NAMES.values():
                words = f"the certificate of {named} has another name"
            else:
                words = f"the certificate of {named} is not trusted: {error.verify_message}"
        case ssl.SSLError() if error.reason:
            cause, words = Reason.TLS, _of_tls(error.reason, to)
        case ConnectionRefusedError():
            words = f"nothing listens at {named}"
        case http.client.IncompleteRead():
            words = f"{named} closed the connection in the middle of its answer"
        case ConnectionError() | ssl.SSLError():
            words = f"{named} closed the connection before it answered; {_missing(to)}"
        case OSError():
            known = errno.errorcode.get(error.errno or 0, type(error).__name__)
            words = f"{named} cannot be reached ({known})"
        case http.client.HTTPException() | ValueError():
            words = f"{named} does not speak HTTP as it should ({type(error).__name__})"
            words += "" if to.is_tls else f"; {_missing(to)}"
    return cause, words


def _of_tls(reason: str, to: Site) -> str:
    if any(part in reason for part in _NO_TLS):
        return f"{to.url} does not speak TLS"
    if "CERTIFICATE_REQUIRED" in reason:
        return f"{to.url} asks for {ASKS}"
    if "ALERT" in reason and to.tls is not None and to.tls.certificate is not None:
        return f"{to.url} refuses a secure connection ({reason}); {MISTRUSTS}"
    return f"no secure connection to {to.url} could be made ({reason})"


def _missing(to: Site) -> str:
    """Return what a server that closes the connection may miss."""
    if not to.is_tls:
        return "it may expect https://"
    certificate = to.tls is not None and to.tls.certificate is not None
    return MISTRUSTS if certificate else f"it may ask for {ASKS}"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _connected(host: str, port: int, call: Call) -> socket.socket:
    """Connect to the first address of a host that answers, each having its share of the time."""
    addresses = call.addresses(host, port)
    failed: OSError = ConnectionRefusedError()
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        sock = socket.socket(family, kind, protocol)
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
        response = connection.ask(call, _head(lines), "CONNECT")
    except (ConnectionError, http.client.HTTPException, ValueError):
        raise Unreachable(f"{named} does not answer as one") from None
    if response.status == 407:
        raise Unreachable(f"{named} asks for a login, as http://USER:PASSWORD@HOST:PORT")
    if not 200 <= response.status < 300:
        raise Unreachable(f"{named} refuses to connect to {to.url}: status {response.status}")
    if not connection._reader.is_empty:
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
    with call._lock:
        secured = context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
        call._socket = secured
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
    tls.read()  # says which file is missing
    try:
        if tls.authorities is not None:
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
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


@functools.cache
def _usual_context() -> ssl.SSLContext:
    context = _bare_context()
    context.load_default_certs()
    return context
