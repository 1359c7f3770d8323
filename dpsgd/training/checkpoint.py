"""Checkpoint files, which are written whole or not at all and run no code when they are read."""

import os
from pathlib import Path
from typing import Any

import torch

from ldp import InvalidInput


def write(path: Path, state: dict[str, Any]) -> None:
    """Put a state of tensors and plain values on disk, in the place of the file at `path`.

    A process that is killed leaves the file from before or the new one, and perhaps one beside it
    that ends in ".part". Raises `InvalidInput`, and writes nothing, for what `read` would refuse.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        read(part, mmap=True)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read(path: Path, *, mmap: bool = False) -> dict[str, Any]:
    """Return the state in a file. Raises `InvalidInput` if it is damaged, or holds code."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except OSError:
        raise
    except Exception as error:  # torch raises errors of a dozen types, even AssertionError
        raise InvalidInput(
            f"{path}: expected tensors and plain values alone, in a file that is whole: {error}"
        ) from error
    if not isinstance(state, dict):
        raise InvalidInput(f"{path}: expected a dict, got a {type(state).__name__}")
    return state
