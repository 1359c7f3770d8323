"""Folders on the local disk, by path, and on the disk or in object stores, by URI."""

import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

from ldp.errors import InvalidInput, StorageFailed

SCHEMES = ("file", "s3", "gs", "hdfs")
"""The schemes of URIs that are taken; pyarrow has a file system for each."""

_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""Names of files that are written: none of them leads out of its folder."""

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")


@dataclass(frozen=True)
class Folder:
    """A folder of a file system, which may not exist; `shown` names it without credentials."""

    filesystem: Any
    path: str
    shown: str

    @property
    def local(self) -> bool:
        """Whether the folder is on a disk of this machine."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def exists(self) -> bool:
        """Whether there is such a folder, or such a file. Raises `StorageFailed`."""
        with self.using():
            found = self.filesystem.get_file_info(self.path)
        return bool(found.type != fs.FileType.NotFound)

    def at(self, name: str) -> str:
        """Return the path of a file from its path relative to the folder."""
        return posixpath.normpath(posixpath.join(self.path, name))

    def new(self, name: str) -> str:
        """Return the path of a file to write, which lies in the folder itself.

        Raises `InvalidInput` for a name that leads elsewhere, or that is hidden.
        """
        if not _FILE.fullmatch(name):
            raise InvalidInput(f"a file of {self.shown} cannot be called {name!r}")
        return posixpath.join(self.path, name)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None where there is none. Raises `StorageFailed`."""
        with self.using():
            try:
                with self.filesystem.open_input_stream(self.at(name)) as stream:
                    return bytes(stream.read())
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write(self, name: str, data: bytes) -> None:
        """Write a file. Raises `StorageFailed`."""
        with self.using(), self.filesystem.open_output_stream(self.new(name)) as stream:
            stream.write(data)

    @contextmanager
    def using(self) -> Iterator[None]:
        """Raise `StorageFailed` where the file system fails in this context."""
        try:
            yield
        except OSError as error:
            raise StorageFailed(f"cannot use {self.shown}: {error}") from None


def open_folder(where: Path | str) -> Folder:
    """Return the folder of a path or a URI; a relative path is of the current folder.

    A URI may have its store's options, `s3://BUCKET/FOLDER?region=...&endpoint_override=...`.
    Raises `InvalidInput` for a URI that cannot be read, and `StorageFailed` where its store cannot
    be reached.
    """
    text = str(where)
    scheme = _URI.match(text)
    if isinstance(where, Path) or scheme is None:
        path = str(Path(text).resolve())
        return Folder(fs.LocalFileSystem(), path, text)
    if scheme[1].lower() not in SCHEMES:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise InvalidInput(f"a folder is a path or a URI of {known}; got {scheme[1]}://")
    shown = without_credentials(text)
    try:
        filesystem, path = fs.FileSystem.from_uri(text)
    except OSError as error:
        raise StorageFailed(f"cannot use {shown}: {error}") from None
    except (ValueError, NotImplementedError) as error:  # pyarrow may be built without a store
        detail = str(error).replace(text, shown)
        raise InvalidInput(f"{shown} is no folder that can be used: {detail}") from None
    return Folder(filesystem, path, shown)


def without_credentials(uri: str) -> str:
    """Return a URI without user, password and options; a path stays as it is."""
    if not _URI.match(uri):
        return uri
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
