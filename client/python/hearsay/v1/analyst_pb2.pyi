from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EstimateRequest(_message.Message):
    __slots__ = ("survey", "attribute", "levels", "periods", "confidence", "simultaneous", "method")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    PERIODS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SIMULTANEOUS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    survey: str
    attribute: str
    levels: _containers.RepeatedScalarFieldContainer[str]
    periods: _containers.RepeatedScalarFieldContainer[str]
    confidence: float
    simultaneous: bool
    method: str
    def __init__(self, survey: _Optional[str] = ..., attribute: _Optional[str] = ..., levels: _Optional[_Iterable[str]] = ..., periods: _Optional[_Iterable[str]] = ..., confidence: _Optional[float] = ..., simultaneous: bool = ..., method: _Optional[str] = ...) -> None: ...

class EstimateResponse(_message.Message):
    __slots__ = ("survey", "attribute", "statistic", "confidence", "simultaneous", "reports", "rows", "cohorts", "method", "homogeneity", "warning")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    STATISTIC_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SIMULTANEOUS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COHORTS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    HOMOGENEITY_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    survey: str
    attribute: str
    statistic: str
    confidence: float
    simultaneous: bool
    reports: int
    rows: _containers.RepeatedCompositeFieldContainer[Row]
    cohorts: _containers.RepeatedCompositeFieldContainer[Cohort]
    method: str
    homogeneity: float
    warning: str
    def __init__(self, survey: _Optional[str] = ..., attribute: _Optional[str] = ..., statistic: _Optional[str] = ..., confidence: _Optional[float] = ..., simultaneous: bool = ..., reports: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[Row, _Mapping]]] = ..., cohorts: _Optional[_Iterable[_Union[Cohort, _Mapping]]] = ..., method: _Optional[str] = ..., homogeneity: _Optional[float] = ..., warning: _Optional[str] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("label", "estimate", "standard_error", "low", "high")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    STANDARD_ERROR_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    label: str
    estimate: float
    standard_error: float
    low: float
    high: float
    def __init__(self, label: _Optional[str] = ..., estimate: _Optional[float] = ..., standard_error: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class Cohort(_message.Message):
    __slots__ = ("revision", "level", "period", "epsilon", "mechanism", "reports")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    revision: bytes
    level: str
    period: str
    epsilon: float
    mechanism: str
    reports: int
    def __init__(self, revision: _Optional[bytes] = ..., level: _Optional[str] = ..., period: _Optional[str] = ..., epsilon: _Optional[float] = ..., mechanism: _Optional[str] = ..., reports: _Optional[int] = ...) -> None: ...
