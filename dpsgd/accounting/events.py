"""Events of an accountant: releases, sampling of the records, and the neighboring relation."""

import contextlib
import enum
import math
import sys
from dataclasses import dataclass, field
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np

from ldp import InvalidInput, Mechanism
from ldp.core.channel import Channel as FiniteChannel
from ldp.core.losses import Losses, bounded, losses_of

ROUNDED_UP = 1 + 1e-9
"""Factor by which figures are rounded up: far more than the error of quadrature and doubles."""

_LEAST, _MOST = math.ulp(0.0), sys.float_info.max

_bounded = lru_cache(maxsize=256)(bounded)


class Relation(enum.Enum):
    """The neighboring relation: the pairs of data sets that a guarantee is about.

    A figure under one relation says nothing about another: nothing here converts between them.
    """

    ADD_REMOVE = "add_remove"
    """One record more or less. A record moves a clipped sum by max_grad_norm at most."""
    REPLACE_ONE = "replace_one"
    """One record exchanged for any other: twice max_grad_norm. The size is public."""
    REPLACE_SPECIAL = "replace_special"
    """One record exchanged for a blank that adds nothing: max_grad_norm. The size is public."""

    @property
    def sensitivity(self) -> float:
        """The sensitivity of a clipped sum, in units of max_grad_norm."""
        return 2.0 if self is Relation.REPLACE_ONE else 1.0

    def expect(self, what: str, *valid: "Relation", why: str = "") -> None:
        """Raise `InvalidInput` where `what` has no guarantee under this relation."""
        if self not in valid:
            names = " or ".join(relation.name for relation in valid)
            raise InvalidInput(f"{what} is accounted for under {names}, not under {self.name}{why}")


@dataclass(frozen=True)
class PoissonSampling:
    """Take each record with probability `rate`, independently of all others.

    Raises `InvalidInput` unless 0 <= rate <= 1.
    """

    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", check_rate(self.rate))


@dataclass(frozen=True)
class FixedSizeSampling:
    """Take `batch` of `dataset` records uniformly without replacement, afresh for each step.

    Batches of a shuffled pass are NOT this: they are drawn from the rest.
    Raises `InvalidInput` unless 0 <= batch <= dataset and dataset >= 1.
    """

    batch: int
    dataset: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", check_integer("batch", self.batch, 0))
        object.__setattr__(self, "dataset", check_integer("dataset", self.dataset, 1))
        if self.batch > self.dataset:
            raise InvalidInput(f"batch must be at most dataset ({self.dataset}), got {self.batch}")

    @property
    def rate(self) -> float:
        """The probability that a record is in a batch."""
        return self.batch / self.dataset


@dataclass(frozen=True)
class NoSampling:
    """Use every record in every step."""

    rate: ClassVar[float] = 1.0


Sampling = PoissonSampling | FixedSizeSampling | NoSampling

_SAMPLINGS: dict[str, tuple[type[Sampling], tuple[Relation, ...]]] = {
    "poisson": (PoissonSampling, (Relation.ADD_REMOVE, Relation.REPLACE_SPECIAL)),
    "fixed_size": (FixedSizeSampling, (Relation.REPLACE_ONE,)),
    "none": (NoSampling, tuple(Relation)),
}


@dataclass(frozen=True)
class Event:
    """`steps` releases of a clipped sum with Gaussian noise.

    `noise_multiplier` is the noise's standard deviation over max_grad_norm, for every relation.
    Raises `InvalidInput` unless it is finite and > 0, and steps an integer >= 0.
    """

    noise_multiplier: float
    sampling: Sampling
    steps: int

    def __post_init__(self) -> None:
        noise = check_positive("noise_multiplier", self.noise_multiplier)
        object.__setattr__(self, "noise_multiplier", noise)
        if not isinstance(self.sampling, Sampling):
            raise InvalidInput(f"sampling must be {Sampling}, got {self.sampling!r}")
        object.__setattr__(self, "steps", check_integer("steps", self.steps, 0))

    @property
    def silent(self) -> bool:
        """Whether no release depends on the data: no steps, or a sampling rate of 0."""
        return self.steps == 0 or self.sampling.rate == 0

    def check_relation(self, relation: Relation) -> None:
        """Raise `InvalidInput` where the sampling has no guarantee under the relation."""
        cls = type(self.sampling)
        relation.expect(cls.__name__, *dict(_SAMPLINGS.values())[cls])

    def noise_per_difference(self, relation: Relation) -> float:
        """Return the noise's standard deviation over the distance of neighbouring sums."""
        return self.noise_multiplier / relation.sensitivity

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        kind = next(name for name, (cls, _) in _SAMPLINGS.items() if cls is type(self.sampling))
        return {**vars(self), "sampling": {"kind": kind, **vars(self.sampling)}}


@dataclass(frozen=True)
class Unsampled:
    """`steps` releases of every record by a mechanism other than Gaussian noise."""

    steps: int = field(default=1, kw_only=True)
    sampling: ClassVar[Sampling] = NoSampling()
    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type["Unsampled"]]] = {}

    def __init_subclass__(cls) -> None:
        Unsampled.kinds[cls.kind] = cls

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", check_integer("steps", self.steps, 0))

    def dominating(self) -> Losses:
        """Return privacy losses that dominate one release, of any two neighbours."""
        raise NotImplementedError

    def divergence(self, excess: float) -> float:
        """Return the Rényi divergence of order 1 + excess of one release, rounded up.

        At most the losses' epsilon; infinite where some output rules a neighbour out.
        """
        losses = self.dominating()
        if losses.certain:
            return math.inf
        masses = np.array(losses.masses)
        at = excess * losses.unit * (losses.lowest + np.arange(masses.size))
        if (top := float(at.max())) > 30:
            moment = top + math.log(float(masses @ np.exp(at - top)))
        else:  # what rounding added to the masses stays: it is beside the losses, however small
            moment = math.log1p(float(masses @ np.expm1(at)) + max(0.0, math.fsum(masses) - 1))
        return min(losses.epsilon, moment / excess * ROUNDED_UP)

    def check_relation(self, relation: Relation) -> None:
        """Raise `InvalidInput` where the release has no guarantee under the relation."""

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        return {"kind": self.kind, **vars(self)}


@dataclass(frozen=True)
class Pure(Unsampled):
    """A release of which no more is known than that it is `epsilon`-DP under the relation.

    Its divergences are those of binary randomised response, of which every epsilon-DP release is
    a randomisation. Of a Poisson sample, under add and remove, the epsilon is
    `composition.amplified`'s. Raises `InvalidInput` unless 0 < epsilon <= 32.
    Source: Kairouz, Oh and Viswanath, ICML 2015, theorem 3.3 and its proof.
    """

    kind = "pure"
    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        self.dominating()

    def dominating(self) -> Losses:
        return _bounded(self.epsilon)


@dataclass(frozen=True)
class Laplace(Unsampled):
    """A release with Laplace noise of scale `noise_multiplier` times its L1 sensitivity.

    The sensitivity is that under the accountant's relation: no factor of two is added for
    replacement. Discrete Laplace noise is `Pure`, which is exact for a sensitivity of one step.
    Raises `InvalidInput` unless noise_multiplier is finite and > 1/32.
    Source: Mironov, "Rényi differential privacy", CSF 2017, proposition 6.
    """

    kind = "laplace"
    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        noise = check_positive("noise_multiplier", self.noise_multiplier)
        object.__setattr__(self, "noise_multiplier", noise)
        self.dominating()

    def dominating(self) -> Losses:
        return _bounded(math.nextafter(1 / self.noise_multiplier, math.inf))

    def divergence(self, excess: float) -> float:
        epsilon = self.dominating().epsilon
        ahead, behind = excess * epsilon, -(1 + excess) * epsilon
        if ahead > 30:
            moment = ahead + math.log((1 + excess) / (1 + 2 * excess)) + 1e-12
        else:  # the two weights sum to one, so that nothing cancels for orders near 1
            rest = (1 + excess) * math.expm1(ahead) + excess * math.expm1(behind)
            moment = math.log1p(rest / (1 + 2 * excess))
        return min(epsilon, moment / excess * ROUNDED_UP)


@dataclass(frozen=True)
class Channel(Unsampled):
    """A report of each record through a channel: an `ldp` mechanism, its `channel()`, or `Losses`.

    What is kept are the losses that dominate it for any two inputs. Accounted for under
    REPLACE_ONE: whether somebody reported is not hidden. Raises `InvalidInput` for a mechanism of
    which one epsilon does not hold for every pair of inputs (policies, memos, the Gaussian).
    """

    kind = "channel"
    mechanism: Mechanism | FiniteChannel | Losses

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.mechanism, Mechanism) and self.mechanism.guarantee != "pure":
            raise InvalidInput(
                f"{self.mechanism.name} does not keep one epsilon for every pair of inputs in all "
                "it reports"
            )
        object.__setattr__(self, "mechanism", losses_of(self.mechanism))

    def dominating(self) -> Losses:
        return losses_of(self.mechanism)

    def check_relation(self, relation: Relation) -> None:
        why = ": a report hides the answer, not whether there is one"
        relation.expect("Channel", Relation.REPLACE_ONE, why=why)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"mechanism": vars(self.dominating())}


def event_of(document: dict[str, Any]) -> Event | Unsampled:
    """Return the event that `to_dict` wrote; raises `InvalidInput` for anything else."""
    try:
        fields = dict(document)
        if "kind" not in fields:
            sampling = dict(fields["sampling"])
            cls, _ = _SAMPLINGS[sampling.pop("kind")]
            return Event(fields["noise_multiplier"], cls(**sampling), fields["steps"])
        if "mechanism" in fields:
            losses = dict(fields["mechanism"])
            fields["mechanism"] = Losses(**losses | {"masses": tuple(losses["masses"])})
        event = Unsampled.kinds[fields.pop("kind")](**fields)
        event.divergence(1.0)
        return event
    except InvalidInput:
        raise
    except (KeyError, TypeError, ValueError):
        raise InvalidInput(f"not an event of an accountant: {document!r}") from None


def check_positive(name: str, value: float) -> float:
    """Return a finite number > 0 of any type as a float; refuse anything else."""
    return _within(name, value, _LEAST, _MOST, "be finite and > 0")


def check_rate(rate: float) -> float:
    """Return a number in [0, 1] as a float; refuse anything else."""
    return _within("sampling rate", rate, 0, 1, "lie in [0, 1]")


def check_delta(delta: float) -> float:
    """Return a number in (0, 1) as a float; refuse anything else."""
    return _within("delta", delta, _LEAST, math.nextafter(1, 0), "lie strictly between 0 and 1")


def check_epsilon(epsilon: float) -> float:
    """Return a finite number >= 0 as a float; refuse anything else."""
    return _within("epsilon", epsilon, 0, _MOST, "be finite and >= 0")


def check_integer(name: str, value: int, least: int) -> int:
    """Return an integer >= `least` as an int; refuse anything else."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidInput(f"{name} must be an integer >= {least}, got {shown(value)}")
    return int(value)


def _within(name: str, value: float, low: float, high: float, wanted: str) -> float:
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # an integer beyond all floats
            number = float(value)
    if not low <= number <= high:
        raise InvalidInput(f"{name} must {wanted}, got {shown(value)}")
    return number


def shown(value: object) -> str:
    """Return a value as an error shows it, cut short."""
    try:
        return f"{value!r:.200}"
    except ValueError:  # an integer of more digits than Python writes
        return f"a {type(value).__name__}"
