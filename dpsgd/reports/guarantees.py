"""The account of all guarantees for a record whose reports a model was trained on."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpsgd.accounting import Accountant, Relation
from dpsgd.accounting.accountant import check_guarantee
from dpsgd.reports.contraction import contracted_epsilon, local_epsilon, replacement_epsilon
from ldp import InvalidInput, Mechanism


@dataclass(frozen=True)
class LevelGuarantee:
    """The epsilons for a record that reported at one level, for replacing its answers.

    `local` holds against an observer of the reports (delta 0); inf where the survey lets a report
    tell some answers apart. Against an observer of the model alone `central` (the training's) and
    `contracted` (both together) hold too, at its delta.
    """

    level: str
    local: float
    central: float
    contracted: float

    @property
    def model(self) -> float:
        """The epsilon against an observer of only the model: the smallest of the three."""
        return min(self.local, self.central, self.contracted)

    @property
    def why(self) -> str:
        """The name of the smallest of the three; of equal ones, the simplest."""
        figures = {"local": self.local, "central": self.central, "contraction": self.contracted}
        return min(figures, key=figures.__getitem__)


@dataclass(frozen=True)
class Account:
    """The guarantees of a training on reports: `spent` is its own epsilon at `delta` under
    `relation` (inf and None: no noise), `levels` the guarantees for a record of each level.

    All else that the training saw of a record is public, and is covered by `spent` alone.
    """

    delta: float
    relation: Relation | None
    spent: float
    levels: tuple[LevelGuarantee, ...]

    def __str__(self) -> str:
        lines = ["training: without noise"]
        if self.relation is not None:
            spent = f"({self.spent:.4g}, {self.delta:g})-DP in rows, {self.relation.value}"
            lines = [f"training: {spent}"]
        if not self.levels:
            return lines[0]
        width = max(len("level"), *(len(level.level) for level in self.levels))
        lines += [
            "if a record's randomised answers were replaced by others (all else is public)",
            f"  {'level':{width}} {'local':>9} {'central':>9} {'contraction':>12}  smallest",
        ]
        lines += [
            f"  {one.level:{width}} {one.local:9.4g} {one.central:9.4g} {one.contracted:12.4g}"
            f"  {one.model:.4g}, {one.why}"
            for one in self.levels
        ]
        lines.append("  local, at delta 0: against whoever sees the reports")
        if any(math.isinf(level.local) for level in self.levels):
            lines.append("  local inf: the survey lets a report reveal some answers for certain")
        if self.relation is not None:
            lines.append(f"  the others, at delta {self.delta:g}: against who sees the model alone")
        return "\n".join(lines)


def account(
    records: Mapping[str, Sequence[Mechanism]],
    *,
    delta: float,
    accountant: Accountant | None = None,
) -> Account:
    """Return the guarantees of the reports, the private training, and both together.

    `records` gives for each level the mechanisms of all that one record reported and the
    training saw. `accountant` has the history of the training; None for one without noise. A
    person is one row of the training; the guarantees of several add up.
    Guarantee: every epsilon of a level is for replacing one record's answers, by the theorem of
    `dpsgd.reports.contraction`. Where the accountant adds and removes records that is a removal
    and an addition, since local reports do not hide whether somebody reported.
    Raises `InvalidInput` unless 0 < delta < 1, there are records, the accountant's figures are
    guarantees, and those of the mechanisms can be stated (see `local_epsilon`).
    """
    if not records or not 0 < delta < 1:
        raise InvalidInput(
            f"an account needs records and 0 < delta < 1, got {len(records)} and {delta}"
        )
    if accountant is not None:
        check_guarantee(accountant)

    def replaced(delta: float) -> float:
        if accountant is None:
            return math.inf
        if accountant.relation is Relation.REPLACE_ONE:
            return accountant.get_epsilon(delta)
        return replacement_epsilon(accountant.get_epsilon, delta)

    central = replaced(delta)
    levels = tuple(
        LevelGuarantee(name, local_epsilon(r), central, contracted_epsilon(r, replaced, delta))
        for name, r in records.items()
    )
    if accountant is None:
        return Account(delta, None, math.inf, levels)
    return Account(delta, accountant.relation, accountant.get_epsilon(delta), levels)
