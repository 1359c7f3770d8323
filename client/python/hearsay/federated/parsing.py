"""A training from its frozen bytes, checked.

What a person spends is computed again from the integers, so the server is not trusted with the
account.
"""

import hashlib
import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import get_args

from google.protobuf.message import DecodeError

from hearsay.federated.declaration import (
    UNIT,
    Aggregation,
    CentralNoise,
    Encoding,
    LocalNoise,
    LocalTraining,
    Protection,
    RecordLevel,
    SplitNoise,
    Training,
)
from hearsay.plans.canonical import check_canonical
from hearsay.plans.plan import mechanism_message
from hearsay.plans.texts import check_name, check_text
from hearsay.plans.two_servers import MOST, check_keys
from hearsay.plans.two_servers import UNIT as VARIANCE_UNIT
from hearsay.v1 import plan_pb2, training_pb2
from ldp import InvalidInput, SphereCodebook, build_vector
from ldp.planning.prefix_sums import MOST_ROUNDS, PrefixSums
from ldp.two_servers import shares, skellam

MOST_PARAMETERS = 1 << 26
"""Parameters of a model: 256 MiB of float32."""

MOST_UPDATES = 1_000_000
MOST_SECONDS = 366 * 86_400
MOST_EPOCHS = 1_000
MOST_SHARE = 3 << 20
"""Bytes of a share of an update: a call to the helper has at most 4 MiB."""

MOST_SCALE = 1e9

MOST_RHO = 1_000_000
"""A training that spends more has a typing error in its noise."""

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
            f"{protection.kind}: the training spends rho {float(training.rho):.3g}, more than "
            f"{MOST_RHO:,}: declare more noise or fewer participations"
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
    if isinstance(protection, LocalNoise | SplitNoise):
        if wire.HasField("encoding"):
            what = "two shares" if isinstance(protection, SplitNoise) else "the mechanism's code"
            raise InvalidInput(
                f"encoding: leave it out with {protection.kind}: a device sends {what}"
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
    SplitNoise: "nobody can read single updates",
}


def _protection(wire: training_pb2.Training) -> Protection:
    match wire.WhichOneof("protection"):
        case "central":
            return _central(wire)
        case "local_noise":
            return LocalNoise(_mechanism(wire))
        case "two_servers":
            return _split(wire)
        case "record_level":
            given = wire.record_level
            return RecordLevel(
                _noise("record_level", given.noise_multiplier_millionths),
                _within("record_level.max_grad_norm", given.max_grad_norm, *_NORMS),
            )
        case _:
            raise InvalidInput(
                "protection: expected one of central, local_noise, two_servers and record_level"
            )


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


def _split(wire: training_pb2.Training) -> SplitNoise:
    given = wire.two_servers
    shares.dtype(given.bits)
    _within("two_servers.scale", given.scale, 1e-9, MOST_SCALE)
    _count("two_servers.variance", given.variance, 1, skellam.MAX_VARIANCE * VARIANCE_UNIT)
    _count("min_updates", wire.min_updates, 2, wire.updates_per_round, "updates_per_round")
    _count("updates_per_round", wire.updates_per_round, 2, MOST)
    _count("two_servers.colluding", given.colluding, 0, wire.min_updates - 2, "min_updates - 2")
    check_keys(given.leader_key, given.helper_key)
    check_text("two_servers.helper", given.helper)
    noise = SplitNoise(
        scale=given.scale,
        bits=given.bits,
        variance=Fraction(given.variance, VARIANCE_UNIT),
        colluding=given.colluding,
        leader_key=given.leader_key,
        helper_key=given.helper_key,
        helper=given.helper,
    )
    size = (1 << (wire.dimension - 1).bit_length()) * given.bits // 8
    if size > MOST_SHARE:
        raise InvalidInput(
            f"two_servers: a share has at most {MOST_SHARE:,} bytes, and one of {wire.dimension:,} "
            f"parameters, filled up to a power of two, has {size:,} at {given.bits} bits"
        )
    return noise


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
