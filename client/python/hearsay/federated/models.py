"""Models as bytes and as vectors: safetensors files of float32 tensors, read strictly.

The file's format is small: the header's length in 8 bytes, a header in JSON with the type, shape
and place of each tensor, and the tensors. A device reads files of a server that it does not trust.
The reader here takes less than the format allows: float32 alone, every byte of the data in exactly
one tensor. It needs numpy alone, and `write` gives the same bytes for the same tensors.

Source: Hugging Face, "safetensors" (https://github.com/huggingface/safetensors), section "Format".
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp import InvalidInput

Model = Mapping[str, NDArray[np.float32]]
"""A model: its float32 tensors by name."""

Vector = NDArray[np.float32]
"""A model or an update as a vector: the tensors in order of their names' bytes, each in C order."""

LONGEST_HEADER = 1 << 20
"""Bytes of the longest header that is read."""

_FLOAT32 = np.dtype("<f4")


def largest(dimension: int) -> int:
    """Return the bytes that a file of a model with so many parameters has at most."""
    return 8 + LONGEST_HEADER + _FLOAT32.itemsize * dimension


def read(data: bytes, dimension: int | None = None) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of a safetensors file by name, in order of their names' bytes.

    Each is a writable copy. Raises `InvalidInput` unless all tensors are float32 with at least one
    element each, lie one after another without a gap, and have `dimension` elements together (None:
    any number). Numbers that are not finite are refused. Takes O(len(data)) time and space.
    """
    begin = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= begin - 8 <= LONGEST_HEADER or begin > len(data):
        raise InvalidInput(
            f"no safetensors file: {len(data)} bytes, of which a header of {begin - 8} is to be"
        )
    places = sorted(_places(data[8:begin]))
    tensors: dict[str, NDArray[np.float32]] = {}
    end = 0
    for start, stop, name, shape in places:
        if start != end:
            raise InvalidInput(f"tensor {name!r} begins at byte {start} of the data, not at {end}")
        end = stop
        if begin + end > len(data):
            break
        tensor = np.frombuffer(data, _FLOAT32, (stop - start) // 4, begin + start).reshape(shape)
        tensors[name] = tensor.astype(np.float32)
        if not np.isfinite(tensors[name]).all():
            raise InvalidInput(f"tensor {name!r} has numbers that are not finite")
    if not tensors or begin + end != len(data):
        raise InvalidInput(f"tensors of {end} bytes, and {len(data) - begin} bytes of data")
    if dimension is not None and end != 4 * dimension:
        raise InvalidInput(f"a model of {end // 4} parameters; the training has {dimension}")
    return {name: tensors[name] for name in sorted(tensors, key=_order)}


def write(tensors: Model) -> bytes:
    """Return float32 tensors as a safetensors file: the same bytes for the same tensors.

    Raises `InvalidInput` where `read` would refuse the file.
    """
    header, data, end = {}, [], 0
    for name in sorted(tensors, key=_order):
        tensor = np.asarray(tensors[name])
        if tensor.dtype != np.float32:
            raise InvalidInput(f"tensor {name!r} must be float32, got {tensor.dtype}")
        if not tensor.size or not np.isfinite(tensor).all():
            raise InvalidInput(f"tensor {name!r} must have elements, all of them finite")
        data.append(tensor.astype(_FLOAT32).tobytes())
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [end, end + len(data[-1])],
        }
        end += len(data[-1])
    if not header:
        raise InvalidInput("a model has at least one tensor")
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > LONGEST_HEADER:
        raise InvalidInput(f"a header of {len(text)} bytes is longer than {LONGEST_HEADER}")
    return b"".join([len(text).to_bytes(8, "little"), text, *data])


def to_vector(tensors: Model) -> Vector:
    """Return a model as one vector, shape (parameters,)."""
    return np.concatenate(
        [np.asarray(tensors[name], np.float32).ravel() for name in sorted(tensors, key=_order)]
    )


def from_vector(vector: NDArray[Any], like: Model) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of a vector, with the names and shapes of `like`.

    Raises `InvalidInput` where the vector has another length.
    """
    size = sum(tensor.size for tensor in like.values())
    if vector.shape != (size,):
        raise InvalidInput(f"a vector of shape {vector.shape}; the model has {size} parameters")
    tensors, begin = {}, 0
    for name in sorted(like, key=_order):
        end = begin + like[name].size
        tensors[name] = vector[begin:end].reshape(like[name].shape).astype(np.float32)
        begin = end
    return tensors


def _order(name: str) -> bytes:
    return name.encode()


def _places(text: bytes) -> list[tuple[int, int, str, tuple[int, ...]]]:
    """Return where each tensor begins and ends, its name and its shape, as the header says."""
    try:
        header = json.loads(text.decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the header is not JSON that can be read: {error}") from None
    if not isinstance(header, dict):
        raise InvalidInput("the header is no JSON object")
    header.pop("__metadata__", None)  # for people
    return [(*_place(name, entry), name, tuple(entry["shape"])) for name, entry in header.items()]


def _place(name: str, entry: Any) -> tuple[int, int]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise InvalidInput(f"tensor {name!r} must have dtype, shape and data_offsets alone")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if entry["dtype"] != "F32":
        raise InvalidInput(f"tensor {name!r} must be F32, got {entry['dtype']!r}")
    if not (_are_numbers(shape) and all(shape) and len(shape) <= 32):
        raise InvalidInput(f"tensor {name!r} has the shape {shape!r}")
    if not (_are_numbers(offsets) and len(offsets) == 2):
        raise InvalidInput(f"tensor {name!r} has the offsets {offsets!r}")
    start, stop = offsets
    if stop - start != 4 * math.prod(shape):
        raise InvalidInput(f"tensor {name!r} of shape {shape!r} has {stop - start} bytes")
    return start, stop


def _are_numbers(values: object) -> bool:
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value < 1 << 48 for value in values
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise `ValueError` for a name that is there twice, or is no text."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    "".join(found).encode()  # a lone surrogate has no bytes to sort by
    return found
