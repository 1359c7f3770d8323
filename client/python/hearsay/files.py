"""The text of a file that somebody brings, as programs of any system write it."""

import codecs
import gzip
import re
import zlib
from pathlib import Path

from ldp.errors import InvalidInput

_GZIP = b"\x1f\x8b"

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Marks of encodings other than UTF-8. That of UTF-32 begins as that of UTF-16 does."""

_END_OF_LINE = re.compile("\r\n|\r|\n")


def read(file: Path) -> str:
    """Return a file's text, also of one that gzip compressed, as `decoded` does.

    Raises `InvalidInput` that names the file, also where it cannot be read.
    """
    try:
        data = file.read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(f"cannot read {file}: {why}") from None
    return decoded(data, str(file))


def decoded(data: bytes, source: str) -> str:
    """Return text without the mark at its beginning: UTF-8, or UTF-16 or UTF-32 with such a mark.

    Raises `InvalidInput` that starts with `source` and has the line, for other bytes and for what
    is no text.
    """
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding).lstrip("\ufeff")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding, "replace").lstrip("\ufeff")
        lines = _END_OF_LINE.split(before)
        raise InvalidInput(
            f"{source}, line {len(lines)}, character {len(lines[-1]) + 1}: byte "
            f"0x{data[error.start]:02x} is no {encoding.upper()}: save the file as text in UTF-8"
        ) from None
    if (place := text.find("\0")) >= 0:
        line = len(_END_OF_LINE.split(text[:place]))
        raise InvalidInput(
            f"{source}, line {line}: has a zero byte: this is no text; save the file in UTF-8"
        )
    return text
