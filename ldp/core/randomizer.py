"""A local randomizer: one frozen value that both sides of the wire share.

It is built either from an epsilon, and then computes its exact integers, or from the integers that
a plan or a training carries, and then checks that they keep the epsilon.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.coins import Coins
from ldp.core.exact import ONE, certainly_at_most, check_epsilon, log_upper
from ldp.errors import InvalidInput

Codes = NDArray[Any]
"""Randomised answers, one per row: shape (n, *code_shape), dtype `code_dtype`."""


class Randomizer(ABC):
    """An epsilon-LDP local randomizer: its integers, its privacy, its codes as bytes.

    Every subclass is a frozen dataclass whose fields besides `epsilon` are integers or tuples
    of integers. `epsilon` is the requested one; `realised_epsilon` is the one that the integers
    give, never more. What estimates are made of the codes is a subclass's own: `Mechanism` is for
    answers to the questions of a survey.
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


def as_array(name: str, values: ArrayLike | Sequence[Any]) -> NDArray[Any]:
    """Return `values` as an array; raise `InvalidInput` where their lengths differ."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InvalidInput(f"{name}: a 1-d array is expected, got a list: {error}") from None
