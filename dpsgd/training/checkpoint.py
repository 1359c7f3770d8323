"""Checkpoint files, which are written whole or not at all and run no code when they are read.

A file is what `torch.save` makes, then a line with the SHA-256 of all before it: the archive's own
checks miss more than half of the bits that a disk or a copy may flip.
"""

import hashlib
import os
from pathlib import Path
from typing import Any, BinaryIO

import torch

from ldp import InvalidInput

_MARK = b"\nsha256 "
_LINE = len(_MARK) + 64 + 1
"""Bytes of the last line: the mark, the digest in hex, and a line feed."""
_BLOCK = 1 << 20
"""Bytes that are digested at once."""


def write(path: Path, state: dict[str, Any]) -> None:
    """Put a state of tensors and plain values on disk, in the place of the file at `path`.

    A process that is killed leaves the file from before or the new one, and perhaps one beside it
    that ends in ".part". Raises `InvalidInput`, and writes nothing, for what `read` would refuse.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("w+b") as file:
            torch.save(state, file)
            file.write(_line(file, file.tell()))
            file.flush()
            os.fsync(file.fileno())
        read(part, mmap=True)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read(path: Path, *, mmap: bool = False) -> dict[str, Any]:
    """Return the state in a file. Raises `InvalidInput` if it is damaged, or holds code."""
    wanted = f"{path}: expected tensors and plain values alone, in a file that is whole"
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END) - _LINE
        file.seek(max(0, size))
        line = file.read()
        if size < 0 or not line.startswith(_MARK):
            raise InvalidInput(
                f"{wanted}: it has no SHA-256 at its end: it is damaged, or of an earlier release "
                "or another program; save it anew with this one"
            )
        if line != _line(file, size):
            raise InvalidInput(f"{wanted}: its SHA-256 is another one, so it is damaged")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except OSError:
        raise
    except Exception as error:  # torch raises errors of a dozen types, even AssertionError
        raise InvalidInput(f"{wanted}: {error}") from error
    if not isinstance(state, dict):
        raise InvalidInput(f"{path}: expected a dict, got a {type(state).__name__}")
    return state


def _line(file: BinaryIO, size: int) -> bytes:
    """Return the last line of a file whose first `size` bytes are the archive."""
    file.seek(0)
    digest = hashlib.sha256()
    while size > 0 and (block := file.read(min(size, _BLOCK))):
        digest.update(block)
        size -= len(block)
    file.seek(0, os.SEEK_END)
    return _MARK + digest.hexdigest().encode() + b"\n"
