from hearsay.v1 import collector_pb2 as _collector_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitSealedRequest(_message.Message):
    __slots__ = ("records", "mix")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    MIX_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[SealedRecord]
    mix: bytes
    def __init__(self, records: _Optional[_Iterable[_Union[SealedRecord, _Mapping]]] = ..., mix: _Optional[bytes] = ...) -> None: ...

class SubmitSealedResponse(_message.Message):
    __slots__ = ("results", "server_time")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_collector_pb2.Result]
    server_time: int
    def __init__(self, results: _Optional[_Iterable[_Union[_collector_pb2.Result, _Mapping]]] = ..., server_time: _Optional[int] = ...) -> None: ...

class SealedRecord(_message.Message):
    __slots__ = ("survey", "revision", "period", "key", "sealed")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    survey: str
    revision: bytes
    period: str
    key: int
    sealed: bytes
    def __init__(self, survey: _Optional[str] = ..., revision: _Optional[bytes] = ..., period: _Optional[str] = ..., key: _Optional[int] = ..., sealed: _Optional[bytes] = ...) -> None: ...

class Sealed(_message.Message):
    __slots__ = ("batch", "forget")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    batch: _collector_pb2.Batch
    forget: Forget
    def __init__(self, batch: _Optional[_Union[_collector_pb2.Batch, _Mapping]] = ..., forget: _Optional[_Union[Forget, _Mapping]] = ...) -> None: ...

class Forget(_message.Message):
    __slots__ = ("period", "id")
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    period: str
    id: bytes
    def __init__(self, period: _Optional[str] = ..., id: _Optional[bytes] = ...) -> None: ...
