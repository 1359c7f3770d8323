"""Vectors of updates of a federated training: payloads, and what a server reads from them."""

import struct
from typing import Any

import numpy as np

from hearsay.federated.declaration import Training
from hearsay.federated.encoding import UpdateRefused, decode, encode
from hearsay.federated.parsing import parse
from hearsay.plans.plan import mechanism_message
from hearsay.v1 import trainer_pb2, training_pb2
from ldp import SphereCodebook
from vectors.notation import Script, Seeds, double
from vectors.notation import mechanism as written_mechanism

Case = dict[str, Any]

_ENCODINGS = (  # kind, bits, coordinates
    ("float32", 0, 0),
    ("float32", 0, 3),
    ("quantized", 2, 0),
    ("quantized", 8, 0),
    ("quantized", 11, 4),
)
_DIMENSION = 10
_NORM = 2.0
_UPDATES = (
    [0.0] * 10,
    [0.5, -0.25, 0.125, 0, 0, 0.001, -1, 0.75, 0.3, -0.2],
    [3.0, 4.0] + [0.0] * 8,  # longer than the norm
)
_CODEBOOKS = ((1.0, 16), (4.0, 300))  # epsilon, codes


def _message() -> training_pb2.Training:
    return training_pb2.Training(
        name="digits",
        title="Digits",
        architecture="softmax",
        initial=bytes(32),
        dimension=_DIMENSION,
        rounds=1,
        round_seconds=60,
        updates_per_round=1,
        min_updates=1,
        participations=1,
        separation=1,
        local={"epochs": 1, "learning_rate": 0.1},
        max_update_norm=_NORM,
        aggregation={"rule": "mean", "optimizer": "sgd", "learning_rate": 1},
    )


def _encoded(kind: str, bits: int, coordinates: int) -> Training:
    message = _message()
    message.encoding.MergeFrom(training_pb2.Encoding(kind=kind, bits=bits, coordinates=coordinates))
    message.record_level.noise_multiplier_millionths = 1_000_000
    message.record_level.max_grad_norm = 1
    return parse(message.SerializeToString(deterministic=True))


def _noised(mechanism: SphereCodebook) -> Training:
    message = _message()
    message.local_noise.mechanism.CopyFrom(mechanism_message(mechanism))
    return parse(message.SerializeToString(deterministic=True))


def _read(training: Training, payload: bytes) -> Case:
    case: Case = {"payload": payload.hex()}
    try:
        case["vector"] = decode(training, payload).astype("<f4").tobytes().hex()
    except UpdateRefused as error:
        case["refusal"] = trainer_pb2.Refusal.Name(error.refusal)
    return case


def _spoilt(payload: bytes) -> list[bytes]:
    """Return a payload with its ends, its first number and its last bits changed."""
    spoilt = [payload[:-1], payload + b"\0", payload[:-1] + b"\xff"]
    for number in (float("nan"), float("-inf"), -0.0, 2.5, 1e38):
        for place in (0, 8):
            spoilt.append(payload[:place] + struct.pack("<f", number) + payload[place + 4 :])
    return spoilt


def updates() -> Case:
    """Return what is read from payloads, by encoding and by codebook."""
    seeds = Seeds("updates")
    encodings, codebooks = [], []
    for kind, bits, coordinates in _ENCODINGS:
        training = _encoded(kind, bits, coordinates)
        payloads = [encode(training, update, Script(seeds.next())) for update in _UPDATES]
        cases = [_read(training, payload) for payload in payloads + _spoilt(payloads[1])]
        encodings.append(
            {
                "dimension": _DIMENSION,
                "max_update_norm": double(_NORM),
                "kind": kind,
                "bits": bits,
                "coordinates": coordinates,
                "updates": cases,
            }
        )
    for epsilon, codes in _CODEBOOKS:
        mechanism = SphereCodebook(_DIMENSION, epsilon, codes)
        training = _noised(mechanism)
        drawn = []
        for update in _UPDATES[:2]:
            seed, value = seeds.next(), np.array(update) / _NORM
            code = mechanism.randomize(value, Script(seed))
            drawn.append(
                {
                    "value": [double(x) for x in value],
                    "seed": seed.hex(),
                    **_read(training, code.tobytes()),
                }
            )
        drawn.append(_read(training, bytes(8) + codes.to_bytes(mechanism.code_bytes - 8, "little")))
        codebooks.append(
            {
                **written_mechanism(mechanism),
                "max_update_norm": double(_NORM),
                "gain": double(mechanism.gain),
                "updates": drawn,
            }
        )
    return {"encodings": encodings, "codebooks": codebooks}
