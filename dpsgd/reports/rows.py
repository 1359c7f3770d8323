"""Randomised rows, as a server gave them out, with the channels that they came through.

They come as the frame of `hearsay.Analyst.rows`, or as the output of `hearsay export`: a folder of
Parquet files, one of them, or an export that continues others, listed in `_export.json`. An
attribute has a column of codes, missing where a row has none: integers where a code is one, else
bytes; a column `<attribute>__level` of level names; and, where it has maps of sensitive values,
`<attribute>__map` of their names or "no map". Beside them, in the frame's attrs as `channels` and
in the schema's metadata as `hearsay.channels`, stands a JSON object: attribute, then level, to the
mechanism's name, epsilon and integers, as
{"mechanism": "krr", "epsilon": 1.0, "integers": {"k": [10], "resample": [...]}}, with those of its
maps, by name, as "maps".
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from dpsgd.reports.channels import Cohort, Reports
from ldp import InvalidInput, Mechanism, build
from ldp.core.mechanism import Codes
from ldp.errors import needs
from ldp.mechanisms.numbers.mean import MeanMechanism

if TYPE_CHECKING:
    import pandas as pd

METADATA = b"hearsay.channels"
"""The key of the channels in a Parquet schema's metadata; a frame's attrs use its last part."""

_LEVEL = "__level"
_MAP, _NO_MAP = "__map", "no map"
_MANIFEST = "_export.json"

_Named = tuple[NDArray[np.integer], tuple[str, ...]]
"""A column of names: positions, -1 where there is none, in the names."""


@dataclass(frozen=True, eq=False)
class Column:
    """One attribute of n rows: codes, shape (n,), arbitrary where a row has none, and positions in
    `names` of their levels, shape (n,), -1 where it has none.

    A level is here a level and a map of those who chose one, as "strict, mine"."""

    codes: NDArray[Any]
    levels: NDArray[np.integer]
    names: tuple[str, ...]
    channels: Mapping[str, Mechanism]


@dataclass(frozen=True, eq=False)
class Rows:
    """A table of `n` rows: each record's randomised answers to some attributes.

    Each mechanism's integers are checked when it is read, and its codes when they are asked for.
    """

    n: int
    columns: Mapping[str, Column]

    @classmethod
    def of(cls, frame: "pd.DataFrame", attributes: Collection[str] | None = None) -> "Rows":
        """Build rows from a frame of `Analyst.rows`, whole or cut; all attributes, or some.

        Raises `InvalidInput` where an attribute is not in it, or its channels are not.
        """

        def codes(name: str) -> NDArray[Any]:
            column = frame[name]
            return (column if column.dtype == object else column.fillna(0)).to_numpy()

        def names(name: str) -> _Named:
            found = frame[name].astype("category").cat
            return found.codes.to_numpy(), tuple(found.categories)

        channels = _channels(frame.attrs.get("channels"), "the frame", attributes)
        return cls(len(frame), _columns(channels, "the frame", set(frame.columns), codes, names))

    @classmethod
    def read(cls, path: Path, attributes: Collection[str] | None = None) -> "Rows":
        """Read the Parquet files of `hearsay export`; all attributes, or some.

        Rows keep their order. Raises `InvalidInput` where there is no such Parquet or attribute,
        or it lacks the channels, and `MissingExtra` without pyarrow.
        """
        with needs("reading an export", "export"):
            import pyarrow
            import pyarrow.parquet

        if not path.exists():
            raise InvalidInput(f"there is no {path}")
        try:
            files = pyarrow.parquet.ParquetDataset(_files(path), page_checksum_verification=True)
            wanted = {n + end for n in attributes or () for end in ("", _LEVEL, _MAP)}
            there = [n for n in files.schema.names if attributes is None or n in wanted]
            table = files.read(columns=there)
        except (pyarrow.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"cannot read {path}: {error}") from None

        def codes(name: str) -> NDArray[Any]:
            column = table.column(name).combine_chunks()
            column = column.fill_null(0) if pyarrow.types.is_integer(column.type) else column
            return np.asarray(column.to_numpy(zero_copy_only=False))

        def names(name: str) -> _Named:
            found = table.column(name).cast("string").combine_chunks().dictionary_encode()
            positions = found.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            return positions, tuple(found.dictionary.to_pylist())

        channels = _channels((table.schema.metadata or {}).get(METADATA), str(path), attributes)
        return cls(len(table), _columns(channels, str(path), set(there), codes, names))

    def reports(self, attribute: str) -> Reports:
        """Return one attribute's reports, each with the channel of its level.

        Raises `InvalidInput` where there is no such attribute, a level has no channel, and for
        codes that cannot be.
        """
        column = self._column(attribute)
        cohorts = []
        for position, level in enumerate(column.names):
            rows = np.flatnonzero(column.levels == position)
            if not rows.size:
                continue
            if level not in column.channels:
                raise InvalidInput(f"level {level!r} of {attribute!r} has no channel")
            mechanism = column.channels[level]
            cohorts.append(Cohort(mechanism, rows, _codes(mechanism, column.codes[rows])))
        if not cohorts:
            nobody = np.empty(0, dtype=np.intp)
            cohorts = [Cohort(m, nobody, m.decode(b"", 0)) for m in column.channels.values()]
        return Reports(self.n, tuple(cohorts))

    def dataset(
        self, label: str, features: Sequence[str], *, unbiased: bool = False
    ) -> TensorDataset:
        """Return a data set of rows: features, shape (d,), and the label's likelihoods, (k,).

        A number is one feature, and a category one for each of its k values; both are unbiased
        over the coins, and zero where a row has no answer. The label is a row of
        `Reports.likelihoods`, for the forward loss, or if `unbiased` of `Reports.indicators`, for
        the backward one (`dpsgd.reports.losses`). All float32. Raises `InvalidInput` as `reports`
        does, for reports without likelihoods, and where no row has a label and a feature.
        """
        reports = self.reports(label)
        self.check_together(label, features)
        answers = reports.indicators() if unbiased else reports.likelihoods()
        parts = [np.empty((self.n, 0))]
        for name in features:
            feature = self.reports(name)
            numeric = all(isinstance(m, MeanMechanism) for m in feature.mechanisms)
            parts.append(feature.numbers()[:, np.newaxis] if numeric else feature.indicators())
        tensors = (np.concatenate(parts, axis=1), answers)
        return TensorDataset(*(torch.as_tensor(t, dtype=torch.float32) for t in tensors))

    def check_together(self, label: str, features: Sequence[str]) -> None:
        """Raise `InvalidInput` where no row has a label and a feature, or there is no attribute."""
        told = self._column(label).levels >= 0
        if features and not any((told & (self._column(f).levels >= 0)).any() for f in features):
            raise InvalidInput(
                f"no row has both {label!r} and one of {', '.join(features)}: what goes together "
                'must be reported together, with budget = "split" in the survey'
            )

    def records(self, attributes: Sequence[str]) -> Mapping[str, list[Mechanism]]:
        """Return, by level, a record's mechanisms for `dpsgd.reports.guarantees.account`.

        One entry for every way in which rows answered: named by the level where all attributes
        have one, and by each attribute's own where they differ or some are missing.
        """
        columns = [self._column(name) for name in attributes]
        ways = np.unique(np.stack([column.levels for column in columns], axis=1), axis=0)
        found = {}
        for way in ways[(ways >= 0).any(axis=1)].tolist():
            answered = [
                (name, column.names[level], column.channels[column.names[level]])
                for name, column, level in zip(attributes, columns, way, strict=True)
                if level >= 0
            ]
            each = ", ".join(f"{name} {level}" for name, level, _ in answered)
            alike = len(answered) == len(columns) and len({level for _, level, _ in answered}) == 1
            found[answered[0][1] if alike else each] = [mechanism for *_, mechanism in answered]
        return found

    def _column(self, attribute: str) -> Column:
        if attribute not in self.columns:
            raise InvalidInput(f"there is no attribute {attribute!r} in these rows")
        return self.columns[attribute]


def _files(path: Path) -> Path | list[Path]:
    """Return the files that an export's manifest lists; the path itself where there is none."""
    manifest = path / _MANIFEST
    if not manifest.exists():
        return path
    periods = json.loads(manifest.read_bytes())["periods"]
    return [path / name for period in periods.values() for name in period["files"]]


def _channels(
    text: bytes | str | None, where: str, attributes: Collection[str] | None
) -> Mapping[str, Mapping[str, Mechanism]]:
    """Build the channels of each attribute, by level and map."""
    try:
        document = json.loads(text or "")
        return {
            attribute: {
                _named(level, chosen): _built(json.dumps(channel))
                for level, own in document[attribute].items()
                for chosen, channel in {_NO_MAP: own, **own.get("maps", {})}.items()
            }
            for attribute in (document if attributes is None else attributes)
        }
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise InvalidInput(
            f"{where} does not say how its codes were randomised: {error!r}"
        ) from None


def _named(level: str, chosen: str) -> str:
    """Return the name of the people at a level who chose a map."""
    return level if chosen == _NO_MAP else f"{level}, {chosen}"


def _columns(
    channels: Mapping[str, Mapping[str, Mechanism]],
    where: str,
    there: set[str],
    codes: Callable[[str], NDArray[Any]],
    names: Callable[[str], _Named],
) -> dict[str, Column]:
    """Put the columns of each attribute together, of codes and of names."""
    columns = {}
    for name, cohorts in channels.items():
        if not {name, name + _LEVEL} <= there:
            raise InvalidInput(f"{where} has no columns {name!r} and {name + _LEVEL!r}")
        levels, found = names(name + _LEVEL)
        if name + _MAP in there:
            maps, chosen = names(name + _MAP)
            levels = np.where(levels < 0, -1, levels.astype(np.int64) * len(chosen) + maps)
            found = tuple(_named(level, one) for level in found for one in chosen)
        elif any(", " in cohort for cohort in cohorts):
            raise InvalidInput(f"{where} has no column {name + _MAP!r}")
        columns[name] = Column(codes(name), levels, found, cohorts)
    return columns


@lru_cache
def _built(text: str) -> Mechanism:
    """Build a mechanism once: attributes often share one."""
    channel = json.loads(text)
    return build(channel["mechanism"], channel["epsilon"], channel["integers"])


def _codes(mechanism: Mechanism, values: NDArray[Any]) -> Codes:
    """Return integers or bytes as the mechanism's own codes, all of them possible."""
    if values.dtype == object:
        return mechanism.decode(b"".join(values), len(values))
    codes = values.reshape(-1, *mechanism.code_shape)  # one-byte codes of shape (1,) too
    if codes.min() < 0:
        raise InvalidInput(f"{mechanism.name}: a code is never negative, got {codes.min()}")
    return mechanism.decode(mechanism.encode(codes.astype(np.uint64)), len(codes))
