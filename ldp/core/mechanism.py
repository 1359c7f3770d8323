"""The interface of every local randomizer: one frozen value that both sides of the wire share.

A mechanism is built either from an epsilon, and then computes its exact integers, or from the
integers that a plan carries, and then checks that they keep the epsilon. The client randomises
with it, the server decodes, tallies and estimates with it, so they cannot disagree.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import Channel
from ldp.core.coins import Coins
from ldp.core.estimator import Estimator, Frequencies, Supports
from ldp.core.exact import ONE, certainly_at_most, check_epsilon, log_upper
from ldp.core.tally import Tally
from ldp.errors import InvalidInput

Codes = NDArray[Any]
"""Randomised answers, one per row: shape (n, *code_shape), dtype `code_dtype`."""


class Mechanism(Estimator):
    """An epsilon-LDP local randomizer with its estimator.

    Every subclass is a frozen dataclass whose fields besides `epsilon` are integers or tuples
    of integers, which a plan carries. `epsilon` is the requested one; `realised_epsilon` is the
    one that the integers give, never more.
    """

    name: ClassVar[str]
    """The mechanism's name in a plan."""

    guarantee: ClassVar[Literal["pure", "policy", "repeated", "approximate"]] = "pure"
    """The kind of guarantee that `epsilon` states.

    - "pure": how well any two inputs can be told apart by all that is reported.
    - "policy": the same, of the pairs of inputs that a policy holds at finite distance.
    - "repeated": the same of one report, where a device sends several that share a memo.
    - "approximate": the same of any two inputs but for a probability delta; in no plan.
    """

    two_valued: ClassVar[bool] = False
    """Whether a code is equally likely for all categories that it supports, and for all others,
    with the worst ratio of the channel between the two."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        for field, values in self.integers.items():
            if not all(type(value) is int and value >= 0 for value in values):
                raise InvalidInput(
                    f"{self.name}: {field} must be made of integers >= 0, "
                    f"got {getattr(self, field)!r}"
                )
        self._calibrate()
        for field, values in self.integers.items():
            if max(values, default=0) >= ONE:
                raise InvalidInput(
                    f"{self.name}: {field} must be below 2**64, for a plan to hold it, "
                    f"got {getattr(self, field)!r}"
                )
        self._check_privacy()

    def _check_privacy(self) -> None:
        """Raise `InvalidInput` where the integers exceed the guarantee."""
        ratio = self._worst_ratio()
        if not certainly_at_most(ratio, self.epsilon):
            raise InvalidInput(
                f"{self.name}: the integers give epsilon {log_upper(ratio):.6g}, "
                f"more than the {self.epsilon:g} they were meant for"
            )

    @abstractmethod
    def _calibrate(self) -> None:
        """Check the domain; compute the exact integers that were left at zero."""

    @abstractmethod
    def _worst_ratio(self) -> Fraction:
        """Return the largest ratio of two inputs' probabilities of one code."""

    @property
    def realised_epsilon(self) -> float:
        """The smallest double certainly >= the epsilon of the exact integers; <= `epsilon`."""
        return log_upper(self._worst_ratio())

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

    @property
    def integers(self) -> dict[str, tuple[int, ...]]:
        """The exact integers a plan carries, by field name; a single one as a 1-tuple."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "epsilon"}
        return {name: v if isinstance(v, tuple) else (v,) for name, v in values.items()}

    @classmethod
    def from_integers(cls, epsilon: float, integers: Mapping[str, Sequence[int]]) -> Self:
        """Build a mechanism from the epsilon and the integers of a plan, as `integers` gives them.

        Raises `InvalidInput` for a missing or unknown integer, one outside its range, and for
        integers that exceed `epsilon`.
        """
        wanted = {f.name: f.type for f in fields(cls) if f.name != "epsilon"}
        if set(integers) != set(wanted):
            raise InvalidInput(
                f"{cls.name} takes the integers {sorted(wanted)}, got {sorted(integers)}"
            )
        arguments: dict[str, Any] = {"epsilon": epsilon}
        for name, values in integers.items():
            if not any(values):  # zero is how a constructor is asked to calibrate
                raise InvalidInput(f"{cls.name}: {name} must not be left out of a plan")
            if wanted[name] is int and len(values) != 1:
                raise InvalidInput(f"{cls.name}: {name} is one integer, got {len(values)}")
            arguments[name] = values[0] if wanted[name] is int else tuple(values)
        return cls(**arguments)

    # --- randomising -----------------------------------------------------------------------

    @abstractmethod
    def randomize(self, value: Any, coins: Coins) -> Any:
        """Return one code for `value`; raise `InvalidInput` outside the domain."""

    @abstractmethod
    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        """Return one code per value, independently: shape (n, *code_shape)."""

    # --- the wire --------------------------------------------------------------------------

    @property
    @abstractmethod
    def code_dtype(self) -> np.dtype[Any]:
        """The little-endian dtype of a code's entries."""

    @property
    def code_shape(self) -> tuple[int, ...]:
        """The shape of one code; () where a code is one integer."""
        return ()

    @property
    def code_bytes(self) -> int:
        """The bytes of one code on the wire: the same for every value."""
        return int(self.code_dtype.itemsize * np.prod(self.code_shape, dtype=int))

    @abstractmethod
    def _check_codes(self, codes: Codes) -> None:
        """Raise `InvalidInput` unless every code can come out of `randomize`."""

    def encode(self, codes: ArrayLike | Sequence[Any]) -> bytes:
        """Return the codes, shape (n, *code_shape), as n * code_bytes bytes.

        Raises `InvalidInput` unless each is possible.
        """
        array = self._as_codes(codes)
        self._check_codes(array)
        return array.tobytes()

    def encode_one(self, code: Any) -> bytes:
        """Return the bytes of one code that `randomize` returned, as `encode` does for many."""
        if self.code_shape or self.code_dtype.kind != "u":
            return self.encode([code])
        # An integer code needs no array, which would be most of a report's cost on a device.
        return int(code).to_bytes(self.code_dtype.itemsize, "little")

    def _as_codes(self, codes: ArrayLike | Sequence[Any]) -> Codes:
        """Return `codes` in `code_dtype`; raise `InvalidInput` unless they have a code's form."""
        dtype, shape = self.code_dtype, self.code_shape
        given = as_array(self.name, codes)
        if given.shape == (0,):
            return np.empty((0, *shape), dtype=dtype)
        array = given
        if given.dtype != dtype and given.dtype.kind in "ui" and dtype.kind == "u":
            array = given.astype(dtype)
            # A 64-bit number that changed its sign survives this, and then exceeds every bound.
            if array.astype(given.dtype).tobytes() != given.tobytes():
                raise InvalidInput(
                    f"a {self.name} code is made of integers in 0..{np.iinfo(dtype).max}, "
                    f"got {given.min()}..{given.max()}"
                )
        if array.dtype != dtype or not array.ndim or array.shape[1:] != shape:
            raise InvalidInput(
                f"{self.name} codes have the shape {('n', *shape)} and the type {dtype}, "
                f"got {given.shape} and {given.dtype}"
            )
        return array

    def decode(self, data: bytes, n: int) -> Codes:
        """Return the `n` codes in `data`, shape (n, *code_shape), without copying.

        Raises `InvalidInput` unless `data` holds exactly n codes, each one possible.
        """
        if len(data) != n * self.code_bytes:
            raise InvalidInput(
                f"{n} {self.name} codes take {n * self.code_bytes} bytes, got {len(data)}"
            )
        codes = np.frombuffer(data, dtype=self.code_dtype).reshape(n, *self.code_shape)
        self._check_codes(codes)
        return codes

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


def as_array(name: str, values: ArrayLike | Sequence[Any]) -> NDArray[Any]:
    """Return `values` as an array; raise `InvalidInput` where their lengths differ."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InvalidInput(f"{name}: a 1-d array is expected, got a list: {error}") from None


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
