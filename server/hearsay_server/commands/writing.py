"""Write a file that a command makes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ldp import InvalidInput
from ldp.errors import StorageFailed


def write_new(out: Path, text: str) -> None:
    """Write a survey to a file that does not exist yet.

    Raises `InvalidInput` where it exists, and `StorageFailed` where it cannot be written.
    """
    with opened_new(out) as file:
        file.write(text)


def check_new(*files: Path | None) -> None:
    """Raise `InvalidInput` where a file is there already, before work is done for it."""
    for file in files:
        if file is not None and file.exists():
            raise InvalidInput(f"{file} exists: give another name, or remove it first")


@contextmanager
def opened_new(out: Path, mode: str = "x") -> Iterator[IO[Any]]:
    """Open a file that does not exist yet: "x" for text in UTF-8, "xb" for bytes.

    Raises `InvalidInput` where it exists, and `StorageFailed` where it cannot be written.
    """
    encoding = None if "b" in mode else "utf-8"
    try:
        with out.open(mode, encoding=encoding) as file:
            yield file
    except FileExistsError:
        raise InvalidInput(f"{out} exists: give another name, or remove it first") from None
    except OSError as error:
        raise StorageFailed(f"cannot write {out}: {error}") from None
