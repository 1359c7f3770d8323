"""Disk space reserved for a ledger's last notes, for the time when the disk is full."""

import os
from pathlib import Path
from typing import IO

from hearsay.interrupts import is_from_handler

_SIZE = 1 << 15
"""Bytes to reserve: a checkpoint notes a few pages of 4 KiB before it can empty the log."""
_STEP = 1 << 12

_NAMELESS = getattr(os, "O_TMPFILE", None)  # Linux alone has it; elsewhere there is no room


class Room:
    """Disk space reserved by a file without a name, which vanishes with the process."""

    _file: IO[bytes] | None = None

    def __init__(self, folder: Path) -> None:
        """Name the folder on whose disk the space is."""
        self._folder = folder

    def take(self) -> None:
        """Reserve the space, or as much of it as the disk has."""
        try:
            if self._file is None:
                if _NAMELESS is None:
                    return
                self._file = os.fdopen(os.open(self._folder, _NAMELESS | os.O_RDWR), "wb", 0)
            while (taken := self._file.tell()) < _SIZE:
                self._file.write(bytes(min(_STEP, _SIZE - taken)))
        except OSError as error:
            if is_from_handler(error):
                raise

    def give(self) -> None:
        """Free the space for the next writes."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
