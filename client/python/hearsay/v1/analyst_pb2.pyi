from hearsay.v1 import answer_pb2 as _answer_pb2
from hearsay.v1 import collector_pb2 as _collector_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Selection(_message.Message):
    __slots__ = ("levels", "periods", "first_period", "last_period", "maps", "where", "panels")
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    PERIODS_FIELD_NUMBER: _ClassVar[int]
    FIRST_PERIOD_FIELD_NUMBER: _ClassVar[int]
    LAST_PERIOD_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    PANELS_FIELD_NUMBER: _ClassVar[int]
    levels: _containers.RepeatedScalarFieldContainer[str]
    periods: _containers.RepeatedScalarFieldContainer[str]
    first_period: str
    last_period: str
    maps: _containers.RepeatedScalarFieldContainer[str]
    where: _containers.RepeatedCompositeFieldContainer[Where]
    panels: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, levels: _Optional[_Iterable[str]] = ..., periods: _Optional[_Iterable[str]] = ..., first_period: _Optional[str] = ..., last_period: _Optional[str] = ..., maps: _Optional[_Iterable[str]] = ..., where: _Optional[_Iterable[_Union[Where, _Mapping]]] = ..., panels: _Optional[_Iterable[int]] = ...) -> None: ...

class Where(_message.Message):
    __slots__ = ("property", "values")
    PROPERTY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    property: str
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, property: _Optional[str] = ..., values: _Optional[_Iterable[str]] = ...) -> None: ...

class EstimateRequest(_message.Message):
    __slots__ = ("survey", "attribute", "selection", "confidence", "simultaneous", "method", "consistency", "forged", "recover", "top", "values", "sums", "sizes", "margins", "least")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SIMULTANEOUS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    FORGED_FIELD_NUMBER: _ClassVar[int]
    RECOVER_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    MARGINS_FIELD_NUMBER: _ClassVar[int]
    LEAST_FIELD_NUMBER: _ClassVar[int]
    survey: str
    attribute: str
    selection: Selection
    confidence: float
    simultaneous: bool
    method: str
    consistency: str
    forged: int
    recover: float
    top: int
    values: _containers.RepeatedScalarFieldContainer[str]
    sums: _containers.RepeatedCompositeFieldContainer[ValueSet]
    sizes: bool
    margins: _containers.RepeatedCompositeFieldContainer[Margin]
    least: int
    def __init__(self, survey: _Optional[str] = ..., attribute: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., confidence: _Optional[float] = ..., simultaneous: bool = ..., method: _Optional[str] = ..., consistency: _Optional[str] = ..., forged: _Optional[int] = ..., recover: _Optional[float] = ..., top: _Optional[int] = ..., values: _Optional[_Iterable[str]] = ..., sums: _Optional[_Iterable[_Union[ValueSet, _Mapping]]] = ..., sizes: bool = ..., margins: _Optional[_Iterable[_Union[Margin, _Mapping]]] = ..., least: _Optional[int] = ...) -> None: ...

class Margin(_message.Message):
    __slots__ = ("properties", "rows")
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    properties: _containers.RepeatedScalarFieldContainer[str]
    rows: _containers.RepeatedCompositeFieldContainer[MarginRow]
    def __init__(self, properties: _Optional[_Iterable[str]] = ..., rows: _Optional[_Iterable[_Union[MarginRow, _Mapping]]] = ...) -> None: ...

class MarginRow(_message.Message):
    __slots__ = ("values", "share")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    share: float
    def __init__(self, values: _Optional[_Iterable[str]] = ..., share: _Optional[float] = ...) -> None: ...

class ValueSet(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class EstimateByRequest(_message.Message):
    __slots__ = ("question", "by", "property")
    class By(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BY_UNSPECIFIED: _ClassVar[EstimateByRequest.By]
        LEVEL: _ClassVar[EstimateByRequest.By]
        PERIOD: _ClassVar[EstimateByRequest.By]
        MAP: _ClassVar[EstimateByRequest.By]
        PROPERTY: _ClassVar[EstimateByRequest.By]
    BY_UNSPECIFIED: EstimateByRequest.By
    LEVEL: EstimateByRequest.By
    PERIOD: EstimateByRequest.By
    MAP: EstimateByRequest.By
    PROPERTY: EstimateByRequest.By
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    PROPERTY_FIELD_NUMBER: _ClassVar[int]
    question: EstimateRequest
    by: EstimateByRequest.By
    property: str
    def __init__(self, question: _Optional[_Union[EstimateRequest, _Mapping]] = ..., by: _Optional[_Union[EstimateByRequest.By, str]] = ..., property: _Optional[str] = ...) -> None: ...

class ForecastRequest(_message.Message):
    __slots__ = ("question", "goal")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    question: EstimateRequest
    goal: float
    def __init__(self, question: _Optional[_Union[EstimateRequest, _Mapping]] = ..., goal: _Optional[float] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("question", "interval")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    question: EstimateRequest
    interval: float
    def __init__(self, question: _Optional[_Union[EstimateRequest, _Mapping]] = ..., interval: _Optional[float] = ...) -> None: ...

class CompareRequest(_message.Message):
    __slots__ = ("survey", "attribute", "first", "second", "confidence", "simultaneous")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SECOND_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SIMULTANEOUS_FIELD_NUMBER: _ClassVar[int]
    survey: str
    attribute: str
    first: Selection
    second: Selection
    confidence: float
    simultaneous: bool
    def __init__(self, survey: _Optional[str] = ..., attribute: _Optional[str] = ..., first: _Optional[_Union[Selection, _Mapping]] = ..., second: _Optional[_Union[Selection, _Mapping]] = ..., confidence: _Optional[float] = ..., simultaneous: bool = ...) -> None: ...

class ChangeRequest(_message.Message):
    __slots__ = ("survey", "attribute", "selection", "kind", "confidence", "simultaneous", "sums", "ranges")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[ChangeRequest.Kind]
        DIFFERENCE: _ClassVar[ChangeRequest.Kind]
        TREND: _ClassVar[ChangeRequest.Kind]
        BREAKS: _ClassVar[ChangeRequest.Kind]
    KIND_UNSPECIFIED: ChangeRequest.Kind
    DIFFERENCE: ChangeRequest.Kind
    TREND: ChangeRequest.Kind
    BREAKS: ChangeRequest.Kind
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SIMULTANEOUS_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    survey: str
    attribute: str
    selection: Selection
    kind: ChangeRequest.Kind
    confidence: float
    simultaneous: bool
    sums: _containers.RepeatedCompositeFieldContainer[ValueSet]
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    def __init__(self, survey: _Optional[str] = ..., attribute: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., kind: _Optional[_Union[ChangeRequest.Kind, str]] = ..., confidence: _Optional[float] = ..., simultaneous: bool = ..., sums: _Optional[_Iterable[_Union[ValueSet, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[Range, _Mapping]]] = ...) -> None: ...

class DistributionRequest(_message.Message):
    __slots__ = ("survey", "attribute", "selection", "view", "confidence", "edges", "bins", "quantiles", "step", "ranges", "cumulative", "other", "other_ranges", "margins", "least")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    BINS_FIELD_NUMBER: _ClassVar[int]
    QUANTILES_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    CUMULATIVE_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    OTHER_RANGES_FIELD_NUMBER: _ClassVar[int]
    MARGINS_FIELD_NUMBER: _ClassVar[int]
    LEAST_FIELD_NUMBER: _ClassVar[int]
    survey: str
    attribute: str
    selection: Selection
    view: str
    confidence: float
    edges: _containers.RepeatedScalarFieldContainer[float]
    bins: int
    quantiles: _containers.RepeatedScalarFieldContainer[float]
    step: float
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    cumulative: bool
    other: str
    other_ranges: _containers.RepeatedCompositeFieldContainer[Range]
    margins: _containers.RepeatedCompositeFieldContainer[Margin]
    least: int
    def __init__(self, survey: _Optional[str] = ..., attribute: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., view: _Optional[str] = ..., confidence: _Optional[float] = ..., edges: _Optional[_Iterable[float]] = ..., bins: _Optional[int] = ..., quantiles: _Optional[_Iterable[float]] = ..., step: _Optional[float] = ..., ranges: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., cumulative: bool = ..., other: _Optional[str] = ..., other_ranges: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., margins: _Optional[_Iterable[_Union[Margin, _Mapping]]] = ..., least: _Optional[int] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("low", "high")
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    low: float
    high: float
    def __init__(self, low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class CrosstabRequest(_message.Message):
    __slots__ = ("survey", "attribute", "other", "selection", "confidence", "simultaneous", "method", "nonnegative", "view")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SIMULTANEOUS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    NONNEGATIVE_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    survey: str
    attribute: str
    other: str
    selection: Selection
    confidence: float
    simultaneous: bool
    method: str
    nonnegative: bool
    view: str
    def __init__(self, survey: _Optional[str] = ..., attribute: _Optional[str] = ..., other: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., confidence: _Optional[float] = ..., simultaneous: bool = ..., method: _Optional[str] = ..., nonnegative: bool = ..., view: _Optional[str] = ...) -> None: ...

class CompareGroupsRequest(_message.Message):
    __slots__ = ("survey", "attribute", "by", "selection", "confidence", "simultaneous", "reference", "method", "view")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SIMULTANEOUS_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    survey: str
    attribute: str
    by: str
    selection: Selection
    confidence: float
    simultaneous: bool
    reference: str
    method: str
    view: str
    def __init__(self, survey: _Optional[str] = ..., attribute: _Optional[str] = ..., by: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., confidence: _Optional[float] = ..., simultaneous: bool = ..., reference: _Optional[str] = ..., method: _Optional[str] = ..., view: _Optional[str] = ...) -> None: ...

class FitRequest(_message.Message):
    __slots__ = ("survey", "selection", "family", "response", "columns", "confidence", "simultaneous", "method", "formula")
    class Family(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FAMILY_UNSPECIFIED: _ClassVar[FitRequest.Family]
        LINEAR: _ClassVar[FitRequest.Family]
        LOGISTIC: _ClassVar[FitRequest.Family]
    FAMILY_UNSPECIFIED: FitRequest.Family
    LINEAR: FitRequest.Family
    LOGISTIC: FitRequest.Family
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SIMULTANEOUS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    FORMULA_FIELD_NUMBER: _ClassVar[int]
    survey: str
    selection: Selection
    family: FitRequest.Family
    response: Variable
    columns: _containers.RepeatedCompositeFieldContainer[Product]
    confidence: float
    simultaneous: bool
    method: str
    formula: str
    def __init__(self, survey: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., family: _Optional[_Union[FitRequest.Family, str]] = ..., response: _Optional[_Union[Variable, _Mapping]] = ..., columns: _Optional[_Iterable[_Union[Product, _Mapping]]] = ..., confidence: _Optional[float] = ..., simultaneous: bool = ..., method: _Optional[str] = ..., formula: _Optional[str] = ...) -> None: ...

class Variable(_message.Message):
    __slots__ = ("attribute", "value")
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    attribute: str
    value: str
    def __init__(self, attribute: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Product(_message.Message):
    __slots__ = ("variables", "label")
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    variables: _containers.RepeatedCompositeFieldContainer[Variable]
    label: str
    def __init__(self, variables: _Optional[_Iterable[_Union[Variable, _Mapping]]] = ..., label: _Optional[str] = ...) -> None: ...

class SuspicionsRequest(_message.Message):
    __slots__ = ("survey", "attribute", "selection", "targets")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    survey: str
    attribute: str
    selection: Selection
    targets: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, survey: _Optional[str] = ..., attribute: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., targets: _Optional[_Iterable[str]] = ...) -> None: ...

class PairsRequest(_message.Message):
    __slots__ = ("survey", "attribute", "selection", "confidence", "top")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    survey: str
    attribute: str
    selection: Selection
    confidence: float
    top: int
    def __init__(self, survey: _Optional[str] = ..., attribute: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., confidence: _Optional[float] = ..., top: _Optional[int] = ...) -> None: ...

class WordsRequest(_message.Message):
    __slots__ = ("survey", "attribute", "selection", "confidence", "discover", "top", "candidates")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    DISCOVER_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    survey: str
    attribute: str
    selection: Selection
    confidence: float
    discover: bool
    top: int
    candidates: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, survey: _Optional[str] = ..., attribute: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., confidence: _Optional[float] = ..., discover: bool = ..., top: _Optional[int] = ..., candidates: _Optional[_Iterable[str]] = ...) -> None: ...

class MixingRequest(_message.Message):
    __slots__ = ("survey", "selection", "delta", "forged")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    FORGED_FIELD_NUMBER: _ClassVar[int]
    survey: str
    selection: Selection
    delta: float
    forged: int
    def __init__(self, survey: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., delta: _Optional[float] = ..., forged: _Optional[int] = ...) -> None: ...

class Mixed(_message.Message):
    __slots__ = ("period", "answers", "records")
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    period: str
    answers: _containers.RepeatedCompositeFieldContainer[MixedAnswer]
    records: int
    def __init__(self, period: _Optional[str] = ..., answers: _Optional[_Iterable[_Union[MixedAnswer, _Mapping]]] = ..., records: _Optional[int] = ...) -> None: ...

class MixedAnswer(_message.Message):
    __slots__ = ("attribute", "level", "map")
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    attribute: str
    level: str
    map: str
    def __init__(self, attribute: _Optional[str] = ..., level: _Optional[str] = ..., map: _Optional[str] = ...) -> None: ...

class ExportRowsRequest(_message.Message):
    __slots__ = ("survey", "selection", "since")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    survey: str
    selection: Selection
    since: Exported
    def __init__(self, survey: _Optional[str] = ..., selection: _Optional[_Union[Selection, _Mapping]] = ..., since: _Optional[_Union[Exported, _Mapping]] = ...) -> None: ...

class Exported(_message.Message):
    __slots__ = ("periods",)
    PERIODS_FIELD_NUMBER: _ClassVar[int]
    periods: _containers.RepeatedCompositeFieldContainer[ExportedPeriod]
    def __init__(self, periods: _Optional[_Iterable[_Union[ExportedPeriod, _Mapping]]] = ...) -> None: ...

class ExportedPeriod(_message.Message):
    __slots__ = ("period", "digest", "dropped")
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    period: str
    digest: bytes
    dropped: int
    def __init__(self, period: _Optional[str] = ..., digest: _Optional[bytes] = ..., dropped: _Optional[int] = ...) -> None: ...

class ExportRowsResponse(_message.Message):
    __slots__ = ("plan", "period", "rows", "columns", "exported")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    EXPORTED_FIELD_NUMBER: _ClassVar[int]
    plan: bytes
    period: str
    rows: int
    columns: _containers.RepeatedCompositeFieldContainer[_collector_pb2.Column]
    exported: ExportedPeriod
    def __init__(self, plan: _Optional[bytes] = ..., period: _Optional[str] = ..., rows: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[_collector_pb2.Column, _Mapping]]] = ..., exported: _Optional[_Union[ExportedPeriod, _Mapping]] = ...) -> None: ...
