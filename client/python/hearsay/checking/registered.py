"""What a server tells operators of surveys and trainings, checked against the request."""

from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message import Message

from hearsay.checking.plans import check_periods, plan_of
from hearsay.plans.texts import check_name
from hearsay.v1 import admin_pb2 as wire
from hearsay.v1 import trainer_pb2
from ldp.errors import InvalidInput

_HASH = 32
"""Bytes of a SHA-256."""

_ROUNDS = 1000
"""Rounds of one answer."""

_LEAST_PART = 1 << 12
"""Bytes of a part of a model that is not the last one, at least."""

_LARGEST = 1 << 31
"""Bytes of a model's file: the largest model has 256 MiB of numbers."""


def check(request: Message, answer: Message) -> None:
    """Raise `InvalidInput` for an answer that cannot be one to this request.

    Answers of other kinds are not looked at.
    """
    found = _CHECKS.get(type(answer))
    if found is not None:
        found(request, answer)


def _survey(request: Any, answer: wire.SurveyStatus) -> None:
    created = isinstance(request, wire.CreateSurveyRequest)
    _check_name(answer.survey, request.survey.name if created else request.survey)
    _check_hash(answer.revision)


def _surveys(_: Any, answer: wire.ListSurveysResponse) -> None:
    _check_names([each.survey for each in answer.surveys])
    for each in answer.surveys:
        _check_hash(each.revision)


def _shown_survey(request: wire.ShowSurveyRequest, answer: wire.ShowSurveyResponse) -> None:
    plan, status, periods = plan_of(answer.plan, request.survey), answer.status, answer.periods
    if (status.survey, status.title, status.revision) != (plan.survey, plan.title, plan.revision):
        raise InvalidInput("status: it is not that of the plan")
    check_periods(plan, periods)
    cells = [(each.attribute, each.level, each.map) for each in answer.reports]
    if len(set(cells)) != len(cells):
        raise InvalidInput("reports: one comes twice")
    for each in answer.reports:
        plan.level(each.level)
        plan.map_of(each.attribute, each.map)
        if len(each.reports) != len(periods):
            raise InvalidInput(f"reports: {len(each.reports)} counts of {len(periods)} periods")


def _training(request: Any, answer: wire.TrainingStatus) -> None:
    if isinstance(request, wire.CreateTrainingRequest):
        from hearsay.federated.parsing import parse as parse_training

        _check_name(answer.training, parse_training(request.training).name)
    else:
        _check_name(answer.training, request.training)
    _check_status(answer)


def _trainings(_: Any, answer: wire.ListTrainingsResponse) -> None:
    _check_names([each.training for each in answer.trainings])
    for each in answer.trainings:
        _check_status(each)


def _shown_training(request: wire.ShowTrainingRequest, answer: wire.ShowTrainingResponse) -> None:
    from hearsay.federated.parsing import parse as parse_training

    training, status = parse_training(answer.training), answer.status
    _check_name(training.name, request.training)
    _check_status(status)
    told = (status.training, status.title, status.revision, status.rounds)
    if told != (training.name, training.title, training.revision, training.rounds):
        raise InvalidInput("status: it is not that of the training")
    if len(answer.rounds) > _ROUNDS:
        raise InvalidInput(f"rounds: at most {_ROUNDS:,} at once, got {len(answer.rounds):,}")
    before = request.after
    for each in answer.rounds:
        if not before < each.round <= training.rounds:
            raise InvalidInput(f"rounds: {each.round} comes after {before} of {training.rounds}")
        before = each.round
        _check_hash(each.model)
        if each.result:
            _check_hash(each.result)


def _uploaded(request: wire.UploadModelRequest, answer: wire.UploadModelResponse) -> None:
    if not request.offset < answer.next <= request.size:
        raise InvalidInput(f"next: {answer.next} is no byte after {request.offset} of the model's")


def _model(request: trainer_pb2.GetModelRequest, answer: trainer_pb2.GetModelResponse) -> None:
    rest, part = answer.size - request.offset, len(answer.data)
    if not (0 < answer.size <= _LARGEST and min(rest, _LEAST_PART) <= part <= rest):
        raise InvalidInput(f"data: a part of {part} bytes, of {rest} that are left")


_CHECKS: dict[type[Message], Callable[[Any, Any], None]] = {
    wire.SurveyStatus: _survey,
    wire.ListSurveysResponse: _surveys,
    wire.ShowSurveyResponse: _shown_survey,
    wire.TrainingStatus: _training,
    wire.ListTrainingsResponse: _trainings,
    wire.ShowTrainingResponse: _shown_training,
    wire.UploadModelResponse: _uploaded,
    trainer_pb2.GetModelResponse: _model,
}


def _check_status(status: wire.TrainingStatus) -> None:
    _check_hash(status.revision)
    _check_hash(status.model)


def _check_name(told: str, asked: str) -> None:
    if told != asked:
        raise InvalidInput(f"asked for {asked!r}, got {told!r}")


def _check_names(names: Sequence[str]) -> None:
    """Check a list of names, which is sorted."""
    for name in names:
        check_name("name", name)
    if sorted(set(names)) != list(names):
        raise InvalidInput("the names are not sorted, each once")


def _check_hash(data: bytes) -> None:
    if len(data) != _HASH:
        raise InvalidInput(f"a SHA-256 has {_HASH} bytes, got {len(data)}")
