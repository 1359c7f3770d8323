"""A training as values, which devices take part in and servers aggregate by.

Both sides build it from the same frozen bytes. Building it checks it: what a person spends is
computed again from the integers, so the server is not trusted with the account.
"""

import hashlib
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar, get_args

from google.protobuf.message import DecodeError

from hearsay.plans.canonical import check_canonical
from hearsay.plans.plan import mechanism_message
from hearsay.plans.texts import check_name, check_text
from hearsay.v1 import plan_pb2, training_pb2
from ldp import InvalidInput, SphereCodebook, build_vector
from ldp.planning import prefix_sums
from ldp.planning.prefix_sums import PrefixSums

MOST_ROUNDS = prefix_sums.MOST_ROUNDS
MOST_PARAMETERS = 1 << 26
"""Parameters of a model: 256 MiB of float32."""

MOST_UPDATES = 1_000_000
MOST_SECONDS = 366 * 86_400
MOST_EPOCHS = 1_000
MOST_RHO = 1_000_000
"""A training that spends more has a typing error in its noise."""

UNIT = 1_000_000
"""A noise multiplier is an integer of millionths: this many are 1."""

BILLION = 1_000_000_000
"""A training's rho is an integer of billionths: this many are 1."""

_MOST_BYTES = 1 << 16
"""Of a training: its text is short, and its mechanism has few integers."""

_NORMS = (1e-6, 1e6)
_BITS = (2, 16)

ROBUST = ("median", "trimmed_mean", "krum", "multi_krum", "geometric_median", "median_norm")
"""Rules that read updates one by one."""

RULES = ("mean", *ROBUST)
OPTIMIZERS = ("sgd", "adam", "yogi")
ENCODINGS = ("float32", "quantized")
_MECHANISMS = get_args(PrefixSums)
_LOCAL = "sphere_codebook"

_LEAST_FACTOR = {"trimmed_mean": (2, 1), "krum": (2, 3), "multi_krum": (2, 3)}
"""By rule that needs to know `hostile`: it needs factor * hostile + more updates."""

_ARCHITECTURE = re.compile(r"[a-z0-9][a-z0-9_]{0,63}")


@dataclass(frozen=True)
class LocalTraining:
    """What a device does with its data: SGD for `epochs` passes; `batch_size` 0 is all records.

    `proximal` is the mu of FedProx's term (Li et al., MLSys 2020, equation 2); 0 is none.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    momentum: float
    proximal: float


@dataclass(frozen=True)
class Aggregation:
    """What the server does with the updates of a round.

    `hostile` is how many of them may be, for the rules that need it, else 0. `momentum` is that of
    the optimizer "sgd", and the first beta of "adam" and "yogi".
    """

    rule: str
    hostile: int
    optimizer: str
    learning_rate: float
    momentum: float


@dataclass(frozen=True)
class Encoding:
    """How a device writes an update: `bits` is 0 for float32, `coordinates` 0 for all of them."""

    kind: str
    bits: int
    coordinates: int


@dataclass(frozen=True)
class CentralNoise:
    """The server adds noise that is correlated over rounds; `bands` is 0 for the tree."""

    kind: ClassVar[str] = "central"
    mechanism: PrefixSums
    bands: int
    noise_multiplier_millionths: int

    @property
    def noise_multiplier(self) -> Fraction:
        """The noise's standard deviation over `max_update_norm`, at sensitivity one."""
        return Fraction(self.noise_multiplier_millionths, UNIT)


@dataclass(frozen=True)
class LocalNoise:
    """The device sends one code of a pure mechanism for each update."""

    kind: ClassVar[str] = "local_noise"
    mechanism: SphereCodebook


@dataclass(frozen=True)
class RecordLevel:
    """The device trains with DP-SGD on its own records: it clips gradients to `max_grad_norm`."""

    kind: ClassVar[str] = "record_level"
    noise_multiplier_millionths: int
    max_grad_norm: float

    @property
    def noise_multiplier(self) -> Fraction:
        """The noise's standard deviation over `max_grad_norm`."""
        return Fraction(self.noise_multiplier_millionths, UNIT)


Protection = CentralNoise | LocalNoise | RecordLevel
"""`kind` is its name in a training's file, its bytes, a device's ledger and JSON."""


@dataclass(frozen=True)
class Training:
    """A declared training of one model, checked. `parse` builds it.

    Guarantee, by `protection`, for a device that keeps `participations` and `separation`, and
    updates of an L2 norm of at most `max_update_norm`:
    - `CentralNoise`: all models of the training together are `rho`-zCDP for one person's updates
      against zeros in their place (four times that for other updates in their place), if the
      server adds the noise that it declares and shows nobody the updates. Nothing is promised
      against the server.
    - `LocalNoise`: each update is `epsilon_per_update`-LDP, whoever reads it.
    - `RecordLevel`: nothing for the person; each record has what the device's own account says.
    How many took part in a round is not protected.
    """

    name: str
    title: str
    architecture: str
    initial: bytes
    dimension: int
    rounds: int
    round_seconds: int
    updates_per_round: int
    min_updates: int
    participations: int
    separation: int
    local: LocalTraining
    max_update_norm: float
    aggregation: Aggregation
    encoding: Encoding | None
    """None under `LocalNoise`, whose code is the payload."""
    protection: Protection
    revision: bytes

    @cached_property
    def rho(self) -> Fraction | None:
        """The zCDP of the whole training for one person's updates against zeros in their place,
        rounded up to billionths; None where the server adds no noise."""
        if not isinstance(self.protection, CentralNoise):
            return None
        exact = prefix_sums.rho(
            self.protection.mechanism,
            self.rounds,
            self.protection.bands,
            self.participations,
            self.separation,
            self.protection.noise_multiplier,
        )
        return Fraction(math.ceil(exact * BILLION), BILLION)

    @property
    def rho_billionths(self) -> int:
        """The integer that a ledger stores: `rho` in billionths; 0 where there is none."""
        return 0 if self.rho is None else int(self.rho * BILLION)

    @property
    def epsilon_per_update(self) -> float | None:
        """The pure epsilon of one update, whoever reads it; None without local noise."""
        if isinstance(self.protection, LocalNoise):
            return self.protection.mechanism.realised_epsilon
        return None

    @property
    def trusted(self) -> str:
        """Who must be honest for what is promised: "server" or "nobody"."""
        return "server" if isinstance(self.protection, CentralNoise) else "nobody"

    @property
    def trust(self) -> str:
        """What a person is promised, by what, and who must be honest for it: for people."""
        match self.protection:
            case CentralNoise():
                assert self.rho is not None
                return (
                    f"The server reads every update. All models together are {float(self.rho):.4g}-"
                    "zCDP for one person's updates against zeros in their place, if the server is "
                    "honest: it must add the noise that it declares and show nobody the updates. "
                    "Against the server itself nothing is promised."
                )
            case LocalNoise():
                return (
                    f"Each update is randomised on the device: epsilon "
                    f"{self.epsilon_per_update:.4g} for one update, whoever reads it. Nobody has "
                    "to be honest for that but the app on the device."
                )
            case RecordLevel():
                return (
                    "Each single record on the device is protected by noise in the device's own "
                    "steps, whoever reads the update. The person is not: an update may tell what "
                    "their records have in common. Nobody has to be honest for that but the app on "
                    "the device."
                )


@lru_cache(maxsize=64)
def parse(data: bytes) -> Training:
    """Build a training from its frozen bytes, and check it.

    Raises `InvalidInput`, naming the field:
    - where the bytes are no training, are not the canonical serialisation of their training, or
      have fields that this version does not know, as `hearsay.plans.plan.parse` does;
    - where a name, a size, a norm or a rate is outside its limits;
    - where nobody could take part `participations` times, `separation` rounds apart;
    - where the rule does not go with the protection, or needs more updates than `min_updates`;
    - where a local mechanism does not keep its epsilon or has another dimension.
    """
    if len(data) > _MOST_BYTES:
        raise InvalidInput(f"a training has at most {_MOST_BYTES} bytes, got {len(data)}")
    try:
        wire = training_pb2.Training.FromString(data)
    except DecodeError as error:
        raise InvalidInput(f"these {len(data)} bytes are no training") from error
    check_canonical(wire, data, "training")
    check_name("name", wire.name)
    check_text("title", wire.title)
    if not _ARCHITECTURE.fullmatch(wire.architecture):
        raise InvalidInput(
            'architecture: expected lower-case letters, digits or "_", at most 64 in all, '
            f"got {wire.architecture!r}"
        )
    if len(wire.initial) != 32:
        raise InvalidInput(
            f"initial: expected the 32 bytes of a SHA-256, got {len(wire.initial)} bytes"
        )
    _check_sizes(wire)
    protection = _protection(wire)
    training = Training(
        name=wire.name,
        title=wire.title,
        architecture=wire.architecture,
        initial=wire.initial,
        dimension=wire.dimension,
        rounds=wire.rounds,
        round_seconds=wire.round_seconds,
        updates_per_round=wire.updates_per_round,
        min_updates=wire.min_updates,
        participations=wire.participations,
        separation=wire.separation,
        local=_local(wire),
        max_update_norm=_within("max_update_norm", wire.max_update_norm, *_NORMS),
        aggregation=_aggregation(wire, protection),
        encoding=_encoding(wire, protection),
        protection=protection,
        revision=hashlib.sha256(data).digest(),
    )
    if training.rho is not None and training.rho > MOST_RHO:
        raise InvalidInput(
            f"central: the training spends rho {float(training.rho):.3g}, more than {MOST_RHO:,}: "
            "declare a larger noise_multiplier or fewer participations"
        )
    return training


def _check_sizes(wire: training_pb2.Training) -> None:
    _count("dimension", wire.dimension, 1, MOST_PARAMETERS)
    _count("rounds", wire.rounds, 1, MOST_ROUNDS)
    _count("round_seconds", wire.round_seconds, 1, MOST_SECONDS)
    _count("updates_per_round", wire.updates_per_round, 1, MOST_UPDATES)
    _count("min_updates", wire.min_updates, 1, wire.updates_per_round, "updates_per_round")
    _count("participations", wire.participations, 1, wire.rounds, "rounds")
    _count("separation", wire.separation, 1, wire.rounds, "rounds")
    needed = 1 + (wire.participations - 1) * wire.separation
    if needed > wire.rounds:
        raise InvalidInput(
            f"participations: {wire.participations} of them, {wire.separation} rounds apart, need "
            f"{needed:,} rounds, and rounds is {wire.rounds:,}: declare fewer participations, a "
            "smaller separation or more rounds"
        )


def _local(wire: training_pb2.Training) -> LocalTraining:
    if not wire.HasField("local"):
        raise InvalidInput("local: expected what a device does with its data, such as epochs = 1")
    local = wire.local
    return LocalTraining(
        epochs=_count("local.epochs", local.epochs, 1, MOST_EPOCHS),
        batch_size=local.batch_size,
        learning_rate=_positive("local.learning_rate", local.learning_rate),
        momentum=_momentum("local.momentum", local.momentum),
        proximal=_within("local.proximal", local.proximal, 0.0, 1e6),
    )


def _aggregation(wire: training_pb2.Training, protection: Protection) -> Aggregation:
    if not wire.HasField("aggregation"):
        raise InvalidInput('aggregation: expected what the server does, such as rule = "mean"')
    given = wire.aggregation
    _one_of("aggregation.rule", given.rule, RULES)
    _one_of("aggregation.optimizer", given.optimizer, OPTIMIZERS)
    if given.rule != "mean" and not isinstance(protection, RecordLevel):
        raise InvalidInput(
            f'aggregation.rule: {given.rule!r} goes with record_level alone, and "mean" with '
            f"{protection.kind}: {_WHY_MEAN[type(protection)]}"
        )
    factor, more = _LEAST_FACTOR.get(given.rule, (0, 0))
    if not factor and given.hostile:
        raise InvalidInput(
            f"aggregation.hostile: {given.rule!r} does not use it: leave it out, got "
            f"{given.hostile}"
        )
    if factor and not given.hostile:
        raise InvalidInput(
            f"aggregation.hostile: {given.rule!r} needs to know how many updates of a round may be "
            "hostile, at least 1"
        )
    if wire.min_updates < factor * given.hostile + more:
        raise InvalidInput(
            f"aggregation.hostile: against {given.hostile} hostile updates {given.rule!r} needs "
            f"at least {factor * given.hostile + more} in a round, and min_updates is "
            f"{wire.min_updates}"
        )
    return Aggregation(
        rule=given.rule,
        hostile=given.hostile,
        optimizer=given.optimizer,
        learning_rate=_positive("aggregation.learning_rate", given.learning_rate),
        momentum=_momentum("aggregation.momentum", given.momentum),
    )


def _encoding(wire: training_pb2.Training, protection: Protection) -> Encoding | None:
    if isinstance(protection, LocalNoise):
        if wire.HasField("encoding"):
            raise InvalidInput(
                "encoding: leave it out with local_noise: a device sends the mechanism's code"
            )
        return None
    if not wire.HasField("encoding"):
        raise InvalidInput('encoding: expected how updates are written, such as kind = "float32"')
    given = wire.encoding
    _one_of("encoding.kind", given.kind, ENCODINGS)
    if given.kind == "quantized":
        _count("encoding.bits", given.bits, *_BITS)
    elif given.bits:
        raise InvalidInput(f'encoding.bits: goes with kind = "quantized" alone, got {given.bits}')
    if given.coordinates >= wire.dimension:
        raise InvalidInput(
            f"encoding.coordinates: expected fewer than the {wire.dimension:,} of the model, or 0 "
            f"for all, got {given.coordinates:,}"
        )
    return Encoding(given.kind, given.bits, given.coordinates)


_WHY_MEAN = {
    CentralNoise: "one update can change another rule's outcome by more than the noise hides",
    LocalNoise: "single updates are nearly all noise, which other rules would take for hostile",
}


def _protection(wire: training_pb2.Training) -> Protection:
    match wire.WhichOneof("protection"):
        case "central":
            return _central(wire)
        case "local_noise":
            return LocalNoise(_mechanism(wire))
        case "record_level":
            given = wire.record_level
            return RecordLevel(
                _noise("record_level", given.noise_multiplier_millionths),
                _within("record_level.max_grad_norm", given.max_grad_norm, *_NORMS),
            )
        case _:
            raise InvalidInput("protection: expected one of central, local_noise and record_level")


def _central(wire: training_pb2.Training) -> CentralNoise:
    given = wire.central
    _one_of("central.mechanism", given.mechanism, _MECHANISMS)
    if given.mechanism == "toeplitz":
        _count("central.bands", given.bands, 1, wire.rounds, "rounds")
    elif given.bands:
        raise InvalidInput(f'central.bands: goes with "toeplitz" alone, got {given.bands}')
    noise = _noise("central", given.noise_multiplier_millionths)
    mechanism: PrefixSums = "tree" if given.mechanism == "tree" else "toeplitz"
    return CentralNoise(mechanism, given.bands, noise)


def _mechanism(wire: training_pb2.Training) -> SphereCodebook:
    given: plan_pb2.Mechanism = wire.local_noise.mechanism
    place = "local_noise.mechanism"
    _one_of(place, given.name, (_LOCAL,))
    integers = {each.name: tuple(each.values) for each in given.parameters}
    try:
        mechanism = build_vector(given.name, given.epsilon, integers)
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from None
    if mechanism_message(mechanism) != given:
        raise InvalidInput(f"{place}: expected each parameter once, sorted by name")
    if mechanism.dimension != wire.dimension:
        raise InvalidInput(
            f"{place}: it is for updates of dimension {mechanism.dimension}, and dimension is "
            f"{wire.dimension}"
        )
    return mechanism


def _noise(place: str, millionths: int) -> int:
    return _count(f"{place}.noise_multiplier_millionths", millionths, 1, 1_000_000 * UNIT)


def _one_of(place: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise InvalidInput(f"{place}: expected one of {', '.join(known)}, got {given!r}")


def _count(place: str, given: int, low: int, high: int, meaning: str = "") -> int:
    if not low <= given <= high:
        limit = f"{meaning}, which is {high:,}" if meaning else f"{high:,}"
        raise InvalidInput(f"{place}: expected {low:,} to {limit}, got {given:,}")
    return given


def _within(place: str, given: float, low: float, high: float) -> float:
    if not low <= given <= high:  # which nan does not
        raise InvalidInput(f"{place}: expected a number of {low:g} to {high:g}, got {given!r}")
    return given


def _positive(place: str, given: float) -> float:
    if not (math.isfinite(given) and 0 < given <= 1e6):
        raise InvalidInput(f"{place}: expected a number > 0 and at most 1e6, got {given!r}")
    return given


def _momentum(place: str, given: float) -> float:
    if not 0 <= given < 1:
        raise InvalidInput(f"{place}: expected a number >= 0 and < 1, got {given!r}")
    return given
