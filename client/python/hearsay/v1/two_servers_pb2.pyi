from hearsay.v1 import collector_pb2 as _collector_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SharedRecord(_message.Message):
    __slots__ = ("survey", "revision", "period", "id", "leader", "helper")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    HELPER_FIELD_NUMBER: _ClassVar[int]
    survey: str
    revision: bytes
    period: str
    id: bytes
    leader: bytes
    helper: bytes
    def __init__(self, survey: _Optional[str] = ..., revision: _Optional[bytes] = ..., period: _Optional[str] = ..., id: _Optional[bytes] = ..., leader: _Optional[bytes] = ..., helper: _Optional[bytes] = ...) -> None: ...

class SubmitSharesRequest(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[SharedRecord]
    def __init__(self, records: _Optional[_Iterable[_Union[SharedRecord, _Mapping]]] = ...) -> None: ...

class SubmitSharesResponse(_message.Message):
    __slots__ = ("results", "server_time")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_collector_pb2.Result]
    server_time: int
    def __init__(self, results: _Optional[_Iterable[_Union[_collector_pb2.Result, _Mapping]]] = ..., server_time: _Optional[int] = ...) -> None: ...

class TakeSharesRequest(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[SharedRecord]
    def __init__(self, records: _Optional[_Iterable[_Union[SharedRecord, _Mapping]]] = ...) -> None: ...

class TakeSharesResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_collector_pb2.Result]
    def __init__(self, results: _Optional[_Iterable[_Union[_collector_pb2.Result, _Mapping]]] = ...) -> None: ...

class AgreeRequest(_message.Message):
    __slots__ = ("survey", "period", "ids")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    survey: str
    period: str
    ids: bytes
    def __init__(self, survey: _Optional[str] = ..., period: _Optional[str] = ..., ids: _Optional[bytes] = ...) -> None: ...

class AgreeResponse(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: bytes
    def __init__(self, ids: _Optional[bytes] = ...) -> None: ...

class SumRequest(_message.Message):
    __slots__ = ("survey", "period", "ids")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    survey: str
    period: str
    ids: bytes
    def __init__(self, survey: _Optional[str] = ..., period: _Optional[str] = ..., ids: _Optional[bytes] = ...) -> None: ...

class SumResponse(_message.Message):
    __slots__ = ("sum", "set")
    SUM_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    sum: bytes
    set: bytes
    def __init__(self, sum: _Optional[bytes] = ..., set: _Optional[bytes] = ...) -> None: ...
