from hearsay.v1 import survey_pb2 as _survey_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Plan(_message.Message):
    __slots__ = ("survey", "levels")
    SURVEY_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    survey: _survey_pb2.Survey
    levels: _containers.RepeatedCompositeFieldContainer[Level]
    def __init__(self, survey: _Optional[_Union[_survey_pb2.Survey, _Mapping]] = ..., levels: _Optional[_Iterable[_Union[Level, _Mapping]]] = ...) -> None: ...

class Level(_message.Message):
    __slots__ = ("name", "epsilon", "mechanisms", "chances", "mapped")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    MECHANISMS_FIELD_NUMBER: _ClassVar[int]
    CHANCES_FIELD_NUMBER: _ClassVar[int]
    MAPPED_FIELD_NUMBER: _ClassVar[int]
    name: str
    epsilon: float
    mechanisms: _containers.RepeatedCompositeFieldContainer[Mechanism]
    chances: _containers.RepeatedScalarFieldContainer[int]
    mapped: _containers.RepeatedCompositeFieldContainer[Mechanism]
    def __init__(self, name: _Optional[str] = ..., epsilon: _Optional[float] = ..., mechanisms: _Optional[_Iterable[_Union[Mechanism, _Mapping]]] = ..., chances: _Optional[_Iterable[int]] = ..., mapped: _Optional[_Iterable[_Union[Mechanism, _Mapping]]] = ...) -> None: ...

class Mechanism(_message.Message):
    __slots__ = ("name", "epsilon", "parameters")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    epsilon: float
    parameters: _containers.RepeatedCompositeFieldContainer[Parameter]
    def __init__(self, name: _Optional[str] = ..., epsilon: _Optional[float] = ..., parameters: _Optional[_Iterable[_Union[Parameter, _Mapping]]] = ...) -> None: ...

class Parameter(_message.Message):
    __slots__ = ("name", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., values: _Optional[_Iterable[int]] = ...) -> None: ...
