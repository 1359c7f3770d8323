"""Inputs of losses from randomised reports: likelihoods, unbiased indicators and numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldp import FrequencyOracle, InvalidInput, Mechanism, Tally
from ldp.core.estimator import MAX_MATRIX
from ldp.core.mechanism import Categorical, Codes
from ldp.mechanisms.numbers.mean import MeanMechanism

Floats = NDArray[np.float64]


def likelihoods(mechanism: Mechanism, codes: Codes) -> Floats:
    """Return Pr[code | category] for each code and category, shape (n, k), up to row factors.

    The largest of each row is scaled to one. Raises `InvalidInput` for codes that cannot be, and
    for mechanisms whose likelihood is not known here (sums, sketches, memoised and policy bits).
    """
    mechanism, codes = _categorical(mechanism), _possible(mechanism, codes)
    if mechanism.two_valued:
        rows = np.exp((_supports(mechanism, codes) - 1) * mechanism.realised_epsilon)
    else:
        rows = _matrix(mechanism)[:, codes].T
    rows /= rows.max(axis=1, keepdims=True)
    return rows


def indicators(mechanism: Mechanism, codes: Codes) -> Floats:
    """Return unbiased estimates of the true category's one-hot vectors, shape (n, k).

    Each row is `debias` of one report: unbiased over the coins, so entries may be negative or
    exceed one. Raises `InvalidInput` as `likelihoods` does.
    """
    mechanism, codes = _categorical(mechanism), _possible(mechanism, codes)
    if mechanism.two_valued and isinstance(mechanism, FrequencyOracle):
        p, q = map(float, mechanism.support)
        return (_supports(mechanism, codes) - q) / (p - q)
    seen, rows = np.unique(codes, return_inverse=True)
    places = np.arange(_matrix(mechanism).shape[1])
    found = np.array([mechanism.debias(Tally(1, (places == c).astype(np.int64))) for c in seen])
    return found.reshape(-1, mechanism.k)[rows]


def numbers(mechanism: Mechanism, codes: Codes) -> Floats:
    """Return an unbiased estimate of each number in [-1, 1], shape (n,); of its square it is not.

    Raises `InvalidInput` for codes that cannot be and for mechanisms of categories.
    """
    if not isinstance(mechanism, MeanMechanism):
        raise InvalidInput(f"{mechanism.name} does not report numbers")
    return np.array([float(score) for score in mechanism.scores])[_possible(mechanism, codes)]


@dataclass(frozen=True, eq=False)
class Cohort:
    """The reports of one channel: the rows they belong to, shape (n,), and their codes."""

    mechanism: Mechanism
    rows: NDArray[np.intp]
    codes: Codes


@dataclass(frozen=True, eq=False)
class Reports:
    """One attribute's reports in a table of `n` rows, by cohort, each with its own channel.

    A row has at most one report. One that has none says nothing: its likelihoods are ones, its
    indicators and numbers zeros, and so its loss and gradient are zero. Raises `InvalidInput` where
    a row is outside the table or has two reports, a cohort's rows and codes differ in number, or
    cohorts differ in categories.
    """

    n: int
    cohorts: tuple[Cohort, ...]

    def __post_init__(self) -> None:
        if not self.cohorts:
            raise InvalidInput("reports need at least one cohort")
        for cohort in self.cohorts:
            if (n := len(cohort.rows)) != len(cohort.codes):
                raise InvalidInput(
                    f"a cohort has as many rows as codes, got {n} and {len(cohort.codes)}"
                )
        rows = np.concatenate([cohort.rows for cohort in self.cohorts])
        if rows.size and not 0 <= rows.min() <= rows.max() < self.n:
            raise InvalidInput(f"rows lie in 0..{self.n - 1}, got {rows.min()}..{rows.max()}")
        if np.unique(rows).size < rows.size:
            raise InvalidInput("a row has two reports of one attribute")
        if len({cohort.mechanism.parameters for cohort in self.cohorts}) > 1:
            raise InvalidInput("the cohorts' mechanisms are for different numbers of categories")

    @classmethod
    def of(cls, mechanism: Mechanism, codes: Codes) -> "Reports":
        """Return the reports of one cohort, one per row."""
        return cls(len(codes), (Cohort(mechanism, np.arange(len(codes)), codes),))

    @classmethod
    def by_level(
        cls, mechanisms: Sequence[Mechanism], levels: NDArray[np.integer], codes: Codes
    ) -> "Reports":
        """Return reports where row i is from mechanisms[levels[i]]; a negative level is absent.

        Raises `InvalidInput` where there is no such mechanism.
        """
        levels = np.asarray(levels)
        if levels.shape != (len(codes),) or levels.max(initial=-1) >= len(mechanisms):
            raise InvalidInput(
                f"{len(codes)} codes have as many levels, below {len(mechanisms)}, got shape "
                f"{levels.shape} with the largest {levels.max(initial=-1)}"
            )
        rows = [np.flatnonzero(levels == level) for level in range(len(mechanisms))]
        cohorts = zip(mechanisms, rows, strict=True)
        return cls(len(codes), tuple(Cohort(m, r, codes[r]) for m, r in cohorts))

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The channels, one per cohort."""
        return tuple(cohort.mechanism for cohort in self.cohorts)

    def likelihoods(self) -> Floats:
        """Return `likelihoods` of every row, shape (n, k)."""
        return self._filled(likelihoods, 1.0, self.mechanisms[0].parameters)

    def indicators(self) -> Floats:
        """Return `indicators` of every row, shape (n, k)."""
        return self._filled(indicators, 0.0, self.mechanisms[0].parameters)

    def numbers(self) -> Floats:
        """Return `numbers` of every row, shape (n,)."""
        return self._filled(numbers, 0.0)

    def _filled(
        self, function: Callable[[Mechanism, Codes], Floats], absent: float, *width: int
    ) -> Floats:
        rows = np.full((self.n, *width), absent)
        for cohort in self.cohorts:
            if cohort.rows.size:
                rows[cohort.rows] = function(cohort.mechanism, cohort.codes)
        return rows


def _possible(mechanism: Mechanism, codes: Codes) -> Codes:
    return mechanism.decode(mechanism.encode(codes), len(codes))


def _categorical(mechanism: Mechanism) -> Categorical:
    if not isinstance(mechanism, Categorical):
        raise InvalidInput(f"{mechanism.name} does not report categories")
    return mechanism


def _supports(mechanism: Categorical, codes: Codes) -> Floats:
    columns = [mechanism.evidence(codes, value) for value in range(mechanism.k)]
    return np.stack(columns, axis=1).astype(np.float64)


def _matrix(mechanism: Categorical) -> Floats:
    small = mechanism.k * mechanism.tally_size <= MAX_MATRIX
    matrix = mechanism.matrix() if small else None
    if matrix is None:
        raise InvalidInput(
            f"what a {mechanism.name} report says of each category is not known here; "
            "collect what is to be learned with k-RR, subset selection, unary encoding, hashing, "
            "Hadamard response or a table"
        )
    return matrix
