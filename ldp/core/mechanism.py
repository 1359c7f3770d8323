"""The interface of the mechanisms of surveys: randomizers with their tallies and estimates.

The client randomises with one, and the server decodes, tallies and estimates with the same value,
so they cannot disagree.
"""

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import Channel
from ldp.core.coins import Coins
from ldp.core.estimator import Estimator, Frequencies, Supports
from ldp.core.exact import ONE
from ldp.core.randomizer import Codes as Codes
from ldp.core.randomizer import Randomizer as Randomizer
from ldp.core.randomizer import as_array as as_array
from ldp.core.tally import Tally
from ldp.errors import InvalidInput


class Mechanism(Randomizer, Estimator):
    """An epsilon-LDP local randomizer with its estimator, which a plan can carry."""

    name: ClassVar[str]
    """The mechanism's name in a plan."""

    two_valued: ClassVar[bool] = False
    """Whether a code is equally likely for all categories that it supports, and for all others,
    with the worst ratio of the channel between the two."""

    @property
    def variation(self) -> Fraction | None:
        """The largest total variation of two inputs' reports, or an upper bound.

        It is known where the codes of any two inputs are e**`realised_epsilon` times as likely,
        as many times less likely, or as likely; None elsewhere.
        """
        return None

    @property
    def is_mutual(self) -> bool:
        """Whether the guarantee holds for x against x' wherever it does for x' against x."""
        return True

    def matrix(self) -> NDArray[np.float64] | None:
        """Return Pr[code | input] in doubles, shape (inputs, codes); None where it is not kept."""
        return None

    def protected_pairs(self) -> NDArray[np.bool_] | None:
        """Return the ordered pairs of inputs that the guarantee covers, shape (inputs, inputs).

        None where it covers all.
        """
        return None

    # --- randomising -----------------------------------------------------------------------

    @abstractmethod
    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        """Return one code per value, independently: shape (n, *code_shape)."""

    # --- estimating ------------------------------------------------------------------------

    def tally(self, codes: ArrayLike | Sequence[Any]) -> Tally:
        """Count the codes, shape (n, *code_shape): the sufficient statistic of a cohort.

        Raises `InvalidInput` unless each is possible.
        """
        array = self._as_codes(codes)
        self._check_codes(array)
        return self._counted(array)

    @abstractmethod
    def _counted(self, codes: Codes) -> Tally:
        """Return the tally of codes that are possible."""

    def each_counted(self, codes: Codes) -> NDArray[np.int64]:
        """Return the counts that each code alone would have in a tally, shape (n, tally_size).

        The codes are possible ones, as `decode` returns them.
        """
        each = [self._counted(codes[place : place + 1]).counts for place in range(len(codes))]
        return np.array(each, dtype=np.int64).reshape(len(codes), self.tally_size)

    def evidence(self, codes: Codes, value: Any) -> NDArray[np.int64]:
        """Return each code's evidence on `value`, a small integer >= 0, shape (n,).

        For a frequency oracle that is 1 where the code supports the category, else 0. Zeros
        say that there is nothing to tell beyond the code itself.
        """
        return np.zeros(len(codes), dtype=np.int64)

    @abstractmethod
    def channel(self) -> Channel:
        """Enumerate the exact channel; raise `InvalidInput` where it is too large."""


class Counted(Mechanism):
    """A mechanism whose codes are the integers 0..tally_size-1, and whose tally counts them."""

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return integer_dtype(self.tally_size)

    def _check_codes(self, codes: Codes) -> None:
        check_below(self.name, codes, self.tally_size)

    def _counted(self, codes: Codes) -> Tally:
        return Tally(len(codes), np.bincount(codes, minlength=self.tally_size))

    def each_counted(self, codes: Codes) -> NDArray[np.int64]:
        counts = np.zeros((len(codes), self.tally_size), dtype=np.int64)
        counts[np.arange(len(codes)), codes] = 1
        return counts


class Categorical(Mechanism, Frequencies):
    """A mechanism for the categories 0..k-1, whose estimate is their k frequencies."""

    @property
    def decode_cost(self) -> int:
        """The number of counts that tallying one report changes or reads."""
        return 1

    def _check_value(self, value: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise InvalidInput(f"{self.name}: a category is an integer, got {value!r}")
        if not 0 <= value < self.k:
            raise InvalidInput(f"{self.name}: category must lie in 0..{self.k - 1}, got {value}")
        return int(value)

    def _check_values(self, values: ArrayLike) -> NDArray[np.integer[Any]]:
        array = as_array(self.name, values)
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise InvalidInput(
                f"{self.name}: categories are a 1-d integer array, "
                f"got {array.dtype} of shape {array.shape}"
            )
        if array.size and not 0 <= array.min() <= array.max() < self.k:
            raise InvalidInput(
                f"{self.name}: categories must lie in 0..{self.k - 1}, "
                f"got {array.min()}..{array.max()}"
            )
        return array

    def _check_k(self, largest: int) -> None:
        if not 2 <= self.k <= largest:
            raise InvalidInput(f"{self.name}: k must lie in 2..{largest}, got {self.k}")


class Supporting(Mechanism, Supports):
    """A mechanism whose reports support each parameter, or do not; counting supports is enough."""


class FrequencyOracle(Supporting, Categorical):
    """A pure frequency oracle over the categories 0..k-1.

    A report supports its true category with probability `p` and any other with `q`. `debias` gives
    the k frequencies; they need not sum to one.
    """

    @property
    @abstractmethod
    def named(self) -> tuple[int, int] | None:
        """The least and most categories that a code names, which are those that it supports.

        None where a code names no category: a number that fits some of them.
        """

    @property
    def tally_size(self) -> int:
        return self.k

    @property
    def step(self) -> NDArray[np.float64]:
        return np.full(self.k, 1 / self._rounded_support[1])

    @property
    def variation(self) -> Fraction | None:
        p, q = self.support
        return p - q if self.two_valued else None

    def evidence(self, codes: Codes, value: int) -> NDArray[np.int64]:
        return np.asarray(self._supported(codes, self._check_value(value)), dtype=np.int64)

    def each_counted(self, codes: Codes) -> NDArray[np.int64]:
        if self.tally_size != self.k:
            return super().each_counted(codes)
        return np.stack([self.evidence(codes, value) for value in range(self.k)], axis=1)

    @abstractmethod
    def _supported(self, codes: Codes, value: int) -> NDArray[Any]:
        """Tell which codes support the category, shape (n,)."""


def check_threshold(name: str, threshold: int) -> None:
    """Raise `InvalidInput` unless 0 < threshold < 2**64."""
    if not 0 < threshold < ONE:
        raise InvalidInput(f"{name} must lie strictly between 0 and 2**64, got {threshold}")


def check_flip(name: str, flip: int) -> None:
    """Raise `InvalidInput` unless 0 < flip < 2**63: the truth is likelier than the lie."""
    if not 0 < flip < ONE // 2:
        raise InvalidInput(f"{name}: flip must be below 2**63, got {flip}")


def check_below(name: str, codes: Codes, bound: int) -> None:
    """Raise `InvalidInput` unless every integer code is below `bound`."""
    if codes.size and codes.max() >= bound:
        raise InvalidInput(f"a {name} code must be below {bound}, got {codes.max()}")


def two_valued(k: int, own: Fraction, other: Fraction) -> NDArray[np.float64]:
    """Return the k-by-k channel matrix with `own` on the diagonal and `other` elsewhere."""
    matrix = np.full((k, k), float(other))
    np.fill_diagonal(matrix, float(own))
    return matrix


@cache
def integer_dtype(codes: int) -> np.dtype[Any]:
    """Return the narrowest little-endian dtype for the integers 0..codes-1."""
    return np.dtype(next(f"<u{size}" for size in (1, 2, 4, 8) if codes <= 1 << 8 * size))
