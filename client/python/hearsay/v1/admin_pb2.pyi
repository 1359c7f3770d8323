from hearsay.v1 import survey_pb2 as _survey_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
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
    __slots__ = ("status", "plan", "periods", "reports", "page")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PERIODS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    status: SurveyStatus
    plan: bytes
    periods: _containers.RepeatedScalarFieldContainer[str]
    reports: _containers.RepeatedCompositeFieldContainer[Reports]
    page: _survey_pb2.Page
    def __init__(self, status: _Optional[_Union[SurveyStatus, _Mapping]] = ..., plan: _Optional[bytes] = ..., periods: _Optional[_Iterable[str]] = ..., reports: _Optional[_Iterable[_Union[Reports, _Mapping]]] = ..., page: _Optional[_Union[_survey_pb2.Page, _Mapping]] = ...) -> None: ...

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

class UploadModelRequest(_message.Message):
    __slots__ = ("model", "size", "offset", "data")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    model: bytes
    size: int
    offset: int
    data: bytes
    def __init__(self, model: _Optional[bytes] = ..., size: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class UploadModelResponse(_message.Message):
    __slots__ = ("next",)
    NEXT_FIELD_NUMBER: _ClassVar[int]
    next: int
    def __init__(self, next: _Optional[int] = ...) -> None: ...

class CreateTrainingRequest(_message.Message):
    __slots__ = ("training",)
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    training: bytes
    def __init__(self, training: _Optional[bytes] = ...) -> None: ...

class ListTrainingsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTrainingsResponse(_message.Message):
    __slots__ = ("trainings",)
    TRAININGS_FIELD_NUMBER: _ClassVar[int]
    trainings: _containers.RepeatedCompositeFieldContainer[TrainingStatus]
    def __init__(self, trainings: _Optional[_Iterable[_Union[TrainingStatus, _Mapping]]] = ...) -> None: ...

class ShowTrainingRequest(_message.Message):
    __slots__ = ("training", "after")
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    training: str
    after: int
    def __init__(self, training: _Optional[str] = ..., after: _Optional[int] = ...) -> None: ...

class ShowTrainingResponse(_message.Message):
    __slots__ = ("status", "training", "rounds", "visits")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    VISITS_FIELD_NUMBER: _ClassVar[int]
    status: TrainingStatus
    training: bytes
    rounds: _containers.RepeatedCompositeFieldContainer[TrainingRound]
    visits: TrainingVisits
    def __init__(self, status: _Optional[_Union[TrainingStatus, _Mapping]] = ..., training: _Optional[bytes] = ..., rounds: _Optional[_Iterable[_Union[TrainingRound, _Mapping]]] = ..., visits: _Optional[_Union[TrainingVisits, _Mapping]] = ...) -> None: ...

class TrainingVisits(_message.Message):
    __slots__ = ("asked", "last_asked", "refused")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ASKED_FIELD_NUMBER: _ClassVar[int]
    LAST_ASKED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    asked: int
    last_asked: int
    refused: _containers.ScalarMap[str, int]
    def __init__(self, asked: _Optional[int] = ..., last_asked: _Optional[int] = ..., refused: _Optional[_Mapping[str, int]] = ...) -> None: ...

class CloseTrainingRequest(_message.Message):
    __slots__ = ("training",)
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    training: str
    def __init__(self, training: _Optional[str] = ...) -> None: ...

class DeleteTrainingRequest(_message.Message):
    __slots__ = ("training",)
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    training: str
    def __init__(self, training: _Optional[str] = ...) -> None: ...

class DeleteTrainingResponse(_message.Message):
    __slots__ = ("rounds", "updates")
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    rounds: int
    updates: int
    def __init__(self, rounds: _Optional[int] = ..., updates: _Optional[int] = ...) -> None: ...

class TrainingStatus(_message.Message):
    __slots__ = ("training", "title", "revision", "state", "round", "rounds", "aggregated", "dropped", "updates", "update_bytes", "model", "trouble", "created")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[TrainingStatus.State]
        RUNNING: _ClassVar[TrainingStatus.State]
        ENDED: _ClassVar[TrainingStatus.State]
        CLOSED: _ClassVar[TrainingStatus.State]
    STATE_UNSPECIFIED: TrainingStatus.State
    RUNNING: TrainingStatus.State
    ENDED: TrainingStatus.State
    CLOSED: TrainingStatus.State
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    AGGREGATED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    UPDATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    training: str
    title: str
    revision: bytes
    state: TrainingStatus.State
    round: int
    rounds: int
    aggregated: int
    dropped: int
    updates: int
    update_bytes: int
    model: bytes
    trouble: str
    created: int
    def __init__(self, training: _Optional[str] = ..., title: _Optional[str] = ..., revision: _Optional[bytes] = ..., state: _Optional[_Union[TrainingStatus.State, str]] = ..., round: _Optional[int] = ..., rounds: _Optional[int] = ..., aggregated: _Optional[int] = ..., dropped: _Optional[int] = ..., updates: _Optional[int] = ..., update_bytes: _Optional[int] = ..., model: _Optional[bytes] = ..., trouble: _Optional[str] = ..., created: _Optional[int] = ...) -> None: ...

class TrainingRound(_message.Message):
    __slots__ = ("round", "state", "updates", "update_bytes", "model", "result", "opened", "deadline", "closed")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[TrainingRound.State]
        OPEN: _ClassVar[TrainingRound.State]
        CLOSED: _ClassVar[TrainingRound.State]
        AGGREGATED: _ClassVar[TrainingRound.State]
        DROPPED: _ClassVar[TrainingRound.State]
    STATE_UNSPECIFIED: TrainingRound.State
    OPEN: TrainingRound.State
    CLOSED: TrainingRound.State
    AGGREGATED: TrainingRound.State
    DROPPED: TrainingRound.State
    ROUND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    UPDATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    round: int
    state: TrainingRound.State
    updates: int
    update_bytes: int
    model: bytes
    result: bytes
    opened: int
    deadline: int
    closed: int
    def __init__(self, round: _Optional[int] = ..., state: _Optional[_Union[TrainingRound.State, str]] = ..., updates: _Optional[int] = ..., update_bytes: _Optional[int] = ..., model: _Optional[bytes] = ..., result: _Optional[bytes] = ..., opened: _Optional[int] = ..., deadline: _Optional[int] = ..., closed: _Optional[int] = ...) -> None: ...
