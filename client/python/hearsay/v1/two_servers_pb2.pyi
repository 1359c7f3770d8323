from hearsay.v1 import collector_pb2 as _collector_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TakeSharesRequest(_message.Message):
    __slots__ = ("survey", "revision", "period", "round", "shares")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    survey: str
    revision: bytes
    period: str
    round: int
    shares: _containers.RepeatedCompositeFieldContainer[Share]
    def __init__(self, survey: _Optional[str] = ..., revision: _Optional[bytes] = ..., period: _Optional[str] = ..., round: _Optional[int] = ..., shares: _Optional[_Iterable[_Union[Share, _Mapping]]] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("id", "sealed")
    ID_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    sealed: bytes
    def __init__(self, id: _Optional[bytes] = ..., sealed: _Optional[bytes] = ...) -> None: ...

class TakeSharesResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_collector_pb2.Result]
    def __init__(self, results: _Optional[_Iterable[_Union[_collector_pb2.Result, _Mapping]]] = ...) -> None: ...

class AgreeRequest(_message.Message):
    __slots__ = ("survey", "period", "round", "ids")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    survey: str
    period: str
    round: int
    ids: bytes
    def __init__(self, survey: _Optional[str] = ..., period: _Optional[str] = ..., round: _Optional[int] = ..., ids: _Optional[bytes] = ...) -> None: ...

class AgreeResponse(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: bytes
    def __init__(self, ids: _Optional[bytes] = ...) -> None: ...

class SumRequest(_message.Message):
    __slots__ = ("survey", "period", "round", "ids")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    survey: str
    period: str
    round: int
    ids: bytes
    def __init__(self, survey: _Optional[str] = ..., period: _Optional[str] = ..., round: _Optional[int] = ..., ids: _Optional[bytes] = ...) -> None: ...

class SumResponse(_message.Message):
    __slots__ = ("sum",)
    SUM_FIELD_NUMBER: _ClassVar[int]
    sum: bytes
    def __init__(self, sum: _Optional[bytes] = ...) -> None: ...
