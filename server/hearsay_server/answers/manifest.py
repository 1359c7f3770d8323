"""The manifest of an export, `_export.json`: its plan, and the files with each period's rows.

It is written last, so an export without one is not whole. The files of an export that continues
an earlier one may lie in the earlier one's folder: files are named by paths relative to the
manifest's folder.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from hearsay.plans.period import start
from hearsay.plans.plan import parse
from hearsay_server.answers.folders import Folder
from ldp.errors import InvalidInput

NAME = "_export.json"
"""The underscore makes readers of Parquet folders leave the file out."""

_FORMAT = 1


@dataclass(frozen=True)
class Period:
    """One period of an export, as `ExportedPeriod` of the wire; `files` have so many rows each."""

    digest: bytes
    dropped: int
    files: Mapping[str, int]


@dataclass(frozen=True)
class Manifest:
    """An export of a survey: the plan's bytes, the levels and the periods."""

    plan: bytes
    levels: tuple[str, ...]
    periods: Mapping[str, Period]

    @property
    def files(self) -> dict[str, int]:
        """All files, by their paths relative to the folder, and how many rows each has."""
        return {name: rows for each in self.periods.values() for name, rows in each.files.items()}

    def write(self, folder: Folder) -> None:
        """Write the manifest, which makes the export whole. Raises `StorageFailed`."""
        document = {
            "format": _FORMAT,
            "plan": base64.b64encode(self.plan).decode(),
            "levels": self.levels,
            "periods": {
                name: {**asdict(period), "digest": period.digest.hex()}
                for name, period in sorted(self.periods.items())
            },
        }
        whole = {**document, "sha256": _digest(document)}
        folder.write(NAME, json.dumps(whole, indent=1).encode())

    @classmethod
    def read(cls, folder: Folder) -> Self:
        """Read the manifest of a whole export.

        Raises `InvalidInput` where the folder has none, `StorageFailed` where it cannot be read.
        """
        data = folder.read(NAME)
        if data is None:
            raise InvalidInput(
                f"{folder.shown} is no whole export that this version wrote: it has no {NAME}"
            )
        try:
            return cls._parsed(json.loads(data))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            where = f"{folder.shown}/{NAME}"
            raise InvalidInput(f"{where} is no manifest of an export: {error!r}") from None

    @classmethod
    def _parsed(cls, document: Mapping[str, Any]) -> Self:
        if document["format"] != _FORMAT:
            raise ValueError(f"format must be {_FORMAT}, got {document['format']!r}")
        told = {key: value for key, value in document.items() if key != "sha256"}
        if document["sha256"] != _digest(told):
            raise ValueError("its sha256 is another one, so it is damaged")
        data = base64.b64decode(document["plan"], validate=True)
        plan = parse(data)
        periods = {}
        for name, each in document["periods"].items():
            start(plan.period, name)
            digest = bytes.fromhex(each["digest"])
            files = {str(file): _count(rows) for file, rows in each["files"].items()}
            periods[name] = Period(digest, _count(each["dropped"]), files)
        return cls(data, tuple(plan.level(name).name for name in document["levels"]), periods)


def _count(number: Any) -> int:
    """Return what must be a number of rows or batches; raise `ValueError` where it is none."""
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise ValueError(f"a count is a whole number, got {number!r}")
    return number


def _digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest's values, however they are written."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
