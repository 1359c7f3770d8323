"""Room on the disk that is kept for revoking tokens: whoever holds a stolen one may fill the disk.

It is a file, so that a command gives of it while a server runs. Each time it gives a step, and not
all: others write to the disk, too, and would take what is left over.
"""

import contextlib
import os
from pathlib import Path

from hearsay_server import private

_SIZE = 1 << 20
"""Bytes that are kept: 16 revocations on a disk that stays full."""

_STEP = 1 << 16
"""Bytes that are given: SQLite's index of its log takes 32 KiB, and a revocation six pages of 4."""


class Reserve:
    """The file "reserve" of a folder; without a folder, nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / "reserve"

    def take(self) -> None:
        """Keep the room, or as much of it as the disk has."""
        if self._file is None:
            return
        with (
            contextlib.suppress(OSError),
            os.fdopen(private.open_file(self._file), "ab", 0) as file,
        ):
            while (missing := _SIZE - file.tell()) > 0:
                # At random, since a file system may compress it.
                file.write(os.urandom(min(_STEP, missing)))

    def give(self) -> None:
        """Free a step of the room, if any is left."""
        if self._file is None:
            return
        with (
            contextlib.suppress(OSError),
            os.fdopen(private.open_file(self._file), "ab", 0) as file,
        ):
            file.truncate(max(0, file.tell() - _STEP))
