"""A connection for HTTP/1.1: one deadline for the whole of a call, which another thread can end."""

import contextlib
import ipaddress
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from hearsay.sending.framing import Answered, CutOff, Malformed, Response
from hearsay.sending.proxies import Proxy
from ldp.errors import HearsayError

LARGEST = 5 << 20
"""Bytes of the largest message that a device reads: a plan of 4 MiB, and a little with it."""

LARGEST_ANSWER = 32 << 20
"""Bytes of the largest message that an analyst reads."""

_AROUND = 256 << 10
"""Bytes of an answer beside its message: headers, the sizes of chunks, answers before the last."""

UNUSED = 60.0
"""Seconds without a call after which a connection is not used again: a router on the way may have
forgotten it, and all that is sent on it may be lost in silence."""

_PART = 1 << 16

_LONGEST = 1e6
"""Seconds that a call may take; sockets and locks do not wait for any number of them."""


class Interrupted(HearsayError):
    """Another thread has ended the call."""


class Call:
    """A call under way: when it must have ended, and how much may still come."""

    def __init__(self, timeout: float | None, largest: int = LARGEST) -> None:
        self._deadline = None if timeout is None else time.monotonic() + min(timeout, _LONGEST)
        self._lock = threading.RLock()  # a socket is not closed while it is shut down
        self._socket: socket.socket | None = None
        self._names: queue.SimpleQueue[Any] | None = None
        self._interrupted = False
        self.room = largest + (largest >> 4) + _AROUND

    def hurry(self, most: float) -> None:
        """Let the call end within so many seconds."""
        until = time.monotonic() + most
        self._deadline = until if self._deadline is None else min(until, self._deadline)

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

    def secure(self, wrap: Callable[[], ssl.SSLSocket]) -> ssl.SSLSocket:
        """Attend to the socket with TLS that takes the place of the one without."""
        with self._lock:
            secured = self._socket = wrap()
        return secured

    def abandon(self) -> None:
        """Close the descriptor of a forked child; the parent's call goes on."""
        # The lock may be held by a thread of the parent, which is not there.
        if self._socket is not None:
            _close_descriptor(self._socket)

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
            found = socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM)
            # What is said to localhost is said in the clear, and must not leave the machine.
            return [entry for entry in found if host != "localhost" or _is_loopback(entry[4][0])]

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
    """The bytes that come on a connection, as `Source` has them.

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

    def line(self, most: int) -> bytes:
        looked = 0
        while not (end := self._buffer.find(b"\n", looked) + 1):
            looked = len(self._buffer)
            if looked > most:
                break
            self._fill()
        if not end or end > most + 2:
            raise Malformed("a line that is too long")
        line = self._take(end)
        if line.find(b"\r") != end - 2:
            raise Malformed("a line that does not end as one")
        return line[:-2]

    def read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        return self._take(size)

    def _take(self, size: int) -> bytes:
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    def _fill(self) -> None:
        assert self.call is not None
        self._socket.settimeout(self.call.left())
        data = self._socket.recv(_PART)
        self.call.left()  # an interruption looks like the end of the connection
        self.received += len(data)
        self.call.room -= len(data)
        if self.call.room < 0:
            raise Answered("with more than it may")
        self._buffer += data
        if not data:
            if not self.received:
                raise ConnectionResetError
            raise CutOff("an answer that was cut off")


class Connection:
    """A connection to a server, for one call at a time."""

    def __init__(self, sock: socket.socket, proxy: Proxy | None) -> None:
        self.proxy = proxy
        self._socket = sock
        self._reader = _Reader(sock)
        self._used = time.monotonic()
        self._is_asked = False  # with the whole of a request

    def ask(self, call: Call, request: bytes) -> Response:
        """Send a request, and return the answer, of which the head was read."""
        self._reader.call, self._reader.received = call, 0
        call.attend(self._socket)
        broken: OSError | None = None
        try:
            self._send(call, request)
        except OSError as error:  # it may have answered before it had read all
            call.left()
            broken = error
        self._is_asked = broken is None
        try:
            return Response(self._reader)
        except (OSError, Malformed):
            call.left()
            if broken is not None and not self._reader.received:
                raise broken from None
            raise

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has come that was not read."""
        return self._reader.is_empty

    @property
    def was_answered(self) -> bool:
        """Whether anything of an answer to the last request has come."""
        return self._reader.received > 0

    def body(self, response: Response, most: int) -> bytes:
        """Return the whole body of an answer; raise `Answered` where it is larger than `most`
        bytes or has no certain end, and `CutOff`."""
        if (response.expect_body() or 0) > most:
            raise Answered(f"with more than {most} bytes")
        data = response.read(most + 1)
        if len(data) > most:
            raise Answered(f"with more than {most} bytes")
        return data

    def keeps(self, response: Response) -> bool:
        """Tell whether another call can be made after an answer: only where nothing can be left
        of its request or of itself."""
        self._used = time.monotonic()
        whole = self._is_asked and response.is_whole
        return whole and not response.ends_connection and self.is_quiet

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
        _close_descriptor(self._socket)

    def _send(self, call: Call, request: bytes) -> None:
        rest = memoryview(request)
        while rest:
            left = call.left()
            # The rest is for its answer, where it stopped to read because it refuses.
            self._socket.settimeout(None if left is None else 0.9 * left)
            rest = rest[self._socket.send(rest) :]


def _close_descriptor(sock: socket.socket) -> None:
    # Not `close` of the socket: TLS would have its say on what is the parent's connection.
    with contextlib.suppress(OSError):
        socket.close(sock.detach())


def _is_loopback(address: str | int) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
