"""Examples for trying a training on one machine: from an .npz or a CSV file."""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hearsay import tables
from ldp import InvalidInput

LABELS, PERSON = "labels", "person"
"""The names of the arrays, or columns, with what is to be predicted and with whose it is."""

_MOST = 1 << 53
"""From here on a float does not hold every whole number."""

_NUMBERS = "biuf"
"""The kinds of arrays of real numbers: what is of another would be changed, or has none."""

_Array = NDArray[np.generic]


@dataclass(frozen=True)
class Examples:
    """Features, shape (n, d), whole-number labels from 0 on, shape (n,), and the person of each
    example, shape (n,), or None where the file does not say. `names` are those of the features,
    where the file has any."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    person: NDArray[np.int64] | None
    names: tuple[str, ...] = ()

    def part(self, rows: NDArray[np.intp]) -> "Examples":
        """Return the examples of some rows."""
        person = None if self.person is None else self.person[rows]
        return Examples(self.features[rows], self.labels[rows], person, self.names)


def load(file: Path, label: str = LABELS) -> Examples:
    """Read examples.

    An .npz file has the arrays `features`, `label` and perhaps `person`; arrays of more than two
    dimensions are flattened. A CSV file has a header; its columns but `label` and `person` are the
    features. A name counts also in another case and with blanks around it. Raises `InvalidInput`
    where the file cannot be read, for what is no finite number, for labels that are no whole
    numbers from 0 to 2**53 - 1, and for an example without its person where others have one.
    """
    return _npz(file, label) if file.suffix.lower() == ".npz" else _csv(file, label)


def load_like(file: Path, label: str, other: Examples) -> Examples:
    """Read examples with the features of others; raise `InvalidInput` as `load`, and for features
    of other names or in another order."""
    found = load(file, label)
    for place, (name, expected) in enumerate(zip(found.names, other.names, strict=False), 1):
        if tables.find([name], expected, str(file)) is None:
            raise InvalidInput(
                f"{file}: feature {place} is {name!r}, and {expected!r} in the other file: give "
                "the same columns in the same order"
            )
    return found


def _npz(file: Path, label: str) -> Examples:
    arrays = _arrays(file)
    names = list(arrays)

    def found(name: str) -> _Array | None:
        place = tables.find(names, name, str(file))
        return None if place is None else arrays[names[place]]

    features, labels, person = found("features"), found(label), found(PERSON)
    for name, array in (("features", features), (label, labels)):
        if array is None:
            raise InvalidInput(f"{file} has no array {name!r}; it has {', '.join(names) or 'none'}")
        if array.dtype.kind not in _NUMBERS:
            raise InvalidInput(f"{file}: {name!r} must have real numbers, got {array.dtype}")
    assert features is not None
    assert labels is not None
    if features.ndim < 2 or not features.size or labels.shape != features.shape[:1]:
        raise InvalidInput(
            f"{file}: expected features of shape (n, d) and {label!r} of shape (n,), got "
            f"{features.shape} and {labels.shape}"
        )
    if person is not None:
        _check_person(person, labels, file)
    flat = features.reshape(len(features), -1)
    small = _small(flat)
    if not (finite := np.isfinite(small)).all():
        row, column = np.argwhere(~finite)[0]
        raise InvalidInput(
            f"{file}: features must be finite numbers of 32 bits, got {flat[row, column]} in "
            f"example {row}"
        )
    if len(wrong := _no_labels(labels)):
        raise InvalidInput(
            f"{file}: {_label_words(label)}, got {labels[wrong[0]]} in example {wrong[0]}"
        )
    return Examples(small, labels.astype(np.int64), None if person is None else _numbered(person))


def _arrays(file: Path) -> Mapping[str, _Array]:
    """Return the arrays of a file by their names."""
    try:
        with file.open("rb") as opened:
            arrays = np.load(opened, allow_pickle=False)
            if isinstance(arrays, np.ndarray):
                raise InvalidInput(f"{file} has one array, and no names: write it by numpy.savez")
            return {name: arrays[name] for name in arrays.files}
    except InvalidInput:
        raise
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error.strerror or error}") from None
    except (EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise InvalidInput(f"cannot read {file} as an .npz of numbers: {error}") from None


def _check_person(person: _Array, labels: _Array, file: Path) -> None:
    if person.shape != labels.shape:
        raise InvalidInput(f"{file}: {PERSON!r} has shape {person.shape}, not {labels.shape}")
    if person.dtype.kind not in "biufSU":
        raise InvalidInput(f"{file}: {PERSON!r} must have numbers or texts, got {person.dtype}")
    if person.dtype.kind in "SU":
        nobody = np.array([not whose.strip() for whose in person.tolist()])
    else:
        nobody = person != person
    if nobody.any():
        raise InvalidInput(
            f"{file}: {PERSON!r} is blank in example {int(np.argmax(nobody))}: expected whose it is"
        )


def _csv(file: Path, label: str) -> Examples:
    table = tables.read(file)
    place = tables.find(table.headings, label, str(file))
    if place is None:
        raise InvalidInput(f"{file} has no column {label!r}; it has {', '.join(table.headings)}")
    whose = tables.find(table.headings, PERSON, str(file))
    others = [each for each in range(len(table.headings)) if each not in (place, whose)]
    if not others:
        raise InvalidInput(f"{file} has no column of features beside {label!r}")
    if unnamed := [each + 1 for each in others if not table.headings[each]]:
        raise InvalidInput(f"{file}: column {unnamed[0]} has no heading: name it, or leave it out")
    features = np.empty((len(table.rows), len(others)), dtype=np.float32)
    for at, each in enumerate(others):
        features[:, at] = _column(table, each, "a finite number of 32 bits")
    labels = _column(table, place, "a whole number", small=False)
    if len(wrong := _no_labels(labels)):
        raise InvalidInput(
            f"{file}, row {table.rows[wrong[0]]}: {_label_words(label)}, got "
            f"{table.columns[place][wrong[0]]!r}"
        )
    person = None
    if whose is not None:
        if "" in table.columns[whose]:
            row = table.rows[table.columns[whose].index("")]
            raise InvalidInput(
                f"{file}, row {row}: {table.headings[whose]!r} is blank: expected whose it is"
            )
        person = _numbered(np.array(table.columns[whose], dtype=str))
    names = tuple(table.headings[each] for each in others)
    return Examples(features, labels.astype(np.int64), person, names)


def _column(
    table: tables.Table, place: int, expected: str, *, small: bool = True
) -> NDArray[np.floating]:
    """Return a column's numbers; raise `InvalidInput` for a cell that is not `expected`."""
    cells = table.columns[place]
    try:
        numbers = np.array(list(map(tables.number, cells)), dtype=np.float64)
    except ValueError:
        numbers = np.array([_number(cell) for cell in cells])
    found = _small(numbers) if small else numbers
    if not (finite := np.isfinite(found)).all():
        row = int(np.argmin(finite))
        raise InvalidInput(
            f"{table.source}, row {table.rows[row]}: {table.headings[place]!r} must be {expected}, "
            f"got {cells[row]!r}"
        )
    return found


def _number(cell: str) -> float:
    """Return the number that a cell says; nan for none."""
    try:
        return tables.number(cell)
    except ValueError:
        return np.nan


def _small(numbers: _Array) -> NDArray[np.float32]:
    """Return numbers as features have them; infinity for what is too large."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def _no_labels(labels: _Array) -> Sequence[int]:
    """Return the place of the first that is no label, if there is one."""
    numbers = labels.astype(np.float64)
    fine = (numbers == np.floor(numbers)) & (numbers >= 0) & (numbers < _MOST)
    return [int(np.argmin(fine))] if not fine.all() else []


def _label_words(label: str) -> str:
    return f"{label!r} must have whole numbers from 0 on that a float holds, below 2**53"


def _numbered(person: _Array) -> NDArray[np.int64]:
    """Return the number of each example's person, from 0 on."""
    return np.unique(person, return_inverse=True)[1].astype(np.int64)
