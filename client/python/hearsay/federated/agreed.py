"""What an app agreed to about a training: it holds whatever the server sends."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction

from hearsay.federated.declaration import (
    CentralNoise,
    LocalNoise,
    RecordLevel,
    SplitNoise,
    Training,
)
from hearsay.federated.parsing import parse
from hearsay.recording.trainings import Price, is_above
from hearsay.sealed import shares
from ldp import InvalidInput


@dataclass(frozen=True)
class Agreed:
    """The most that a training may cost a person, and the architectures that the app has code for.

    `rho` is the most rho of a whole training with central noise, or, with `helper_key`, of one that
    splits updates between the server and the helper of this key. `epsilon` is the most epsilon of
    all updates of one with local noise together, `record_level` the least noise multiplier of the
    device's own steps where records are protected and the person is not; None accepts no such
    training. `revision`, the hex SHA-256 of the training, accepts no other one.
    Raises `InvalidInput` where nothing is accepted, or a number is not finite and > 0.
    """

    training: str
    architectures: Collection[str]
    rho: float | None = None
    epsilon: float | None = None
    record_level: float | None = None
    revision: str | None = None
    helper_key: bytes | None = None

    def __post_init__(self) -> None:
        if not self.training or not self.architectures:
            raise InvalidInput(
                'give the training\'s name, and a step by architecture: steps={"2nn": step}'
            )
        bounds = {"rho": self.rho, "epsilon": self.epsilon, "record_level": self.record_level}
        for name, value in bounds.items():
            if isinstance(value, bool) or (value is not None and not 0 < value < math.inf):
                raise InvalidInput(f"{name} must be a finite number > 0, got {value!r}")
        if not any(bounds.values()):
            raise InvalidInput(
                "say the most that the training may spend: rho= where the server adds the noise, "
                "epsilon= where the device does, or record_level=, the least noise multiplier of "
                "the device's steps, where records are protected and the person is not"
            )

    def checked(self, data: bytes) -> Training:
        """Return the training that bytes declare; raise `InvalidInput` unless it was agreed to."""
        training = parse(data)
        if training.name != self.training:
            raise InvalidInput(f"asked for the training {self.training!r}, got {training.name!r}")
        if self.revision is not None and training.revision.hex() != self.revision:
            raise InvalidInput(
                f"expected revision {self.revision!r} of {self.training!r}, the server has "
                f"{training.revision.hex()}"
            )
        if training.architecture not in self.architectures:
            raise InvalidInput(
                f"{self.training!r} is of the architecture {training.architecture!r}; the app has "
                f"{', '.join(sorted(self.architectures))}"
            )
        self._check_protection(training)
        return training

    def _check_protection(self, training: Training) -> None:
        if self.helper_key is not None and not isinstance(training.protection, SplitNoise):
            raise InvalidInput(
                f"{self.training!r} does not split updates between two servers: leave helper_key= "
                "out if the app agrees to that"
            )
        match training.protection:
            case CentralNoise():
                assert training.rho is not None
                self._check("rho", "the whole training", training.rho, self.rho)
            case SplitNoise(helper_key=key):
                if self.helper_key is None:
                    raise InvalidInput(
                        f"{self.training!r} splits updates between two servers: give helper_key=, "
                        "the key that the helper's operator tells, and step_seconds="
                    )
                if key != self.helper_key:
                    raise InvalidInput(
                        f"{self.training!r} names the helper {key.hex()}, and the app "
                        f"{self.helper_key.hex()}"
                    )
                assert training.rho is not None
                self._check("rho", "the whole training", training.rho, self.rho)
                shares.check(training.splitting)
            case LocalNoise(mechanism):
                each = Fraction(mechanism.epsilon)
                self._check("epsilon", "all updates", training.participations * each, self.epsilon)
            case RecordLevel() as level:
                noise = float(level.noise_multiplier)
                if self.record_level is None:
                    raise InvalidInput(
                        f"{self.training!r} protects each record, and not the person; if that is "
                        "meant, pass record_level=, the least noise multiplier that the app accepts"
                    )
                if noise < self.record_level:  # as floats: 0.8 is 0.8, and not below it
                    raise InvalidInput(
                        f"{self.training!r} has a noise multiplier of {noise}; the app allows "
                        f"record_level={self.record_level} and above"
                    )

    def _check(self, name: str, of: str, cost: Fraction, most: float | None) -> None:
        if most is None or is_above(cost, most):
            allowed = "no such training" if most is None else f"{name}={most:g}"
            raise InvalidInput(
                f"{of} of {self.training!r} may spend {name} {float(cost):g}; the app allows "
                f"{allowed}"
            )


def price(training: Training) -> Price:
    """Return what a training costs a person."""
    protection = training.protection
    return Price(
        protection=protection.kind,
        rho=training.rho_billionths,
        epsilon=protection.mechanism.epsilon if isinstance(protection, LocalNoise) else 0.0,
        participations=training.participations,
        separation=training.separation,
    )
