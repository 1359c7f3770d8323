"""Folders and files that their owner alone reads: they hold keys, seeds and who took part.

SQLite gives its logs and journals the mode of the file that they belong to.
"""

import errno
import os
import shlex
from collections.abc import Iterable
from logging import Logger
from pathlib import Path

from ldp.errors import StorageFailed

_OTHERS = 0o077
"""The bits of a mode that let in anybody but the owner."""

_OURS = ("*.db", "*.db-*", "lock", "*.lock", "reserve")
"""The files that a server, a shuffler or a helper makes in its folder."""


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents for their owner alone; leave what is there as it is.

    Raises `OSError` where that cannot be.
    """
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(exist_ok=True)  # raises where it is a file


def is_there(path: Path) -> bool:
    """Tell whether a file or folder is there; raise `StorageFailed` where this user cannot look."""
    try:
        return path.exists()
    except OSError as error:
        raise StorageFailed(
            f"cannot look for {path}: {error.strerror}; do this as the user whose folder it is"
        ) from None


def make_file(file: Path) -> None:
    """Make an empty file for its owner alone; leave one that is there as it is, and unopened:
    SQLite's locks on a file end where the process closes it once.

    Raises `OSError` for a link, as `open_file`.
    """
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if file.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(file)) from None


def open_file(file: Path) -> int:
    """Open a file to read and write, made for its owner alone if missing; return its descriptor.

    Raises `OSError` for a link, which whoever may write in the folder can lead to any file of ours.
    """
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def warn(log: Logger, folder: Path) -> None:
    """Name, in one warning, a folder and those of our files in it that others may enter or read.

    An operator made them, or an earlier version: their modes stay as they are. Name another user
    who owns the folder, too: its mode keeps nothing from him.
    """
    owner = folder.stat().st_uid
    if owner not in (0, os.geteuid()):
        log.warning(
            "user %d owns %s, and can read keys, and who took part: run chown %d %s",
            *(owner, folder, os.geteuid(), shlex.quote(str(folder))),
        )
    inside = sorted({file for pattern in _OURS for file in folder.glob(pattern)})
    if wider := [str(path) for path in (folder, *inside) if _is_wider(path)]:
        log.warning(
            "other users of this machine can read keys, and who took part: run chmod go-rwx %s",
            shlex.join(wider),
        )


def warn_of_secrets(log: Logger, files: Iterable[Path | None]) -> None:
    """Name, in one warning, files with keys or tokens that everybody can read; a group may."""
    if wider := [str(file) for file in files if file and _is_wider(file, 0o007)]:
        log.warning(
            "every user of this machine can read secrets: run chmod o-rwx %s", shlex.join(wider)
        )


def _is_wider(path: Path, bits: int = _OTHERS) -> bool:
    try:
        return bool(path.stat().st_mode & bits)
    except OSError:  # it is gone already, as a log that was moved into its file
        return False
