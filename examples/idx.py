"""Read MNIST-like sets: folders of idx files, plain or gzipped."""

import gzip
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp import InvalidInput

_DTYPES: Mapping[int, np.dtype[Any]] = {
    0x08: np.dtype(">u1"),
    0x09: np.dtype(">i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}


@dataclass(frozen=True, eq=False)
class Split:
    """Images, shape (n, height, width), bytes, and labels, shape (n,), bytes."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]


def load(folder: Path) -> tuple[Split, Split]:
    """Return the training and the test set of a folder: train-*-ubyte and t10k-*-ubyte.

    Each file is plain, or gzipped with the name ending in .gz. Raises `InvalidInput` where one
    is missing or damaged, and where images and labels are not as many.
    """
    return _split(folder, "train"), _split(folder, "t10k")


def read(file: Path) -> NDArray[Any]:
    """Return the array of one idx file, in the machine's own byte order.

    Raises `InvalidInput` where the file cannot be read, is no idx file, or holds fewer or more
    bytes than its header says.
    Source: Y. LeCun's description of the format with the MNIST database.
    """
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"cannot read {file}: {error}") from None
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _DTYPES or not data[3]:
        raise InvalidInput(f"{file} is no idx file: it begins with {data[:4].hex(' ')}")
    dtype, start = _DTYPES[data[2]], 4 + 4 * data[3]
    if len(data) < start:
        raise InvalidInput(f"{file} ends within its header")
    shape = tuple(np.frombuffer(data, ">u4", data[3], offset=4).tolist())
    expected = start + dtype.itemsize * math.prod(shape)
    if len(data) != expected:
        raise InvalidInput(f"{file} of shape {shape} has {expected} bytes, got {len(data)}")
    found = np.frombuffer(data, dtype, offset=start).reshape(shape)
    return found.astype(dtype.newbyteorder("="))  # a copy that may be written to


def _split(folder: Path, name: str) -> Split:
    images = read(_find(folder, f"{name}-images-idx3-ubyte"))
    labels = read(_find(folder, f"{name}-labels-idx1-ubyte"))
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise InvalidInput(
            f"{folder} has {name} images of shape {images.shape} and labels of {labels.shape}"
        )
    if not images.dtype == labels.dtype == np.uint8:
        raise InvalidInput(f"{folder} has {name} of {images.dtype} and {labels.dtype}, not bytes")
    return Split(images.astype(np.uint8, copy=False), labels.astype(np.uint8, copy=False))


def _find(folder: Path, name: str) -> Path:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return file
    raise InvalidInput(f"{folder} has neither {name} nor {name}.gz")
