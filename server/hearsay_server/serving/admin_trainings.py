"""The part of the Admin service that is about trainings."""

import asyncio
import logging
import os
from collections.abc import Callable

import grpc

from hearsay.federated.declaration import SplitNoise, Training
from hearsay.federated.parsing import parse
from hearsay.v1 import admin_pb2, admin_pb2_grpc
from hearsay_server.clock import Clock, system
from hearsay_server.serving import auth
from hearsay_server.serving.helping import Helping
from hearsay_server.serving.status import Ended
from hearsay_server.serving.trainer import no_training
from hearsay_server.serving.visits import Visits
from hearsay_server.storage import models, trainings
from hearsay_server.storage.database import Database
from hearsay_server.storage.trainings import NameTaken, NoTraining, StoredTraining
from hearsay_server.storage.writer import Writer
from hearsay_server.trainings import aggregation
from ldp.errors import HearsayError, InvalidInput, NotReady

_log = logging.getLogger("hearsay.server")

_PAGE = 1000
"""Rounds of a training that one answer has."""

_Status = admin_pb2.TrainingStatus
_STATES = {"running": _Status.RUNNING, "ended": _Status.ENDED, "closed": _Status.CLOSED}
_ROUNDS = {
    "open": admin_pb2.TrainingRound.OPEN,
    "closed": admin_pb2.TrainingRound.CLOSED,
    "aggregated": admin_pb2.TrainingRound.AGGREGATED,
    "dropped": admin_pb2.TrainingRound.DROPPED,
}


class TrainingsAdmin(admin_pb2_grpc.AdminServicer):
    """The calls about trainings."""

    def __init__(
        self,
        database: Database,
        writer: Writer,
        clock: Clock = system,
        *,
        changed: Callable[[], None] = lambda: None,
        ended: Callable[[], None] = lambda: None,
        draw: Callable[[int], bytes] = os.urandom,
        visits: Visits | None = None,
        helper: Helping | None = None,
    ) -> None:
        """Serve; `helper` is asked whether it could sum what a new survey or training splits.

        `draw` returns random bytes, and `visits` are those that the Trainer counts.

        `changed` is called when rounds may be due, `ended` when a training was closed or deleted.
        """
        self._database = database
        self._writer = writer
        self._clock = clock
        self._changed = changed
        self._ended = ended
        self._draw = draw
        self._visits = visits or Visits()
        self._helper = helper

    async def UploadModel(  # noqa: N802
        self, request: admin_pb2.UploadModelRequest, context: object
    ) -> admin_pb2.UploadModelResponse:
        part = (request.model, request.size, request.offset, request.data)
        try:
            missing = await self._writer.write(models.put, *part, self._clock())
        except InvalidInput as error:
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        return admin_pb2.UploadModelResponse(next=missing)

    async def CreateTraining(  # noqa: N802
        self, request: admin_pb2.CreateTrainingRequest, context: object
    ) -> admin_pb2.TrainingStatus:
        declared = request.training
        try:
            training = await asyncio.to_thread(lambda: _checked(declared))
            if isinstance(training.protection, SplitNoise):
                await asyncio.to_thread(self._check_training_is_helped, training.name)
            made = (declared, self._clock(), auth.caller(), self._draw)
            stored = await self._writer.write(trainings.create, *made)
        except NameTaken as error:
            raise Ended(grpc.StatusCode.ALREADY_EXISTS, str(error)) from None
        except InvalidInput as error:
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        except NotReady as error:
            raise Ended(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
        self._changed()
        return _status(stored)

    def _check_training_is_helped(self, name: str) -> None:
        if trainings.training(self._database, name) is None:
            self._check_helped(name, is_training=True)

    def _check_helped(self, name: str, *, is_training: bool = False) -> None:
        """Raise `Ended` for what a new survey or training splits where there is no helper, or it
        keeps an earlier plan of that name: devices would be charged for what is never summed."""
        if self._helper is None:
            detail = (
                f"what devices send of {name!r} is to be split between two servers, and this one "
                "has no helper: start it with --helper HOST:PORT"
            )
            raise Ended(grpc.StatusCode.FAILED_PRECONDITION, detail)
        try:
            self._helper.check_free(name, is_training=is_training)
        except (InvalidInput, NotReady) as error:
            raise Ended(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
        except HearsayError as error:
            _log.warning(
                "the helper cannot be asked whether it keeps an earlier plan of %r, which would "
                "keep it from summing for this one: %s",
                *(name, error),
            )

    async def ListTrainings(  # noqa: N802
        self, request: admin_pb2.ListTrainingsRequest, context: object
    ) -> admin_pb2.ListTrainingsResponse:
        found = await asyncio.to_thread(trainings.trainings, self._database)
        return admin_pb2.ListTrainingsResponse(trainings=map(_status, found))

    async def ShowTraining(  # noqa: N802
        self, request: admin_pb2.ShowTrainingRequest, context: object
    ) -> admin_pb2.ShowTrainingResponse:
        name = request.training
        found = await asyncio.to_thread(trainings.training, self._database, name)
        if found is None:
            raise no_training(name)
        asked = (self._database, name, request.after, _PAGE)
        rounds = await asyncio.to_thread(trainings.rounds, *asked)
        return admin_pb2.ShowTrainingResponse(
            status=_status(found),
            training=found.declared,
            rounds=map(_round, rounds),
            visits=self._visits.of(name, found.round),
        )

    async def CloseTraining(  # noqa: N802
        self, request: admin_pb2.CloseTrainingRequest, context: object
    ) -> admin_pb2.TrainingStatus:
        asked = (request.training, self._clock(), auth.caller())
        try:
            stored = await self._writer.write(trainings.close, *asked)
        except NoTraining:
            raise no_training(request.training) from None
        self._ended()
        return _status(stored)

    async def DeleteTraining(  # noqa: N802
        self, request: admin_pb2.DeleteTrainingRequest, context: object
    ) -> admin_pb2.DeleteTrainingResponse:
        try:
            was = await self._writer.write(trainings.mark_deleted, request.training, auth.caller())
        except NoTraining:
            raise no_training(request.training) from None
        # If this is cut short, a sweep goes on with it.
        while await self._writer.write(trainings.delete_some):
            pass
        self._ended()
        return admin_pb2.DeleteTrainingResponse(rounds=was.round, updates=was.updates)


def _checked(declared: bytes) -> Training:
    """Parse a training; raise `InvalidInput` where the server could not aggregate it."""
    training = parse(declared)
    aggregation.check(training)
    return training


def _status(stored: StoredTraining) -> admin_pb2.TrainingStatus:
    return admin_pb2.TrainingStatus(
        training=stored.training.name,
        title=stored.training.title,
        revision=stored.training.revision,
        state=_STATES[stored.state],
        round=stored.round,
        rounds=stored.training.rounds,
        aggregated=stored.aggregated,
        dropped=stored.dropped,
        updates=stored.updates,
        update_bytes=stored.size,
        model=stored.model,
        trouble=stored.trouble,
        created=stored.created,
    )


def _round(each: trainings.StoredRound) -> admin_pb2.TrainingRound:
    return admin_pb2.TrainingRound(
        round=each.round,
        state=_ROUNDS[each.state],
        updates=each.updates,
        update_bytes=each.size,
        model=each.model,
        result=each.result or b"",
        opened=each.opened,
        deadline=each.deadline,
        closed=each.closed,
    )
