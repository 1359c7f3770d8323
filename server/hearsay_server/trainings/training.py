"""Read a training's file, and freeze it."""

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import hearsay.federated.parsing
from hearsay import files
from hearsay.federated import models
from hearsay.federated.declaration import UNIT, Protection, Training
from hearsay.plans.plan import mechanism_message
from hearsay.plans.two_servers import UNIT as UNIT_OF_VARIANCE
from hearsay.plans.two_servers import helper_key_of
from hearsay.v1 import training_pb2
from hearsay_server.declared import fill, load
from hearsay_server.trainings import aggregation
from ldp import InvalidInput, SphereCodebook
from ldp.core.exact import check_epsilon
from ldp.two_servers.records import calibrate
from ldp.two_servers.rounding import norm_bounds

KEYS = (
    "name",
    "title",
    "architecture",
    "model",
    "rounds",
    "round_seconds",
    "updates_per_round",
    "min_updates",
    "participations",
    "separation",
    "max_update_norm",
)
TABLES = {
    "local": ("epochs", "batch_size", "learning_rate", "momentum", "proximal"),
    "aggregation": ("rule", "hostile", "optimizer", "learning_rate", "momentum"),
    "encoding": ("kind", "bits", "coordinates"),
    "central": ("mechanism", "bands", "noise_multiplier"),
    "local_noise": ("epsilon", "codes"),
    "record_level": ("noise_multiplier", "max_grad_norm"),
    "two_servers": ("helper_key", "helper", "rho", "colluding", "scale", "bits"),
}
"""The keys of each table of [training]; docs/training-reference.md has them all."""

_PROTECTIONS = tuple(each.kind for each in get_args(Protection))


@dataclass(frozen=True)
class Declared:
    """A training's frozen bytes, and the file of its first model."""

    frozen: bytes
    model: bytes

    @property
    def training(self) -> Training:
        """The training that the bytes declare."""
        return hearsay.federated.parsing.parse(self.frozen)


def from_file(file: Path) -> Declared:
    """Read and freeze a training; `model` names a file beside it.

    Raises `InvalidInput`, with the file and the place, where one of the files cannot be read, and
    where the training cannot be, as `hearsay.federated.parsing.parse`.
    """
    table = _training(load(files.read(file), str(file)), str(file))
    place = f"{file}: training"
    name = table.get("model")
    if not isinstance(name, str) or not name:
        raise InvalidInput(
            f'{place}: model must name a safetensors file, as model = "digits.safetensors"'
        )
    path = file.parent / name
    try:
        model = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{place}: model: cannot read {path}: {error}") from None
    try:
        return Declared(freeze(table, model, place), model)
    except InvalidInput as error:
        said = str(error)
        raise InvalidInput(said if said.startswith(place) else f"{place}.{said}") from None


def freeze(table: dict[str, Any], model: bytes, place: str) -> bytes:
    """Return the canonical bytes of a training, of the table that declares it and its model.

    What the table leaves out is filled in: `aggregation` is the mean, taken as it is, `encoding`
    float32 where there is one, the noise of `central` that of the banded Toeplitz root with as many
    bands as `separation`, and `local_noise` has the best of 1,024 codes. Multipliers of noise are
    rounded up to millionths. The noise of `two_servers` is the least, in 1024ths of variance, that
    keeps `rho` over all participations. Raises `InvalidInput` that names the place.
    """
    _check_keys(table, place)
    tables = {name: dict(table[name]) for name in TABLES if name in table}
    wire = training_pb2.Training()
    fill(wire, {key: table[key] for key in KEYS if key in table and key != "model"}, place)
    try:
        wire.dimension = models.to_vector(models.read(model)).size
    except InvalidInput as error:
        raise InvalidInput(f"{place}: model: {error}") from None
    wire.initial = hashlib.sha256(model).digest()
    if wire.participations == 1 and "separation" not in table:
        wire.separation = 1
    fill(wire.local, {"epochs": 1} | tables.get("local", {}), f"{place}.local")
    mean = {"rule": "mean", "optimizer": "sgd", "learning_rate": 1.0}
    given = tables.get("aggregation", {})
    fill(wire.aggregation, mean | given, f"{place}.aggregation")
    if "encoding" in tables or not {"local_noise", "two_servers"} & tables.keys():
        fill(wire.encoding, {"kind": "float32"} | tables.get("encoding", {}), f"{place}.encoding")
    _protect(wire, tables, place)
    frozen: bytes = wire.SerializeToString(deterministic=True)
    # The checks of a device, and of the server, made before it is registered.
    aggregation.check(hearsay.federated.parsing.parse(frozen))
    return frozen


def _training(document: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the table [training], alone in its document."""
    table = document.pop("training", None)
    if not isinstance(table, dict):
        raise InvalidInput(f"{source}: a training is written as one [training] table")
    if document:
        raise InvalidInput(f"{source}: unknown key {next(iter(document))!r} beside [training]")
    return table


def _check_keys(table: dict[str, Any], place: str) -> None:
    for key, value in table.items():
        if key in TABLES:
            if not isinstance(value, dict):
                raise InvalidInput(f"{place}: {key} is a table, as [training.{key}]")
            for inner in value:
                if inner not in TABLES[key]:
                    raise InvalidInput(f"{place}.{key}: unknown key {inner!r}")
        elif key not in KEYS:
            raise InvalidInput(f"{place}: unknown key {key!r}")
    needed = [key for key in KEYS if key not in ("title", "model")]
    if table.get("participations") == 1:
        needed.remove("separation")
    for key in needed:
        if key not in table:
            raise InvalidInput(f"{place}: {key} is missing")
    chosen = [name for name in _PROTECTIONS if name in table]
    if len(chosen) != 1:
        raise InvalidInput(
            f"{place}: expected one of [training.central], [training.local_noise], "
            f"[training.record_level] and [training.two_servers], got "
            f"{' and '.join(chosen) or 'none'}"
        )


def _protect(wire: training_pb2.Training, tables: dict[str, dict[str, Any]], place: str) -> None:
    """Fill in who protects a person from whom."""
    if (given := tables.get("central")) is not None:
        noise = _millionths(given, f"{place}.central")
        if given.setdefault("mechanism", "toeplitz") == "toeplitz":
            given.setdefault("bands", min(wire.separation, wire.rounds) or 1)
        fill(wire.central, given, f"{place}.central")
        wire.central.noise_multiplier_millionths = noise
    elif (given := tables.get("record_level")) is not None:
        noise = _millionths(given, f"{place}.record_level")
        fill(wire.record_level, given, f"{place}.record_level")
        wire.record_level.noise_multiplier_millionths = noise
    elif (given := tables.get("two_servers")) is not None:
        _split(wire, given, f"{place}.two_servers")
    else:
        given = tables["local_noise"]
        spot = f"{place}.local_noise"
        epsilon = check_epsilon(given.get("epsilon", 0.0), f"{spot}: epsilon")
        codes = given.get("codes", 1024)
        if type(codes) is not int:
            raise InvalidInput(f"{spot}: codes must be an integer, got {codes!r}")
        try:
            mechanism = SphereCodebook(wire.dimension, epsilon, codes)
        except InvalidInput as error:
            raise InvalidInput(f"{spot}: {error}") from None
        wire.local_noise.mechanism.CopyFrom(mechanism_message(mechanism))


def _split(wire: training_pb2.Training, given: dict[str, Any], place: str) -> None:
    """Fill in how updates are split, and the noise that keeps `rho` with `min_updates` devices."""
    rho = given.pop("rho", None)
    if isinstance(rho, bool) or not isinstance(rho, int | float) or not 0 < rho < math.inf:
        raise InvalidInput(
            f"{place}: rho, of the whole training, must be a number > 0, got {rho!r}"
        )
    split = wire.two_servers
    split.helper_key = helper_key_of(given.pop("helper_key", ""))
    padded = 1 << (wire.dimension - 1).bit_length()
    norm = wire.max_update_norm
    if not 0 < norm < math.inf or wire.participations < 1:
        raise InvalidInput(f"{place}: max_update_norm and participations must be > 0")
    # Roundings add a quarter for each coordinate to the squared norm: a thousandth at this scale.
    fill(split, {"scale": 16 * math.sqrt(padded) / norm, "bits": 32} | given, place)
    try:
        norms = norm_bounds(norm, split.scale, padded)
        each = Fraction(str(rho)) / wire.participations
        variance = calibrate(norms, each, wire.min_updates, split.colluding, UNIT_OF_VARIANCE)
        split.variance = int(variance * UNIT_OF_VARIANCE)
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from None
    most = wire.updates_per_round * math.isqrt(norms[1]) + 12 * math.sqrt(
        wire.updates_per_round * variance
    )
    if most >= 1 << split.bits - 1:
        raise InvalidInput(
            f"{place}: sums of {wire.updates_per_round:,} updates at scale {split.scale:g} may "
            f"reach {most:,.0f}, and {split.bits} bits hold less than {1 << split.bits - 1:,}: "
            "declare more bits or a smaller scale"
        )


def _millionths(table: dict[str, Any], place: str) -> int:
    """Take the noise multiplier out of a table, in millionths, rounded up."""
    given = table.pop("noise_multiplier", None)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
        raise InvalidInput(f"{place}: noise_multiplier must be a number > 0, got {given!r}")
    return math.ceil(Fraction(str(given)) * UNIT)
