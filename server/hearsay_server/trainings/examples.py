"""Examples for trying a training on one machine: from an .npz or a CSV file."""

import csv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ldp import InvalidInput

LABELS, PERSON = "labels", "person"
"""The names of the arrays, or columns, with what is to be predicted and with whose it is."""


@dataclass(frozen=True)
class Examples:
    """Features, shape (n, d), whole-number labels from 0 on, shape (n,), and the person of each
    example, shape (n,), or None where the file does not say."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    person: NDArray[np.int64] | None

    def part(self, rows: NDArray[np.intp]) -> "Examples":
        """Return the examples of some rows."""
        person = None if self.person is None else self.person[rows]
        return Examples(self.features[rows], self.labels[rows], person)


def load(file: Path, label: str = LABELS) -> Examples:
    """Read examples.

    An .npz file has the arrays `features`, `label` and perhaps `person`; arrays of more than two
    dimensions are flattened. A CSV file has a header; its columns but `label` and `person` are the
    features. Raises `InvalidInput` where the file cannot be read or has something else.
    """
    read = _npz if file.suffix == ".npz" else _csv
    try:
        features, labels, person = read(file, label)
    except InvalidInput:
        raise
    except (OSError, UnicodeDecodeError, ValueError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"cannot read {file}: {error}") from None
    if features.ndim < 2 or labels.shape != features.shape[:1] or not labels.size:
        raise InvalidInput(
            f"{file}: expected features of shape (n, d) and {label!r} of shape (n,), got "
            f"{features.shape} and {labels.shape}"
        )
    if person is not None and person.shape != labels.shape:
        raise InvalidInput(f"{file}: {PERSON!r} has shape {person.shape}, not {labels.shape}")
    flat = features.reshape(len(features), -1).astype(np.float32)
    if not np.isfinite(flat).all():
        raise InvalidInput(f"{file}: features must be finite numbers")
    whole = labels.astype(np.int64)
    if (whole != labels).any() or whole.min() < 0:
        raise InvalidInput(f"{file}: {label!r} must have whole numbers from 0 on")
    _, who = (None, None) if person is None else np.unique(person, return_inverse=True)
    return Examples(flat, whole, None if who is None else who.astype(np.int64))


_Arrays = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.str_] | None]


def _npz(file: Path, label: str) -> _Arrays:
    with np.load(file, allow_pickle=False) as arrays:
        for name in ("features", label):
            if name not in arrays:
                raise InvalidInput(
                    f"{file} has no array {name!r}; it has {', '.join(arrays.files) or 'none'}"
                )
        person = arrays[PERSON].astype(str) if PERSON in arrays else None
        return arrays["features"].astype(np.float64), arrays[label].astype(np.float64), person


def _csv(file: Path, label: str) -> _Arrays:
    with file.open(encoding="utf-8", newline="") as opened:
        rows = csv.reader(opened)
        names = next(rows, [])
        if label not in names:
            raise InvalidInput(f"{file} has no column {label!r}; it has {', '.join(names)}")
        table = list(rows)
    if any(len(row) != len(names) for row in table):
        raise InvalidInput(f"{file}: each row must have {len(names)} cells, as its header")
    columns = np.array(table, dtype=str).reshape(len(table), len(names))
    place = names.index(label)
    others = [i for i, name in enumerate(names) if name not in (label, PERSON)]
    person = columns[:, names.index(PERSON)] if PERSON in names else None
    return columns[:, others].astype(np.float64), columns[:, place].astype(np.float64), person
