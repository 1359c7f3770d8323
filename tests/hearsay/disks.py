"""A disk that is small, and that fills up."""

import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hearsay import create_ledger


class SmallDisk:
    """A small file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def ledger(self) -> Path:
        """Return a new ledger on the disk, which was vouched for."""
        create_ledger(self.folder / "ledger.db")
        return self.folder / "ledger.db"

    def fill(self, but: int = 0) -> None:
        """Fill the disk up, but for so many bytes."""
        with self._ballast.open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while ballast.write(b"x" * 512):
                pass
        os.truncate(self._ballast, self._ballast.stat().st_size - but)

    def fill_log(self, ledger: Path) -> None:
        """Fill the disk up, and let another program write to a ledger for as long as it can."""
        self.fill()
        with (
            contextlib.closing(sqlite3.connect(ledger, isolation_level=None)) as other,
            pytest.raises(sqlite3.OperationalError, match="disk is full"),
        ):
            while True:
                other.execute("INSERT OR REPLACE INTO settings VALUES ('other', 1)")

    def empty(self) -> None:
        """Take back what filled the disk up."""
        self._ballast.unlink()

    def make_read_only(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of 256 KiB, mounted below `tmp_path`."""
    with mounted(tmp_path / "small", "256k") as disk:
        yield disk


@contextlib.contextmanager
def mounted(folder: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a disk of a size at a new folder while the context lasts."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    yield SmallDisk(folder)
    subprocess.run(["umount", "-l", str(folder)], check=True)
