from hearsay.v1 import plan_pb2 as _plan_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Training(_message.Message):
    __slots__ = ("name", "title", "architecture", "initial", "dimension", "rounds", "round_seconds", "updates_per_round", "min_updates", "participations", "separation", "local", "max_update_norm", "aggregation", "encoding", "central", "local_noise", "record_level", "two_servers")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    ROUND_SECONDS_FIELD_NUMBER: _ClassVar[int]
    UPDATES_PER_ROUND_FIELD_NUMBER: _ClassVar[int]
    MIN_UPDATES_FIELD_NUMBER: _ClassVar[int]
    PARTICIPATIONS_FIELD_NUMBER: _ClassVar[int]
    SEPARATION_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    MAX_UPDATE_NORM_FIELD_NUMBER: _ClassVar[int]
    AGGREGATION_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    CENTRAL_FIELD_NUMBER: _ClassVar[int]
    LOCAL_NOISE_FIELD_NUMBER: _ClassVar[int]
    RECORD_LEVEL_FIELD_NUMBER: _ClassVar[int]
    TWO_SERVERS_FIELD_NUMBER: _ClassVar[int]
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
    encoding: Encoding
    central: CentralNoise
    local_noise: LocalNoise
    record_level: RecordLevel
    two_servers: SplitNoise
    def __init__(self, name: _Optional[str] = ..., title: _Optional[str] = ..., architecture: _Optional[str] = ..., initial: _Optional[bytes] = ..., dimension: _Optional[int] = ..., rounds: _Optional[int] = ..., round_seconds: _Optional[int] = ..., updates_per_round: _Optional[int] = ..., min_updates: _Optional[int] = ..., participations: _Optional[int] = ..., separation: _Optional[int] = ..., local: _Optional[_Union[LocalTraining, _Mapping]] = ..., max_update_norm: _Optional[float] = ..., aggregation: _Optional[_Union[Aggregation, _Mapping]] = ..., encoding: _Optional[_Union[Encoding, _Mapping]] = ..., central: _Optional[_Union[CentralNoise, _Mapping]] = ..., local_noise: _Optional[_Union[LocalNoise, _Mapping]] = ..., record_level: _Optional[_Union[RecordLevel, _Mapping]] = ..., two_servers: _Optional[_Union[SplitNoise, _Mapping]] = ...) -> None: ...

class LocalTraining(_message.Message):
    __slots__ = ("epochs", "batch_size", "learning_rate", "momentum", "proximal")
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    PROXIMAL_FIELD_NUMBER: _ClassVar[int]
    epochs: int
    batch_size: int
    learning_rate: float
    momentum: float
    proximal: float
    def __init__(self, epochs: _Optional[int] = ..., batch_size: _Optional[int] = ..., learning_rate: _Optional[float] = ..., momentum: _Optional[float] = ..., proximal: _Optional[float] = ...) -> None: ...

class Aggregation(_message.Message):
    __slots__ = ("rule", "hostile", "optimizer", "learning_rate", "momentum")
    RULE_FIELD_NUMBER: _ClassVar[int]
    HOSTILE_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    rule: str
    hostile: int
    optimizer: str
    learning_rate: float
    momentum: float
    def __init__(self, rule: _Optional[str] = ..., hostile: _Optional[int] = ..., optimizer: _Optional[str] = ..., learning_rate: _Optional[float] = ..., momentum: _Optional[float] = ...) -> None: ...

class Encoding(_message.Message):
    __slots__ = ("kind", "bits", "coordinates")
    KIND_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    COORDINATES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    bits: int
    coordinates: int
    def __init__(self, kind: _Optional[str] = ..., bits: _Optional[int] = ..., coordinates: _Optional[int] = ...) -> None: ...

class CentralNoise(_message.Message):
    __slots__ = ("mechanism", "bands", "noise_multiplier_millionths")
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    BANDS_FIELD_NUMBER: _ClassVar[int]
    NOISE_MULTIPLIER_MILLIONTHS_FIELD_NUMBER: _ClassVar[int]
    mechanism: str
    bands: int
    noise_multiplier_millionths: int
    def __init__(self, mechanism: _Optional[str] = ..., bands: _Optional[int] = ..., noise_multiplier_millionths: _Optional[int] = ...) -> None: ...

class LocalNoise(_message.Message):
    __slots__ = ("mechanism",)
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    mechanism: _plan_pb2.Mechanism
    def __init__(self, mechanism: _Optional[_Union[_plan_pb2.Mechanism, _Mapping]] = ...) -> None: ...

class SplitNoise(_message.Message):
    __slots__ = ("scale", "bits", "variance", "colluding", "leader_key", "helper_key", "helper")
    SCALE_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_FIELD_NUMBER: _ClassVar[int]
    COLLUDING_FIELD_NUMBER: _ClassVar[int]
    LEADER_KEY_FIELD_NUMBER: _ClassVar[int]
    HELPER_KEY_FIELD_NUMBER: _ClassVar[int]
    HELPER_FIELD_NUMBER: _ClassVar[int]
    scale: float
    bits: int
    variance: int
    colluding: int
    leader_key: bytes
    helper_key: bytes
    helper: str
    def __init__(self, scale: _Optional[float] = ..., bits: _Optional[int] = ..., variance: _Optional[int] = ..., colluding: _Optional[int] = ..., leader_key: _Optional[bytes] = ..., helper_key: _Optional[bytes] = ..., helper: _Optional[str] = ...) -> None: ...

class RecordLevel(_message.Message):
    __slots__ = ("noise_multiplier_millionths", "max_grad_norm")
    NOISE_MULTIPLIER_MILLIONTHS_FIELD_NUMBER: _ClassVar[int]
    MAX_GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    noise_multiplier_millionths: int
    max_grad_norm: float
    def __init__(self, noise_multiplier_millionths: _Optional[int] = ..., max_grad_norm: _Optional[float] = ...) -> None: ...
