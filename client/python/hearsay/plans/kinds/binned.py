"""Answers that are numbers of which only the bin is collected, or two such numbers together."""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import ClassVar

from hearsay.plans.bins import Bins
from hearsay.plans.kinds.kind import Kind
from hearsay.plans.kinds.number import check_scale, number_in
from hearsay.v1 import survey_pb2
from ldp import Coins, InvalidInput, Mechanism
from ldp.mechanisms.ranges.waves import MAX_BINS, Waves


@dataclass(frozen=True)
class Binned(Kind):
    """An answer that is a number in [low, high], of which only its bin is collected.

    There are `count` bins, of equal width unless they have `edges`; with `clamp`, numbers outside
    move to the nearer end. Raises `InvalidInput` for a range that is none, and as `Bins`.
    """

    name: ClassVar[str] = "bins"
    field: ClassVar[str] = "numeric"

    joins: ClassVar[bool] = True

    step: ClassVar[float] = 0.0
    """There are no points."""

    low: float
    high: float
    clamp: bool
    count: int
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_scale(self.low, self.high)
        _ = self.points  # refused here, where the place is known

    @classmethod
    def of(cls, given: survey_pb2.Numeric) -> "Binned":
        """Return the kind that a survey describes; raise `InvalidInput` where it is none."""
        if given.edges and (given.low or given.high or given.bins):
            raise InvalidInput("edges are in the place of low, high and bins: leave these out")
        if given.step:
            raise InvalidInput("give bins or a step, not both")
        if given.sensitive or given.resolution or given.cap:
            raise InvalidInput(
                "numbers in bins are all protected alike: give bins, or sensitive regions or a "
                "resolution, not both"
            )
        if given.edges:
            return cls.between(tuple(given.edges), given.clamp)
        return cls(given.low, given.high, given.clamp, given.bins)

    @classmethod
    def between(cls, edges: tuple[float, ...], clamp: bool) -> "Binned":
        """Return the bins between these edges; raise `InvalidInput` where there are none."""
        return cls(edges[0], edges[-1], clamp, len(edges) - 1, edges)

    @cached_property
    def points(self) -> Bins:
        """The bins, which distributions are estimated over as over points."""
        return Bins(self.low, self.high, self.count, self.edges)

    def points_in(self, step: float | None = None) -> Bins:
        if step is not None:
            raise InvalidInput(f"was collected in bins: leave the step out, got {step:g}")
        return self.points

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the numbers that are estimated."""
        return tuple(self.points.label(index, index + 1) for index in range(self.count))

    @property
    def sides(self) -> tuple[int]:
        """The number of bins, as `Grid` has two."""
        return (self.count,)

    def encode(self, answer: object) -> int:
        """Return the bin of `answer`; raise `InvalidInput` as `Numeric.encode`."""
        return self.points.at_or_below(number_in(answer, self.low, self.high, self.clamp))

    def anything(self, coins: Coins) -> int:
        """Return a value drawn uniformly from the domain, as `encode` returns values."""
        return coins.below(self.count)

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g} in {self.count} bins"

    @property
    def mechanisms(self) -> type[Mechanism]:
        """The class of mechanisms that randomise bins."""
        return Waves

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for these bins."""
        if not isinstance(mechanism, Waves) or mechanism.sides != (self.count,):
            raise InvalidInput(f"{mechanism.name} does not fit {self.count} bins")


@dataclass(frozen=True)
class Grid(Kind):
    """Two numbers of which only the bins are collected, as one of the rectangles that these make.

    A rectangle is numbered columns r + c for bin r of the first number and bin c of the second.
    Raises `InvalidInput` where there are more than `MAX_BINS`.
    """

    name: ClassVar[str] = "grid"
    field: ClassVar[str] = "categorical"

    first: Binned
    second: Binned

    def __post_init__(self) -> None:
        if self.first.count * self.second.count > MAX_BINS:
            raise InvalidInput(
                f"two numbers have at most {MAX_BINS} rectangles of bins together, got "
                f"{self.first.count} x {self.second.count} = {self.first.count * self.second.count}"
            )

    @property
    def sides(self) -> tuple[int, int]:
        """The numbers of bins."""
        return self.first.count, self.second.count

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the numbers that are estimated."""
        return tuple(map(", ".join, product(self.first.labels, self.second.labels)))

    def anything(self, coins: Coins) -> int:
        """Return a rectangle drawn uniformly."""
        return coins.below(self.first.count * self.second.count)

    def __str__(self) -> str:
        return f"{self.first} by {self.second}"

    @property
    def mechanisms(self) -> type[Mechanism]:
        """The class of mechanisms that randomise rectangles."""
        return Waves

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for these rectangles."""
        if not isinstance(mechanism, Waves) or mechanism.sides != self.sides:
            rows, columns = self.sides
            raise InvalidInput(f"{mechanism.name} does not fit {rows} x {columns} bins")
