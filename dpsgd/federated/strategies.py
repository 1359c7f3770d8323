"""How many clients take part in a round, and what the server does with their updates."""

from dataclasses import dataclass
from typing import ClassVar

from dpsgd.accounting.events import check_integer, check_rate
from dpsgd.federated.rules import check_rule
from dpsgd.federated.server_optimizers import SGD, Adam, ServerOptimizer, Yogi
from ldp import InvalidInput

WEIGHTS = "records", "equal"
_SGD, _ADAM, _YOGI = SGD(), Adam(), Yogi()


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """What all strategies have: a share of the clients, a rule, and the server's optimizer.

    A round takes `fraction_fit` of the clients, at least one. Raises `InvalidInput` unless
    0 < fraction_fit <= 1.
    """

    fraction_fit: float = 1.0
    optimizer: ServerOptimizer = _SGD

    rule: ClassVar[str]
    """The name of the rule in `dpsgd.federated.rules.RULES`."""

    def __post_init__(self) -> None:
        if not check_rate(self.fraction_fit):
            raise InvalidInput("fraction_fit must be > 0, got 0")
        check_integer("hostile", self.hostile_updates, 0)

    @property
    def hostile_updates(self) -> int:
        """How many updates of a round may be hostile, 0 where the rule need not know."""
        return 0

    def per_round(self, clients: int) -> int:
        """Return how many of the clients take part in a round.

        Raises `InvalidInput` where they are too few for the rule.
        """
        found = max(1, round(self.fraction_fit * clients))
        check_rule(self.rule, found, self.hostile_updates)
        return found


@dataclass(frozen=True, kw_only=True)
class FedAvg(Strategy):
    """Average the updates, and add the average to the model.

    `weights` are "records", the clients' numbers of records, or "equal". If None they are equal
    where the training is private, and the numbers of records otherwise: a private training cannot
    have those, which are the clients' own. `optimizer=SGD(1.0, momentum=0.9)` is FedAvgM.
    Source: McMahan et al., AISTATS 2017, algorithm 1.
    """

    weights: str | None = None
    rule: ClassVar[str] = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights not in (None, *WEIGHTS):
            raise InvalidInput(f"weights must be records, equal or None, got {self.weights!r}")


@dataclass(frozen=True, kw_only=True)
class FedAdam(FedAvg):
    """Average the updates, and step by FedAdam. Source: Reddi et al., ICLR 2021, algorithm 2."""

    optimizer: ServerOptimizer = _ADAM


@dataclass(frozen=True, kw_only=True)
class FedYogi(FedAvg):
    """Average the updates, and step by FedYogi. Source: Reddi et al., ICLR 2021, algorithm 2."""

    optimizer: ServerOptimizer = _YOGI


@dataclass(frozen=True, kw_only=True)
class FedMedian(Strategy):
    """Take the median of each coordinate: `dpsgd.federated.rules.median`."""

    rule: ClassVar[str] = "median"


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(Strategy):
    """Take nearly the geometric median: `dpsgd.federated.rules.geometric_median`."""

    rule: ClassVar[str] = "geometric_median"


@dataclass(frozen=True, kw_only=True)
class MedianNorm(Strategy):
    """Average updates clipped to their median norm: `dpsgd.federated.rules.median_norm`."""

    rule: ClassVar[str] = "median_norm"


@dataclass(frozen=True, kw_only=True)
class _Bearing(Strategy):
    hostile: int

    @property
    def hostile_updates(self) -> int:
        return self.hostile


@dataclass(frozen=True, kw_only=True)
class FedTrimmedAvg(_Bearing):
    """Average without the `hostile` largest and smallest: `dpsgd.federated.rules.trimmed_mean`."""

    rule: ClassVar[str] = "trimmed_mean"


@dataclass(frozen=True, kw_only=True)
class Krum(_Bearing):
    """Take the update with the nearest neighbours: `dpsgd.federated.rules.krum`."""

    rule: ClassVar[str] = "krum"


@dataclass(frozen=True, kw_only=True)
class MultiKrum(_Bearing):
    """Average all but the `hostile` updates of worst score: `dpsgd.federated.rules.multi_krum`."""

    rule: ClassVar[str] = "multi_krum"
