"""Write a file that a command makes."""

from pathlib import Path

from ldp import InvalidInput
from ldp.errors import StorageFailed


def write_new(out: Path, text: str) -> None:
    """Write a survey to a file that does not exist yet.

    Raises `InvalidInput` where it exists, and `StorageFailed` where it cannot be written.
    """
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidInput(f"{out} exists: give another --out, or remove it first") from None
    except OSError as error:
        raise StorageFailed(f"cannot write {out}: {error}") from None
