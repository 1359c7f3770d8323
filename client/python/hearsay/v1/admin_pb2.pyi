from hearsay.v1 import survey_pb2 as _survey_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateSurveyRequest(_message.Message):
    __slots__ = ("survey",)
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    survey: _survey_pb2.Survey
    def __init__(self, survey: _Optional[_Union[_survey_pb2.Survey, _Mapping]] = ...) -> None: ...

class ListSurveysRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSurveysResponse(_message.Message):
    __slots__ = ("surveys",)
    SURVEYS_FIELD_NUMBER: _ClassVar[int]
    surveys: _containers.RepeatedCompositeFieldContainer[SurveyStatus]
    def __init__(self, surveys: _Optional[_Iterable[_Union[SurveyStatus, _Mapping]]] = ...) -> None: ...

class ShowSurveyRequest(_message.Message):
    __slots__ = ("survey",)
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    survey: str
    def __init__(self, survey: _Optional[str] = ...) -> None: ...

class ShowSurveyResponse(_message.Message):
    __slots__ = ("status", "plan", "periods", "reports")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PERIODS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    status: SurveyStatus
    plan: bytes
    periods: _containers.RepeatedScalarFieldContainer[str]
    reports: _containers.RepeatedCompositeFieldContainer[Reports]
    def __init__(self, status: _Optional[_Union[SurveyStatus, _Mapping]] = ..., plan: _Optional[bytes] = ..., periods: _Optional[_Iterable[str]] = ..., reports: _Optional[_Iterable[_Union[Reports, _Mapping]]] = ...) -> None: ...

class Reports(_message.Message):
    __slots__ = ("attribute", "level", "reports", "map")
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    attribute: str
    level: str
    reports: _containers.RepeatedScalarFieldContainer[int]
    map: str
    def __init__(self, attribute: _Optional[str] = ..., level: _Optional[str] = ..., reports: _Optional[_Iterable[int]] = ..., map: _Optional[str] = ...) -> None: ...

class CloseSurveyRequest(_message.Message):
    __slots__ = ("survey", "period")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    survey: str
    period: str
    def __init__(self, survey: _Optional[str] = ..., period: _Optional[str] = ...) -> None: ...

class DeleteSurveyRequest(_message.Message):
    __slots__ = ("survey",)
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    survey: str
    def __init__(self, survey: _Optional[str] = ...) -> None: ...

class DeleteSurveyResponse(_message.Message):
    __slots__ = ("batches", "records")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    batches: int
    records: int
    def __init__(self, batches: _Optional[int] = ..., records: _Optional[int] = ...) -> None: ...

class SurveyStatus(_message.Message):
    __slots__ = ("survey", "title", "revision", "batches", "records", "closed")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    survey: str
    title: str
    revision: bytes
    batches: int
    records: int
    closed: bool
    def __init__(self, survey: _Optional[str] = ..., title: _Optional[str] = ..., revision: _Optional[bytes] = ..., batches: _Optional[int] = ..., records: _Optional[int] = ..., closed: bool = ...) -> None: ...
