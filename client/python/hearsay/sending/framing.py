"""Answers of HTTP/1.1 in the bytes of a connection: the head, and where the body ends.

An answer that two readers could read in two ways is refused: if its end is not certain, its rest
would be taken for the answer to the next request (RFC 9112, section 6.3).
"""

import re
from typing import Protocol

from hearsay.plain import on_one_line
from ldp.errors import HearsayError

_HEAD = 64 << 10
"""Bytes of the largest head."""

_FIELDS = 100
"""Headers of an answer, or fields of a trailer."""

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?", re.DOTALL)
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\0]*)", re.DOTALL)
_SIZE = re.compile("[0-9]{1,10}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?", re.DOTALL)


class Answered(HearsayError):
    """The other end has answered, and not as a server of ours does; the message says how."""


class Malformed(HearsayError):
    """The bytes of an answer are no HTTP; the message says which."""


class CutOff(Malformed):
    """The connection was closed in the middle of an answer."""


class Source(Protocol):
    """The bytes that come. Both calls raise `CutOff` where they end before."""

    def line(self, most: int) -> bytes:
        """Return the next line, without its CRLF; raise `Malformed` where it has another end, or
        more than `most` bytes."""

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes."""


class Response:
    """An answer, whose head was read when this was made.

    `headers` have their names in small letters, and the values of a name that is there more than
    once with commas between them. `is_whole` tells whether the body was read to its end, which is
    certain then. Raises `Malformed`, and what `source` raises.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._is_old, self.status, self.headers = _head(source)
        while 100 <= self.status < 200 and self.status != 101:  # the answer comes after it
            self._is_old, self.status, self.headers = _head(source)
        self._is_chunked = False
        self._in_chunk = False
        self._left = 0
        self.is_whole = False

    @property
    def ends_connection(self) -> bool:
        """Whether the other end closes the connection after this answer."""
        said = self.headers.get("connection", "").lower().split(",")
        return self._is_old or "close" in (word.strip() for word in said)

    def expect_body(self) -> int | None:
        """Find out where the body ends; return its size in bytes, None where it comes in chunks.

        Raises `Answered` unless that is said once, and where the body is compressed.
        """
        size = self.headers.get("content-length")
        coding = self.headers.get("transfer-encoding")
        compressed = self.headers.get("content-encoding", "identity")
        if compressed.lower() != "identity":
            raise Answered(
                f"with the content encoding {on_one_line(compressed)!r}, which was not asked for"
            )
        if coding is None and size is not None and _SIZE.fullmatch(size):
            self._left = int(size)
            return self._left
        if size is None and coding is not None and coding.lower() == "chunked" and not self._is_old:
            self._is_chunked = True
            return None
        raise Answered("without saying where its answer ends")

    def read(self, size: int) -> bytes:
        """Return the next bytes of the body: `size`, or all that are left where those are fewer.

        Raises `Malformed`, and what the source raises.
        """
        found = bytearray()
        while len(found) < size and self._has_more():
            part = self._source.read(min(size - len(found), self._left))
            self._left -= len(part)
            found += part
        return bytes(found)

    def _has_more(self) -> bool:
        """Tell whether there is more of the body; read the size of the next chunk if it is time."""
        # Not as a chunk ends: the next one may be long in coming.
        if self._is_chunked and not self._left and not self.is_whole:
            if self._in_chunk and self._source.line(_HEAD):
                raise Malformed("a chunk that is longer than its size")
            chunk = _CHUNK.fullmatch(self._source.line(_HEAD))
            if chunk is None:
                raise Malformed("a chunk without a size")
            self._in_chunk = True
            self._left = int(chunk[1], 16)
            if not self._left:
                _fields(self._source, _HEAD)
        self.is_whole = not self._left
        return not self.is_whole


def _head(source: Source) -> tuple[bool, int, dict[str, str]]:
    """Return whether an answer is of HTTP/1.0, its status, and its headers."""
    line = source.line(_HEAD)
    found = _STATUS.fullmatch(line)
    if found is None:
        raise Malformed("no status line")
    return found[1] == b"0", int(found[2]), _fields(source, _HEAD - len(line))


def _fields(source: Source, most: int) -> dict[str, str]:
    """Return the fields of a head or a trailer, of at most so many bytes."""
    found: dict[str, list[str]] = {}
    for _ in range(_FIELDS + 1):
        line = source.line(most)
        if not line:
            return {name: ", ".join(values) for name, values in found.items()}
        most -= len(line) + 2
        field = _FIELD.fullmatch(line.decode("latin-1"))
        if field is None:
            raise Malformed("a line that is no header")
        found.setdefault(field[1].lower(), []).append(field[2].strip(" \t"))
    raise Malformed(f"more than {_FIELDS} headers")
