"""Requests and answers of HTTP as bytes that can be sealed.

Source: RFC 9292, "Binary Representation of HTTP Messages": messages of known length (section 3.1),
with padding (section 3.8). Trailers are read over, and none are written.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ldp import InvalidInput

_FIELDS = 100
"""Header fields of the largest message that is read."""

_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE = re.compile(rb"[^\0\r\n]*")

_REQUEST, _RESPONSE = 0, 1


@dataclass(frozen=True)
class Request:
    """A request; names of headers are in small letters."""

    method: str
    scheme: str
    authority: str
    path: str
    headers: tuple[tuple[bytes, bytes], ...]
    content: bytes

    def encode(self, multiple: int) -> bytes:
        """Return the request, padded with zeros to a multiple of so many bytes."""
        control = (self.method, self.scheme, self.authority, self.path)
        parts = [_integer(_REQUEST), *(_counted(part.encode("ascii")) for part in control)]
        return _padded([*parts, _fields(self.headers), _counted(self.content)], multiple)


@dataclass(frozen=True)
class Response:
    """A final answer; of several headers with one name the last is here."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def encode(self, multiple: int) -> bytes:
        """Return the answer, padded with zeros to a multiple of so many bytes."""
        headers = _fields((k.encode(), v.encode("latin-1")) for k, v in self.headers.items())
        parts = [_integer(_RESPONSE), _integer(self.status), headers, _counted(self.content)]
        return _padded(parts, multiple)


def read_request(data: bytes) -> Request:
    """Return the request in these bytes; raise `InvalidInput` where they are none."""
    reader = _Reader(data)
    reader.expect(_REQUEST)
    control = [reader.counted() for _ in range(4)]
    if not all(part.isascii() for part in control):
        raise InvalidInput("a request's method, scheme, authority and path are ASCII")
    method, scheme, authority, path = (part.decode("ascii") for part in control)
    headers = reader.fields()
    return Request(method, scheme, authority, path, headers, reader.content())


def read_response(data: bytes) -> Response:
    """Return the final answer in these bytes; raise `InvalidInput` where there is none."""
    reader = _Reader(data)
    reader.expect(_RESPONSE)
    while 100 <= (status := reader.integer()) < 200:  # the answer comes after it
        reader.fields()
    if not 200 <= status <= 599:
        raise InvalidInput(f"a final answer has a status of 200 to 599, got {status}")
    headers = {name.decode(): value.decode("latin-1") for name, value in reader.fields()}
    return Response(status, headers, reader.content())


class _Reader:
    """The bytes of a message, from the first to the last."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def expect(self, framing: int) -> None:
        found = self.integer()
        if found != framing:
            raise InvalidInput(
                f"expected a message of known length with framing {framing}, got {found}"
            )

    def integer(self) -> int:
        first = self._taken(1)[0]
        more = self._taken((1 << (first >> 6)) - 1)
        return int.from_bytes(bytes([first & 0x3F]) + more, "big")

    def counted(self) -> bytes:
        return self._taken(self.integer())

    def fields(self) -> tuple[tuple[bytes, bytes], ...]:
        # A message may end before a section that is empty.
        section = _Reader(b"" if self._is_over() else self.counted())
        found = []
        while not section._is_over():
            name, value = section.counted(), section.counted()
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise InvalidInput("a header has a name or a value that cannot be one")
            found.append((name, value))
            if len(found) > _FIELDS:
                raise InvalidInput(f"a message has at most {_FIELDS} headers")
        return tuple(found)

    def content(self) -> bytes:
        """Return the content, and read the rest: trailers and padding."""
        found = b"" if self._is_over() else self.counted()
        self.fields()
        if self._data.count(0, self._at) != len(self._data) - self._at:
            raise InvalidInput("the padding is not zero")
        return found

    def _is_over(self) -> bool:
        return self._at == len(self._data)

    def _taken(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise InvalidInput("the message is cut off")
        found = self._data[self._at : end]
        self._at = end
        return found


def _integer(value: int) -> bytes:
    """Return an integer as QUIC writes it (RFC 9000, section 16)."""
    for power in range(4):
        size = 1 << power
        if value < 1 << (8 * size - 2):
            return (value | power << (8 * size - 2)).to_bytes(size, "big")
    raise InvalidInput(f"expected an integer below 2^62, got {value}")


def _counted(data: bytes) -> bytes:
    return _integer(len(data)) + data


def _fields(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    return _counted(b"".join(_counted(name) + _counted(value) for name, value in fields))


def _padded(parts: Iterable[bytes], multiple: int) -> bytes:
    data = b"".join(parts) + _integer(0)  # no trailers
    return data.ljust(-(-len(data) // multiple) * multiple, b"\0")
