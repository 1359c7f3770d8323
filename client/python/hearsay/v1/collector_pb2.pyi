from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    BAD_ID: _ClassVar[Reason]
    UNKNOWN_SURVEY: _ClassVar[Reason]
    UNKNOWN_REVISION: _ClassVar[Reason]
    BAD_PERIOD: _ClassVar[Reason]
    BAD_ROWS: _ClassVar[Reason]
    BAD_COLUMN: _ClassVar[Reason]
    BAD_CODES: _ClassVar[Reason]
    PERIOD_CLOSED: _ClassVar[Reason]
    FORGOTTEN: _ClassVar[Reason]
    OVER_QUOTA: _ClassVar[Reason]
    UNKNOWN_FIELDS: _ClassVar[Reason]
    BAD_GROUP: _ClassVar[Reason]
    NOT_SEALED: _ClassVar[Reason]
    BAD_SEALED: _ClassVar[Reason]
REASON_UNSPECIFIED: Reason
BAD_ID: Reason
UNKNOWN_SURVEY: Reason
UNKNOWN_REVISION: Reason
BAD_PERIOD: Reason
BAD_ROWS: Reason
BAD_COLUMN: Reason
BAD_CODES: Reason
PERIOD_CLOSED: Reason
FORGOTTEN: Reason
OVER_QUOTA: Reason
UNKNOWN_FIELDS: Reason
BAD_GROUP: Reason
NOT_SEALED: Reason
BAD_SEALED: Reason

class GetPlanRequest(_message.Message):
    __slots__ = ("survey",)
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    survey: str
    def __init__(self, survey: _Optional[str] = ...) -> None: ...

class GetPlanResponse(_message.Message):
    __slots__ = ("plan", "server_time")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    plan: bytes
    server_time: int
    def __init__(self, plan: _Optional[bytes] = ..., server_time: _Optional[int] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[Batch]
    def __init__(self, batches: _Optional[_Iterable[_Union[Batch, _Mapping]]] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("results", "server_time")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Result]
    server_time: int
    def __init__(self, results: _Optional[_Iterable[_Union[Result, _Mapping]]] = ..., server_time: _Optional[int] = ...) -> None: ...

class ForgetRequest(_message.Message):
    __slots__ = ("survey", "period", "ids")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    survey: str
    period: str
    ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, survey: _Optional[str] = ..., period: _Optional[str] = ..., ids: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ForgetResponse(_message.Message):
    __slots__ = ("results", "server_time")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSPECIFIED: _ClassVar[ForgetResponse.Status]
        FORGOTTEN: _ClassVar[ForgetResponse.Status]
        SUMMED: _ClassVar[ForgetResponse.Status]
    STATUS_UNSPECIFIED: ForgetResponse.Status
    FORGOTTEN: ForgetResponse.Status
    SUMMED: ForgetResponse.Status
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedScalarFieldContainer[ForgetResponse.Status]
    server_time: int
    def __init__(self, results: _Optional[_Iterable[_Union[ForgetResponse.Status, str]]] = ..., server_time: _Optional[int] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("id", "survey", "revision", "period", "rows", "columns", "panel", "properties")
    ID_FIELD_NUMBER: _ClassVar[int]
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    PANEL_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    survey: str
    revision: bytes
    period: str
    rows: int
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    panel: int
    properties: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[bytes] = ..., survey: _Optional[str] = ..., revision: _Optional[bytes] = ..., period: _Optional[str] = ..., rows: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., panel: _Optional[int] = ..., properties: _Optional[_Iterable[str]] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("attribute", "level", "codes", "present", "map")
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    attribute: str
    level: str
    codes: bytes
    present: bytes
    map: str
    def __init__(self, attribute: _Optional[str] = ..., level: _Optional[str] = ..., codes: _Optional[bytes] = ..., present: _Optional[bytes] = ..., map: _Optional[str] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("status", "reason", "detail")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSPECIFIED: _ClassVar[Result.Status]
        STORED: _ClassVar[Result.Status]
        DUPLICATE: _ClassVar[Result.Status]
        REFUSED: _ClassVar[Result.Status]
        RETRY: _ClassVar[Result.Status]
    STATUS_UNSPECIFIED: Result.Status
    STORED: Result.Status
    DUPLICATE: Result.Status
    REFUSED: Result.Status
    RETRY: Result.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    status: Result.Status
    reason: Reason
    detail: str
    def __init__(self, status: _Optional[_Union[Result.Status, str]] = ..., reason: _Optional[_Union[Reason, str]] = ..., detail: _Optional[str] = ...) -> None: ...
