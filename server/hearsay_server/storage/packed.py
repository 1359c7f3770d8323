"""Tallies as they are stored, each unpacked when it is looked at.

Stored tallies may take 30 bytes each and 8 bytes a count unpacked: a question about many periods
could fill the memory of whoever holds them all unpacked.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from hearsay_server.ingest.intake import Cohort
from ldp import Tally


class PackedTallies(Mapping[Cohort, Tally]):
    """The tallies of cohorts, each the sum of the bytes that its writers stored."""

    def __init__(self, packed: Mapping[Cohort, Sequence[bytes]]) -> None:
        """Take the bytes of `Tally.to_bytes`, one or more for each cohort."""
        self.packed = packed

    def __getitem__(self, cohort: Cohort) -> Tally:
        first, *others = self.packed[cohort]
        tally = Tally.from_bytes(first)
        for other in others:
            tally += Tally.from_bytes(other)
        return tally

    def __iter__(self) -> Iterator[Cohort]:
        return iter(self.packed)

    def __len__(self) -> int:
        return len(self.packed)

    def __eq__(self, other: object) -> bool:
        """Tell whether the bytes are the same, or the tallies are those of another mapping."""
        if isinstance(other, PackedTallies):
            return self.packed == other.packed
        return super().__eq__(other)

    def summed(self, *, panels: bool, groups: bool) -> "PackedTallies":
        """Return the tallies with those of all panels, of all groups, or of both, summed.

        Their cohorts have the panel 0 or the group "".
        """
        summed: dict[tuple[str, bytes, str, str, str, str, int, str], list[bytes]] = {}
        for c, parts in self.packed.items():
            panel, group = 0 if panels else c.panel, "" if groups else c.group
            of = c.survey, c.revision, c.attribute, c.level, c.period, c.map, panel, group
            summed.setdefault(of, []).extend(parts)
        return PackedTallies({Cohort(*of): parts for of, parts in summed.items()})

    def grouped(self, name: Callable[[Cohort], str]) -> "dict[str, PackedTallies]":
        """Return the tallies of the cohorts that have each name, in the order of the cohorts."""
        groups: dict[str, dict[Cohort, Sequence[bytes]]] = {}
        for cohort, parts in self.packed.items():
            groups.setdefault(name(cohort), {})[cohort] = parts
        return {name: PackedTallies(packed) for name, packed in groups.items()}
