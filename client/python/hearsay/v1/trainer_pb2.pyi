from hearsay.v1 import collector_pb2 as _collector_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Refusal(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_UNSPECIFIED: _ClassVar[Refusal]
    UNKNOWN_TRAINING: _ClassVar[Refusal]
    OTHER_REVISION: _ClassVar[Refusal]
    OTHER_MODEL: _ClassVar[Refusal]
    ROUND_CLOSED: _ClassVar[Refusal]
    ROUND_FULL: _ClassVar[Refusal]
    BAD_UPDATE_ID: _ClassVar[Refusal]
    BAD_LENGTH: _ClassVar[Refusal]
    NOT_FINITE: _ClassVar[Refusal]
    ABOVE_NORM: _ClassVar[Refusal]
    BAD_PAYLOAD: _ClassVar[Refusal]
REFUSAL_UNSPECIFIED: Refusal
UNKNOWN_TRAINING: Refusal
OTHER_REVISION: Refusal
OTHER_MODEL: Refusal
ROUND_CLOSED: Refusal
ROUND_FULL: Refusal
BAD_UPDATE_ID: Refusal
BAD_LENGTH: Refusal
NOT_FINITE: Refusal
ABOVE_NORM: Refusal
BAD_PAYLOAD: Refusal

class GetTrainingRequest(_message.Message):
    __slots__ = ("training",)
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    training: str
    def __init__(self, training: _Optional[str] = ...) -> None: ...

class GetTrainingResponse(_message.Message):
    __slots__ = ("training",)
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    training: bytes
    def __init__(self, training: _Optional[bytes] = ...) -> None: ...

class GetRoundRequest(_message.Message):
    __slots__ = ("training",)
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    training: str
    def __init__(self, training: _Optional[str] = ...) -> None: ...

class GetRoundResponse(_message.Message):
    __slots__ = ("state", "round", "model", "deadline", "retry_after_ms", "server_time")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[GetRoundResponse.State]
        OPEN: _ClassVar[GetRoundResponse.State]
        WAIT: _ClassVar[GetRoundResponse.State]
        ENDED: _ClassVar[GetRoundResponse.State]
    STATE_UNSPECIFIED: GetRoundResponse.State
    OPEN: GetRoundResponse.State
    WAIT: GetRoundResponse.State
    ENDED: GetRoundResponse.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    state: GetRoundResponse.State
    round: int
    model: bytes
    deadline: int
    retry_after_ms: int
    server_time: int
    def __init__(self, state: _Optional[_Union[GetRoundResponse.State, str]] = ..., round: _Optional[int] = ..., model: _Optional[bytes] = ..., deadline: _Optional[int] = ..., retry_after_ms: _Optional[int] = ..., server_time: _Optional[int] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("training", "model", "offset")
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    training: str
    model: bytes
    offset: int
    def __init__(self, training: _Optional[str] = ..., model: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ("data", "size")
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    size: int
    def __init__(self, data: _Optional[bytes] = ..., size: _Optional[int] = ...) -> None: ...

class SubmitUpdateRequest(_message.Message):
    __slots__ = ("id", "training", "revision", "round", "model", "size", "offset", "data")
    ID_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    training: str
    revision: bytes
    round: int
    model: bytes
    size: int
    offset: int
    data: bytes
    def __init__(self, id: _Optional[bytes] = ..., training: _Optional[str] = ..., revision: _Optional[bytes] = ..., round: _Optional[int] = ..., model: _Optional[bytes] = ..., size: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class SubmitUpdateResponse(_message.Message):
    __slots__ = ("status", "refusal", "detail", "next")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    status: _collector_pb2.Result.Status
    refusal: Refusal
    detail: str
    next: int
    def __init__(self, status: _Optional[_Union[_collector_pb2.Result.Status, str]] = ..., refusal: _Optional[_Union[Refusal, str]] = ..., detail: _Optional[str] = ..., next: _Optional[int] = ...) -> None: ...
