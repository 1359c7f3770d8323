from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Answer(_message.Message):
    __slots__ = ("view", "survey", "subjects", "statistic", "tables", "confidence", "simultaneous", "reports", "parts", "repeats", "method", "notes", "figures", "cohorts")
    class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ROLE_UNSPECIFIED: _ClassVar[Answer.Role]
        ESTIMATE: _ClassVar[Answer.Role]
        ERROR: _ClassVar[Answer.Role]
        LOW: _ClassVar[Answer.Role]
        HIGH: _ClassVar[Answer.Role]
        P: _ClassVar[Answer.Role]
        N: _ClassVar[Answer.Role]
        STATISTIC: _ClassVar[Answer.Role]
        REFERENCE: _ClassVar[Answer.Role]
        MOVED: _ClassVar[Answer.Role]
        TEXT: _ClassVar[Answer.Role]
    ROLE_UNSPECIFIED: Answer.Role
    ESTIMATE: Answer.Role
    ERROR: Answer.Role
    LOW: Answer.Role
    HIGH: Answer.Role
    P: Answer.Role
    N: Answer.Role
    STATISTIC: Answer.Role
    REFERENCE: Answer.Role
    MOVED: Answer.Role
    TEXT: Answer.Role
    class Unit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNIT_UNSPECIFIED: _ClassVar[Answer.Unit]
        SHARE: _ClassVar[Answer.Unit]
        COUNT: _ClassVar[Answer.Unit]
        OWN: _ClassVar[Answer.Unit]
        PER_PERIOD: _ClassVar[Answer.Unit]
        NONE: _ClassVar[Answer.Unit]
    UNIT_UNSPECIFIED: Answer.Unit
    SHARE: Answer.Unit
    COUNT: Answer.Unit
    OWN: Answer.Unit
    PER_PERIOD: Answer.Unit
    NONE: Answer.Unit
    class Subject(_message.Message):
        __slots__ = ("name", "title")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TITLE_FIELD_NUMBER: _ClassVar[int]
        name: str
        title: str
        def __init__(self, name: _Optional[str] = ..., title: _Optional[str] = ...) -> None: ...
    class Level(_message.Message):
        __slots__ = ("name", "labels", "places", "numbers")
        NAME_FIELD_NUMBER: _ClassVar[int]
        LABELS_FIELD_NUMBER: _ClassVar[int]
        PLACES_FIELD_NUMBER: _ClassVar[int]
        NUMBERS_FIELD_NUMBER: _ClassVar[int]
        name: str
        labels: _containers.RepeatedScalarFieldContainer[str]
        places: _containers.RepeatedScalarFieldContainer[int]
        numbers: _containers.RepeatedScalarFieldContainer[float]
        def __init__(self, name: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., places: _Optional[_Iterable[int]] = ..., numbers: _Optional[_Iterable[float]] = ...) -> None: ...
    class Column(_message.Message):
        __slots__ = ("name", "role", "unit", "numbers", "texts", "whole")
        NAME_FIELD_NUMBER: _ClassVar[int]
        ROLE_FIELD_NUMBER: _ClassVar[int]
        UNIT_FIELD_NUMBER: _ClassVar[int]
        NUMBERS_FIELD_NUMBER: _ClassVar[int]
        TEXTS_FIELD_NUMBER: _ClassVar[int]
        WHOLE_FIELD_NUMBER: _ClassVar[int]
        name: str
        role: Answer.Role
        unit: Answer.Unit
        numbers: _containers.RepeatedScalarFieldContainer[float]
        texts: _containers.RepeatedScalarFieldContainer[str]
        whole: bool
        def __init__(self, name: _Optional[str] = ..., role: _Optional[_Union[Answer.Role, str]] = ..., unit: _Optional[_Union[Answer.Unit, str]] = ..., numbers: _Optional[_Iterable[float]] = ..., texts: _Optional[_Iterable[str]] = ..., whole: bool = ...) -> None: ...
    class Table(_message.Message):
        __slots__ = ("name", "index", "columns", "left_out", "statistic")
        NAME_FIELD_NUMBER: _ClassVar[int]
        INDEX_FIELD_NUMBER: _ClassVar[int]
        COLUMNS_FIELD_NUMBER: _ClassVar[int]
        LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
        STATISTIC_FIELD_NUMBER: _ClassVar[int]
        name: str
        index: _containers.RepeatedCompositeFieldContainer[Answer.Level]
        columns: _containers.RepeatedCompositeFieldContainer[Answer.Column]
        left_out: int
        statistic: str
        def __init__(self, name: _Optional[str] = ..., index: _Optional[_Iterable[_Union[Answer.Level, _Mapping]]] = ..., columns: _Optional[_Iterable[_Union[Answer.Column, _Mapping]]] = ..., left_out: _Optional[int] = ..., statistic: _Optional[str] = ...) -> None: ...
    class Part(_message.Message):
        __slots__ = ("name", "reports")
        NAME_FIELD_NUMBER: _ClassVar[int]
        REPORTS_FIELD_NUMBER: _ClassVar[int]
        name: str
        reports: int
        def __init__(self, name: _Optional[str] = ..., reports: _Optional[int] = ...) -> None: ...
    class Note(_message.Message):
        __slots__ = ("part", "words", "code", "given")
        PART_FIELD_NUMBER: _ClassVar[int]
        WORDS_FIELD_NUMBER: _ClassVar[int]
        CODE_FIELD_NUMBER: _ClassVar[int]
        GIVEN_FIELD_NUMBER: _ClassVar[int]
        part: str
        words: str
        code: str
        given: _containers.RepeatedCompositeFieldContainer[Answer.Figure]
        def __init__(self, part: _Optional[str] = ..., words: _Optional[str] = ..., code: _Optional[str] = ..., given: _Optional[_Iterable[_Union[Answer.Figure, _Mapping]]] = ...) -> None: ...
    class Figure(_message.Message):
        __slots__ = ("name", "number", "count", "text", "flag", "numbers", "texts")
        NAME_FIELD_NUMBER: _ClassVar[int]
        NUMBER_FIELD_NUMBER: _ClassVar[int]
        COUNT_FIELD_NUMBER: _ClassVar[int]
        TEXT_FIELD_NUMBER: _ClassVar[int]
        FLAG_FIELD_NUMBER: _ClassVar[int]
        NUMBERS_FIELD_NUMBER: _ClassVar[int]
        TEXTS_FIELD_NUMBER: _ClassVar[int]
        name: str
        number: float
        count: int
        text: str
        flag: bool
        numbers: Answer.Numbers
        texts: Answer.Texts
        def __init__(self, name: _Optional[str] = ..., number: _Optional[float] = ..., count: _Optional[int] = ..., text: _Optional[str] = ..., flag: bool = ..., numbers: _Optional[_Union[Answer.Numbers, _Mapping]] = ..., texts: _Optional[_Union[Answer.Texts, _Mapping]] = ...) -> None: ...
    class Numbers(_message.Message):
        __slots__ = ("names", "numbers")
        NAMES_FIELD_NUMBER: _ClassVar[int]
        NUMBERS_FIELD_NUMBER: _ClassVar[int]
        names: _containers.RepeatedScalarFieldContainer[str]
        numbers: _containers.RepeatedScalarFieldContainer[float]
        def __init__(self, names: _Optional[_Iterable[str]] = ..., numbers: _Optional[_Iterable[float]] = ...) -> None: ...
    class Texts(_message.Message):
        __slots__ = ("texts",)
        TEXTS_FIELD_NUMBER: _ClassVar[int]
        texts: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, texts: _Optional[_Iterable[str]] = ...) -> None: ...
    class Cohort(_message.Message):
        __slots__ = ("revision", "level", "period", "map", "epsilon", "mechanism", "reports")
        REVISION_FIELD_NUMBER: _ClassVar[int]
        LEVEL_FIELD_NUMBER: _ClassVar[int]
        PERIOD_FIELD_NUMBER: _ClassVar[int]
        MAP_FIELD_NUMBER: _ClassVar[int]
        EPSILON_FIELD_NUMBER: _ClassVar[int]
        MECHANISM_FIELD_NUMBER: _ClassVar[int]
        REPORTS_FIELD_NUMBER: _ClassVar[int]
        revision: bytes
        level: str
        period: str
        map: str
        epsilon: float
        mechanism: str
        reports: int
        def __init__(self, revision: _Optional[bytes] = ..., level: _Optional[str] = ..., period: _Optional[str] = ..., map: _Optional[str] = ..., epsilon: _Optional[float] = ..., mechanism: _Optional[str] = ..., reports: _Optional[int] = ...) -> None: ...
    VIEW_FIELD_NUMBER: _ClassVar[int]
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    SUBJECTS_FIELD_NUMBER: _ClassVar[int]
    STATISTIC_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SIMULTANEOUS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    REPEATS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    COHORTS_FIELD_NUMBER: _ClassVar[int]
    view: str
    survey: str
    subjects: _containers.RepeatedCompositeFieldContainer[Answer.Subject]
    statistic: str
    tables: _containers.RepeatedCompositeFieldContainer[Answer.Table]
    confidence: float
    simultaneous: bool
    reports: int
    parts: _containers.RepeatedCompositeFieldContainer[Answer.Part]
    repeats: float
    method: str
    notes: _containers.RepeatedCompositeFieldContainer[Answer.Note]
    figures: _containers.RepeatedCompositeFieldContainer[Answer.Figure]
    cohorts: _containers.RepeatedCompositeFieldContainer[Answer.Cohort]
    def __init__(self, view: _Optional[str] = ..., survey: _Optional[str] = ..., subjects: _Optional[_Iterable[_Union[Answer.Subject, _Mapping]]] = ..., statistic: _Optional[str] = ..., tables: _Optional[_Iterable[_Union[Answer.Table, _Mapping]]] = ..., confidence: _Optional[float] = ..., simultaneous: bool = ..., reports: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[Answer.Part, _Mapping]]] = ..., repeats: _Optional[float] = ..., method: _Optional[str] = ..., notes: _Optional[_Iterable[_Union[Answer.Note, _Mapping]]] = ..., figures: _Optional[_Iterable[_Union[Answer.Figure, _Mapping]]] = ..., cohorts: _Optional[_Iterable[_Union[Answer.Cohort, _Mapping]]] = ...) -> None: ...
